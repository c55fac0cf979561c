"""Training labels of several variants, majorities and random draws.

Common conventions of ENQ, CDQ, LBQ and wvRN: labels are int32 of shape (K, N), for K
variants (folds, shares of the labels) of one graph by canonical index, and -1 where a
variant has no label. Variants do not influence each other. ``client`` computes,
``graph`` and ``manifest`` are the stage ``graph``, ``attempt`` has temporary files, and
``n_classes`` is C.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from xnq_dist.core.random_bits import Purpose, stream

__all__ = ["class_counts", "draw_from_prior", "majority", "majority_order"]


def class_counts(labels: NDArray[np.int32], n_classes: int) -> NDArray[np.int64]:
    """Number of labelled nodes of each class in each variant, shape (K, C)."""
    return np.stack(
        [np.bincount(row[row >= 0], minlength=n_classes) for row in labels]
    ).astype(np.int64)


def majority_order(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Classes in the order of precedence in ties, shape (K, C).

    Classes with more training labels come first; of equals, the lower code.

    Examples
    --------
    >>> majority_order(np.array([[2, 5, 5]])).tolist()
    [[1, 2, 0]]
    """
    return np.argsort(-counts, axis=1, kind="stable")


def majority(counts: NDArray[np.number], order: NDArray[np.int64]) -> NDArray[np.int64]:
    """Class with the most votes in each row, -1 if there are none, shape (n,).

    Parameters
    ----------
    counts
        Votes, shape (n, C).
    order
        Classes in the order of precedence in ties, shape (C,).
    """
    winner = order[np.argmax(counts[:, order], axis=1)]
    return np.where(counts.any(axis=1), winner, np.int64(-1))


def draw_from_prior(
    votes: NDArray[np.integer], counts: NDArray[np.int64], seed: int
) -> NDArray[np.int32]:
    """Replace missing votes (-1) by a class drawn from the labels, shape (K, N).

    The random number of a node depends only on the seed and its index; `counts` are the
    labelled nodes of each class, shape (K, C).
    """
    result = votes.astype(np.int32)
    uniform = stream(seed, Purpose.VOTES, 0).random((votes.shape[1],))
    for variant in range(len(result)):
        ends = np.cumsum(counts[variant])
        none = np.flatnonzero(result[variant] < 0)
        # Draw a labelled node, so that a class without labels is never drawn.
        drawn = np.minimum((uniform[none] * ends[-1]).astype(np.int64), ends[-1] - 1)
        result[variant, none] = np.searchsorted(ends, drawn, side="right")
    return result
