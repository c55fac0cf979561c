"""SIS: adjusted counts whose rates are learnt from labelled nodes near a community.

Structural importance sampling takes a community for a region of the graph: what a class
is predicted to be there is learnt from the labelled nodes, each weighted by the density
ratio ``rho(v)`` of the community to the labelled nodes. Labels are taken to be spread
evenly, and the community's density is a kernel estimate by walks of `ROUNDS` steps that
start at its unlabelled members u, step along edges (or stay, as along a loop of weight
1) and go back to u with chance `TELEPORT` (truncated personalised PageRank, PPR):
``rho(v) = INFLUENCE sum over u of PPR(u, v) + 1 - INFLUENCE``.

References
----------
C. Damke, E. Huellermeier, "Adjusted count quantification learning on graphs", NeurIPS
2025 (arXiv 2503.09395), section 3.1 and appendix B: kernel and constants. That the
kernel is summed over the members before it is mixed with 1, so that rates of larger
communities lean more on walks, is taken from the authors' code.

Notes
-----
Rates are sums of ``rho(v)`` times what is known of v, and rho is a sum over members. So
the sum over v goes first: values of the labelled nodes are carried backwards along the
walks to every node, once for all communities, and a community adds up what has come to
its members. That takes `ROUNDS` passes over the edges for C K columns of values, K = C
(C^2 with neighbours), whatever the number of communities, where walks from each would
take as many passes a community. It is exact, not an approximation.

Here it is done in one process that holds the whole adjacency and 4 N K + S K C numbers
for S communities, for evaluations and small graphs. No stage of a run does it: it would
be `ROUNDS` halo exchanges, over out-neighbours, and is not claimed for graphs that do
not fit one process.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array

from xnq_dist.core.errors import StageError
from xnq_dist.quantify.classic.counts import adjusted, mean_kernel
from xnq_dist.quantify.classic.members import check_posteriors, labelled_rows
from xnq_dist.quantify.classic.neighbour_counts import joint_kernel, neighbour_sums
from xnq_dist.quantify.interface import (
    Communities,
    Estimates,
    NodeTable,
    Quantifier,
    Reference,
)

__all__ = ["NAMES", "Sis", "carried_back", "walk_matrix"]

ROUNDS = 10
"""Steps of a walk."""
TELEPORT = 0.1
"""Chance of a step to the start of the walk."""
INFLUENCE = 0.9
"""Share of the walks in a node's weight: lambda of the paper. Below 1, so that a class
with a labelled node anywhere always has rates."""

NAMES = ("sis_acc", "sis_pacc", "sis_nacc", "sis_npacc")
"""ACC, PACC, NACC and NPACC with weighted rates."""


@dataclass(frozen=True, eq=False)
class Sis(Quantifier):
    """The quantifiers ``sis_acc``, ``sis_pacc``, ``sis_nacc`` and ``sis_npacc``."""

    name: str
    """One of `NAMES`."""
    walks: csr_array[Any]
    """Of `walk_matrix`, shape (N, N)."""
    rounds: int = ROUNDS
    teleport: float = TELEPORT
    influence: float = INFLUENCE
    """From 0 (ACC itself) to below 1."""

    @property
    def needs_neighbours(self) -> bool:
        """Whether `NodeTable.neighbours` must be there."""
        return self.name in ("sis_nacc", "sis_npacc")

    def estimate(
        self, batch: Communities, nodes: NodeTable, reference: Reference
    ) -> Estimates:
        """Prevalence among the unlabelled members of every community.

        Raises
        ------
        StageError
            When it is not known which nodes the labelled ones are, or what is around
            them.
        """
        check_posteriors(self.name, batch, nodes)
        _, codes = labelled_rows(self.name, reference)
        if reference.rows is None:
            raise StageError(
                f"quantifier = {self.name} has not been told which nodes its labelled "
                "ones are: this is a fault of the program"
            )
        counts = self._means(batch, nodes, nodes.unlabelled)
        return adjusted(self._rates(batch, nodes, reference.rows, codes), counts)

    def _means(
        self, batch: Communities, nodes: NodeTable, chosen: NDArray[np.bool_]
    ) -> NDArray[np.float64]:
        """Mean prediction of the chosen members, shape (S, K)."""
        hard = self.name in ("sis_acc", "sis_nacc")
        n_classes = nodes.posteriors.shape[1]
        width = n_classes**2 if self.needs_neighbours else n_classes
        means = np.empty((len(batch), width))
        sets = (batch.offsets, batch.members, chosen, nodes.posteriors)
        if self.needs_neighbours:
            joint_kernel(
                *sets, neighbour_sums(self.name, nodes.neighbours, hard), hard, means
            )
        else:
            mean_kernel(*sets, hard, means)
        return means

    def _rates(
        self,
        batch: Communities,
        nodes: NodeTable,
        rows: NDArray[np.int64],
        labels: NDArray[np.int32],
    ) -> NDArray[np.float64]:
        """M of every community, shape (S, K, C).

        A class without a labelled node has the column of the identity, as in ACC.
        """
        n_nodes, n_classes = nodes.posteriors.shape
        # A node whose posterior is all zeros says nothing.
        some = nodes.posteriors[rows].max(axis=1, initial=0.0) > 0
        rows, labels = rows[some], labels[some]
        alone = Communities(np.arange(len(rows) + 1), rows)
        said = self._means(alone, nodes, np.ones(n_nodes, np.bool_))
        width = said.shape[1]
        itself = n_classes + 1 if self.needs_neighbours else 1
        matrices = np.empty((len(batch), width, n_classes))
        values = np.empty((n_nodes, width))
        free = nodes.unlabelled[batch.members].astype(np.float64)
        inside = csr_array(
            (free, batch.members, batch.offsets), shape=(len(batch), n_nodes)
        )
        for code in range(n_classes):
            own = labels == code
            if not own.any():
                matrices[:, :, code] = 0.0
                matrices[:, code * itself, code] = 1.0
                continue
            values[:] = 0.0
            values[rows[own]] = said[own]
            back = carried_back(self.walks, values, self.rounds, self.teleport)
            weighted = self.influence * (inside @ back)
            weighted += (1.0 - self.influence) * said[own].sum(axis=0)
            matrices[:, :, code] = weighted / weighted.sum(axis=1, keepdims=True)
        return matrices


def walk_matrix(adjacency: csr_array[Any]) -> csr_array[Any]:
    """Where a walk goes next: row u holds the chances of u's out-neighbours.

    Row v of the adjacency holds the in-neighbours of node v, with weights at or above
    0. Every node's loop counts 1, as in the authors' code.
    """
    edges = adjacency.tocoo()
    heads, tails = (np.asarray(one, np.int64) for one in edges.coords)
    others = heads != tails
    itself = np.arange(adjacency.shape[0])
    starts = np.concatenate([tails[others], itself])
    ends = np.concatenate([heads[others], itself])
    weights = np.concatenate(
        [edges.data[others].astype(np.float64), np.ones(len(itself))]
    )
    out = np.bincount(starts, weights, minlength=len(itself))
    found = coo_array((weights / out[starts], (starts, ends)), adjacency.shape).tocsr()
    found.sort_indices()
    return found


def carried_back(
    walks: csr_array[Any], values: NDArray[np.float64], rounds: int, teleport: float
) -> NDArray[np.float64]:
    """What a walk from every node finds at its end, on average, shape (N, K).

    Row u is the sum over v of ``PPR(u, v) values[v]``, where PPR(u, .) is personalised
    PageRank from u after so many power iterations.
    """
    back = values
    for _ in range(rounds):
        back = walks @ back
        back *= 1.0 - teleport
        back += teleport * values
    return back
