"""LBQ, link-based quantification: one prevalence for a graph with two classes.

References
----------
L. Tang, H. Gao, H. Liu, "Network quantification despite biased labels", Workshop on
Mining and Learning with Graphs (MLG), 2010.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from xnq_dist.core.errors import InputError
from xnq_dist.core.store import Attempt, Manifest, Stage
from xnq_dist.evaluation.methods.spread import summed
from xnq_dist.evaluation.methods.votes import class_counts

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["lbq", "link_prevalence"]

Array = NDArray[np.float32]
HIDDEN, NEGATIVE, POSITIVE = range(3)


def lbq(
    client: Client,
    graph: Stage,
    manifest: Manifest,
    attempt: Attempt,
    labels: NDArray[np.int32],
) -> NDArray[np.float64]:
    """Prevalence of class 1 among all unlabelled nodes of each variant, shape (K,).

    LBQ estimates complete graphs only, not nodes or subsets. Distinct edges u -> k are
    links to k, without weights, counted by one neighbourhood sum on the partitions.
    `labels` are of two classes, as in `votes`.

    Raises
    ------
    InputError
        When a variant has no unlabelled node, no label of a class, or no node for which
        the shares of links from the two classes differ.
    """
    counts = class_counts(labels, 2)
    totals = np.column_stack([labels.shape[1] - counts.sum(axis=1), counts])
    # After adding 1, code 0 is an unlabelled node, which is counted too.
    links = summed(client, graph, manifest, attempt, labels + 1, 3, _sums)
    blocks = links.reshape(len(links), len(labels), 3)
    return np.array(
        [link_prevalence(blocks[:, k], totals[k], k) for k in range(len(labels))]
    )


def _sums(_number: int, _turn: int, _values: Array, sums: Array) -> Array:
    return sums


def link_prevalence(
    links: NDArray[np.floating], totals: NDArray[np.integer], variant: int = 0
) -> float:
    """Prevalence of the positive class from the links to each node.

    For node k, ``P(link to k) = P(link to k | +) p + P(link to k | -) (1 - p)``. The
    left side is estimated from the unlabelled nodes, the conditionals from the labelled
    ones. Each node whose conditionals differ gives a p; the result is their median,
    clipped to [0, 1].

    Parameters
    ----------
    links
        Number of unlabelled, negative and positive nodes that link to each node, shape
        (N, 3).
    totals
        Number of unlabelled, negative and positive nodes, shape (3,).
    variant
        Number of the variant, for messages.

    Raises
    ------
    InputError
        When no equation can be solved.
    """
    for code, what in enumerate(("unlabelled", "negative", "positive")):
        if not totals[code]:
            raise InputError(
                f"LBQ in variant {variant} has no {what} node: it needs unlabelled, "
                "negative and positive nodes"
            )
    shares = np.asarray(links, np.float64) / totals
    # Cross-multiplied integers: the comparison of shares is exact.
    usable = (
        links[:, POSITIVE] * totals[NEGATIVE] != links[:, NEGATIVE] * totals[POSITIVE]
    )
    if not usable.any():
        raise InputError(
            f"LBQ in variant {variant} has no node for which the shares of links from "
            "the two classes differ: it needs edges out of labelled nodes"
        )
    differences = shares[usable, POSITIVE] - shares[usable, NEGATIVE]
    solved = (shares[usable, HIDDEN] - shares[usable, NEGATIVE]) / differences
    return float(np.clip(np.median(solved), 0.0, 1.0))
