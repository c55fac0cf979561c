"""LBQ, link-based quantification: one prevalence for the whole graph, two classes.

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

    For graph-level answers alone: there is no class of a node and none of a subset.
    Distinct edges u -> k are links to k, whatever their weight; counted by one
    neighbourhood sum on the partitions.

    Labels of two classes, as `votes` has them.

    Raises
    ------
    InputError
        For a variant without an unlabelled node, without labels of one of the classes,
        or without a node that both classes link to differently.
    """
    counts = class_counts(labels, 2)
    totals = np.column_stack([labels.shape[1] - counts.sum(axis=1), counts])
    # Code 0 is now an unlabelled node: it counts too.
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
    """Prevalence of the positive class from who links to whom.

    For node k, ``P(link to k) = P(link to k | +) p + P(link to k | -) (1 - p)``, the
    left side from the unlabelled nodes, the conditionals from the labelled ones. Each
    node at which the conditionals differ gives a p; the answer is their median, cut
    to [0, 1].

    Links are the unlabelled, negative and positive nodes that link to each node, shape
    (N, 3), of as many of each as ``totals`` says; ``variant`` is named in an error.

    Raises
    ------
    InputError
        When nothing can be solved.
    """
    for code, what in enumerate(("unlabelled", "negative", "positive")):
        if not totals[code]:
            raise InputError(
                f"LBQ in variant {variant} has no {what} node: it needs unlabelled, "
                "negative and positive ones"
            )
    shares = np.asarray(links, np.float64) / totals
    # Counts crosswise: equal shares are found exactly.
    usable = (
        links[:, POSITIVE] * totals[NEGATIVE] != links[:, NEGATIVE] * totals[POSITIVE]
    )
    if not usable.any():
        raise InputError(
            f"LBQ in variant {variant} finds no node that the labelled nodes of both "
            "classes link to differently: it needs edges out of labelled nodes"
        )
    differences = shares[usable, POSITIVE] - shares[usable, NEGATIVE]
    solved = (shares[usable, HIDDEN] - shares[usable, NEGATIVE]) / differences
    return float(np.clip(np.median(solved), 0.0, 1.0))
