"""SIS: adjusted counts whose rates are learnt from labelled nodes near a community.

Structural importance sampling treats a community as a region of the graph. The rates at
which each class is predicted there are estimated from the labelled nodes, weighted by
the density ratio ``rho(v)`` of the community to the labelled nodes. Labels are assumed
to be spread evenly. The community's density is a kernel estimate from random walks of
`ROUNDS` steps, which start at its unlabelled members u, step along edges (or stay, as
along a loop of weight 1) and return to u with probability `TELEPORT` (truncated
personalised PageRank, PPR):
``rho(v) = INFLUENCE sum over u of PPR(u, v) + 1 - INFLUENCE``.

References
----------
C. Damke, E. Huellermeier, "Adjusted count quantification learning on graphs", NeurIPS
2025 (arXiv 2503.09395), section 3.1 and appendix B: kernel and constants. The authors'
code sums the kernel over the members before it is mixed with 1, so that walks have more
weight in larger communities; so does this module.

Notes
-----
Rates are sums over v of ``rho(v)`` times the prediction for v, and rho is a sum over
members. The sum over v is computed first: values of the labelled nodes are propagated
backwards along the walks to every node, once for all communities, and each community
adds up the values at its members. This takes `ROUNDS` passes over the edges for C K
columns of values, K = C (C^2 with neighbours), for any number of communities; walks
from each community would take as many passes per community. The result is exact.

One process holds the complete adjacency and 4 N K + S K C numbers for S communities, so
this is for evaluations and small graphs. No stage of a run uses it: it would need
`ROUNDS` halo exchanges over out-neighbours.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array

from xnq_dist.core.errors import StageError
from xnq_dist.quantify.classic.counts import Counts, adjusted
from xnq_dist.quantify.classic.members import labelled_rows
from xnq_dist.quantify.classic.neighbour_counts import NeighbourCounts
from xnq_dist.quantify.interface import (
    Communities,
    Estimates,
    NodeTable,
    Quantifier,
    Reference,
)

__all__ = ["NAMES", "Sis", "propagate_back", "walk_matrix"]

ROUNDS = 10
"""Number of steps of a walk."""
TELEPORT = 0.1
"""Probability of a step to the start of the walk."""
INFLUENCE = 0.9
"""Share of the walks in a node's weight: lambda of the paper. It is below 1, so that
every class with a labelled node has rates."""

NAMES = ("sis_acc", "sis_pacc", "sis_nacc", "sis_npacc")
"""ACC, PACC, NACC and NPACC with weighted rates."""


@dataclass(frozen=True, eq=False)
class Sis(Quantifier):
    """The quantifiers ``sis_acc``, ``sis_pacc``, ``sis_nacc`` and ``sis_npacc``."""

    name: str
    """One of `NAMES`."""
    walks: csr_array[Any]
    """Result of `walk_matrix`, shape (N, N)."""
    rounds: int = ROUNDS
    teleport: float = TELEPORT
    influence: float = INFLUENCE
    """From 0 (equal to ACC) to below 1."""

    @property
    def needs_neighbours(self) -> bool:
        """Whether `NodeTable.neighbours` is required."""
        return self.name in ("sis_nacc", "sis_npacc")

    def estimate(
        self, batch: Communities, nodes: NodeTable, reference: Reference
    ) -> Estimates:
        """Prevalence among the unlabelled members of every community.

        Raises
        ------
        StageError
            When the reference has no rows of its nodes, or neighbours are missing.
        """
        _, codes = labelled_rows(self.name, reference)
        if reference.rows is None:
            raise StageError(
                f"quantifier = {self.name} got no node indexes of the labelled nodes: "
                "internal error, please report it"
            )
        counts = self._means(batch, nodes, nodes.unlabelled)
        return adjusted(self._rates(batch, nodes, reference.rows, codes), counts)

    def _means(
        self, batch: Communities, nodes: NodeTable, chosen: NDArray[np.bool_]
    ) -> NDArray[np.float64]:
        """Mean prediction of the chosen members, shape (S, K)."""
        kind = NeighbourCounts if self.needs_neighbours else Counts
        counts = kind(self.name.removeprefix("sis_"))
        sums = counts.sums(nodes.neighbours)
        return counts.means(batch, chosen, nodes.posteriors, sums)

    def _rates(
        self,
        batch: Communities,
        nodes: NodeTable,
        rows: NDArray[np.int64],
        labels: NDArray[np.int32],
    ) -> NDArray[np.float64]:
        """Rate matrix M of every community, shape (S, K, C).

        A class without a labelled node has the column of the identity, as in ACC.
        """
        n_nodes, n_classes = nodes.posteriors.shape
        # A posterior of zeros has no information.
        usable = nodes.posteriors[rows].max(axis=1, initial=0.0) > 0
        rows, labels = rows[usable], labels[usable]
        singletons = Communities(np.arange(len(rows) + 1), rows)
        predicted = self._means(singletons, nodes, np.ones(n_nodes, np.bool_))
        width = predicted.shape[1]
        diagonal = n_classes + 1 if self.needs_neighbours else 1
        matrices = np.empty((len(batch), width, n_classes))
        values = np.empty((n_nodes, width))
        free = nodes.unlabelled[batch.members].astype(np.float64)
        inside = csr_array(
            (free, batch.members, batch.offsets), shape=(len(batch), n_nodes)
        )
        for code in range(n_classes):
            of_class = labels == code
            if not of_class.any():
                matrices[:, :, code] = 0.0
                matrices[:, code * diagonal, code] = 1.0
                continue
            values[:] = 0.0
            values[rows[of_class]] = predicted[of_class]
            back = propagate_back(self.walks, values, self.rounds, self.teleport)
            weighted = self.influence * (inside @ back)
            weighted += (1.0 - self.influence) * predicted[of_class].sum(axis=0)
            matrices[:, :, code] = weighted / weighted.sum(axis=1, keepdims=True)
        return matrices


def walk_matrix(adjacency: csr_array[Any]) -> csr_array[Any]:
    """Transition matrix: row u holds the step probabilities to u's out-neighbours.

    Row v of the adjacency holds the in-neighbours of node v, with weights of at least
    0. Every node has a loop of weight 1, as in the authors' code.
    """
    edges = adjacency.tocoo()
    heads, tails = (np.asarray(one, np.int64) for one in edges.coords)
    others = heads != tails
    nodes = np.arange(adjacency.shape[0])
    starts = np.concatenate([tails[others], nodes])
    ends = np.concatenate([heads[others], nodes])
    weights = np.concatenate(
        [edges.data[others].astype(np.float64), np.ones(len(nodes))]
    )
    out = np.bincount(starts, weights, minlength=len(nodes))
    walks = coo_array((weights / out[starts], (starts, ends)), adjacency.shape).tocsr()
    walks.sort_indices()
    return walks


def propagate_back(
    walks: csr_array[Any], values: NDArray[np.float64], rounds: int, teleport: float
) -> NDArray[np.float64]:
    """Mean value at the end of a walk from every node, shape (N, K).

    Row u is the sum over v of ``PPR(u, v) values[v]``, where PPR(u, .) is personalised
    PageRank from u after `rounds` power iterations.
    """
    back = values
    for _ in range(rounds):
        back = walks @ back
        back *= 1.0 - teleport
        back += teleport * values
    return back
