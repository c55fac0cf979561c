"""Training labels of several variants side by side, majorities and draws.

What ENQ, CDQ, LBQ and wvRN have in common: labels are int32, shape (K, N): K variants
(folds, shares of the labels) of one graph by canonical index, -1 where a variant hides
or lacks the label. What a variant is answered never depends on the variants beside it.
``client`` computes, ``graph`` and ``manifest`` are the stage ``graph``, ``attempt`` is
where files go meanwhile, ``n_classes`` is C.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from xnq_dist.core.random_bits import Purpose, stream

__all__ = [
    "class_counts",
    "draw_from_prior",
    "majority",
    "majority_order",
]


def class_counts(labels: NDArray[np.int32], n_classes: int) -> NDArray[np.int64]:
    """Labelled nodes of each class in each variant, shape (K, C)."""
    return np.stack(
        [np.bincount(row[row >= 0], minlength=n_classes) for row in labels]
    ).astype(np.int64)


def majority_order(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Classes from the one that wins all ties to the one that loses them, (K, C).

    The more frequent class in the training labels first, of equals the lower code.

    Examples
    --------
    >>> majority_order(np.array([[2, 5, 5]])).tolist()
    [[1, 2, 0]]
    """
    return np.argsort(-counts, axis=1, kind="stable")


def majority(counts: NDArray[np.number], order: NDArray[np.int64]) -> NDArray[np.int64]:
    """Class with the most votes in each row, -1 without a vote, shape (n,).

    Parameters
    ----------
    counts
        Votes, shape (n, C).
    order
        Classes in the order in which they win ties, shape (C,).
    """
    winner = order[np.argmax(counts[:, order], axis=1)]
    return np.where(counts.any(axis=1), winner, np.int64(-1))


def draw_from_prior(
    votes: NDArray[np.integer], counts: NDArray[np.int64], seed: int
) -> NDArray[np.int32]:
    """Votes (K, N) where there are any, a class drawn from the labels elsewhere.

    The random number of a node depends on the seed and on its index alone; ``counts``
    are the labelled nodes of each class, shape (K, C).
    """
    answer = votes.astype(np.int32)
    uniform = stream(seed, Purpose.VOTES, 0).random((votes.shape[1],))
    for variant in range(len(answer)):
        held = np.cumsum(counts[variant])
        none = np.flatnonzero(answer[variant] < 0)
        # A labelled node picked at random: a class without any is never drawn.
        pick = np.minimum((uniform[none] * held[-1]).astype(np.int64), held[-1] - 1)
        answer[variant, none] = np.searchsorted(held, pick, side="right")
    return answer
