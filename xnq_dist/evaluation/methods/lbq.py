"""LBQ, link-based quantification: one prevalence for the whole graph, two classes.

References
----------
L. Tang, H. Gao, H. Liu, "Network quantification despite biased labels", Workshop on
Mining and Learning with Graphs (MLG), 2010.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from xnq_dist.core.errors import InputError, SettingsError
from xnq_dist.core.store import Attempt, Manifest, Stage
from xnq_dist.evaluation.methods.spread import OneHot, node_files
from xnq_dist.evaluation.methods.votes import check_labels, class_counts
from xnq_dist.reservoir.propagation import load_values, propagate

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
    labels: NDArray[np.integer],
    n_classes: int,
) -> NDArray[np.float64]:
    """Prevalence of class 1 among all unlabelled nodes of each variant, shape (K,).

    For graph-level answers alone: there is no class of a node and none of a subset.
    Distinct edges u -> k are links to k, whatever their weight; counted by one
    neighbourhood sum on the partitions.

    Parameters
    ----------
    client, graph, manifest
        Where to compute, and the stage ``graph``.
    attempt
        Where files go meanwhile.
    labels
        Training labels, K variants side by side, -1 hidden, shape (K, N).
    n_classes
        Must be 2.

    Raises
    ------
    SettingsError
        For another number of classes.
    InputError
        For labels that cannot be, or a variant without an unlabelled node, without
        labels of one of the classes, or without a node that both classes link to
        differently.
    """
    if n_classes != 2:
        raise SettingsError(
            f"LBQ is defined for two classes and there are {n_classes}: choose wvRN, "
            "ENQ or CDQ, or tell one class from the rest"
        )
    labels = check_labels(labels, int(manifest.facts["n_nodes"]), n_classes)
    counts = class_counts(labels, n_classes)
    totals = np.column_stack([labels.shape[1] - counts.sum(axis=1), counts])
    # Code 0 is now an unlabelled node: it counts too.
    shown = labels + 1
    with node_files(graph, manifest, attempt, "lbq-labels", labels=shown) as files:
        kept = propagate(
            client,
            graph,
            manifest,
            OneHot(files, 3),
            Sums(),
            1,
            attempt,
            "lbq",
            weighted=False,
        )
    links = load_values(Stage(attempt.folder, "lbq"), kept[1], graph, manifest)
    for record in kept[1]:
        attempt.folder.delete(record.name)
    blocks = links.reshape(len(links), len(labels), 3)
    return np.array(
        [link_prevalence(blocks[:, k], totals[k], k) for k in range(len(labels))]
    )


def link_prevalence(
    links: NDArray[np.floating], totals: NDArray[np.integer], variant: int = 0
) -> float:
    """Prevalence of the positive class from who links to whom.

    For node k, ``P(link to k) = P(link to k | +) p + P(link to k | -) (1 - p)``, the
    left side from the unlabelled nodes, the conditionals from the labelled ones. Each
    node at which the conditionals differ gives a p; the answer is their median, cut
    to [0, 1].

    Parameters
    ----------
    links
        Unlabelled, negative and positive nodes that link to each node, shape (N, 3).
    totals
        How many of each there are, shape (3,).
    variant
        To name in an error.

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


@dataclass(frozen=True)
class Sums:
    """The sums as they are."""

    def __call__(self, _number: int, _turn: int, _values: Array, sums: Array) -> Array:
        """Shape (n_owned, w)."""
        return sums
