"""NACC: adjusted counts of the predictions for a node and for its neighbours.

ACC cannot distinguish two classes with equal predictions. The pair of a node's
prediction and the majority prediction of its neighbours is more informative: the counts
q are of C^2 pairs, M has a row for each pair and a column for each class, and p
minimises ``||M p - q||`` over the simplex as in ACC.

References
----------
C. Damke, E. Huellermeier, "Adjusted count quantification learning on graphs", NeurIPS
2025 (arXiv 2503.09395), section 3.2; with posteriors (PACC) instead of votes a pair is
the product of a node's posterior and the mean posterior of its neighbours. A node
without neighbours counts as its own neighbour, as in the authors' code.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from xnq_dist.core.arrays import Bools, Floats, Floats32, Ints
from xnq_dist.core.errors import StageError
from xnq_dist.core.settings import Settings
from xnq_dist.quantify.classic.counts import Counts
from xnq_dist.quantify.classic.members import labelled_rows
from xnq_dist.quantify.interface import (
    Communities,
    NeighbourStatistics,
    NodeTable,
    Quantifier,
    Reference,
)

if TYPE_CHECKING:
    from scipy.sparse import csr_array

__all__ = [
    "NeighbourCounts",
    "joint_kernel",
    "joint_rates",
    "make",
    "neighbour_statistics",
    "votes_of",
]


@dataclass(frozen=True)
class NeighbourCounts(Counts):
    """The quantifiers ``nacc`` (votes) and ``npacc`` (posteriors).

    Neighbours are the sources of a node's edges, weighted as the edges are; a loop in
    the graph makes a node its own neighbour.
    """

    needs_neighbours = True

    @property
    def hard(self) -> bool:
        """Whether votes are counted instead of posteriors."""
        return self.name == "nacc"

    def rates(self, reference: Reference) -> Floats:
        """The matrix M, shape (C^2, C)."""
        held, codes = labelled_rows(self.name, reference)
        sums = neighbour_sums(self.name, reference.neighbours, self.hard)
        return joint_rates(held, sums, codes, self.hard)

    def means(self, batch: Communities, nodes: NodeTable) -> Floats:
        """Mean of a member's prediction times its neighbours', shape (S, C^2)."""
        means = np.empty((len(batch), nodes.posteriors.shape[1] ** 2))
        table = nodes.unlabelled, nodes.posteriors
        sums = neighbour_sums(self.name, nodes.neighbours, self.hard)
        joint_kernel(batch.offsets, batch.members, *table, sums, self.hard, means)
        return means


def make(name: str, settings: Settings) -> Quantifier:
    """Construct one of the two quantifiers."""
    return NeighbourCounts(name)


def neighbour_sums(
    name: str, neighbours: NeighbourStatistics | None, hard: bool
) -> Floats:
    """Return the sums of votes or posteriors over neighbours, shape (N, C)."""
    if neighbours is None:
        raise StageError(
            f"quantifier = {name} did not get the sums over neighbours: this is an "
            "internal error, please report it"
        )
    return neighbours.votes if hard else neighbours.posterior_sum


def votes_of(posteriors: NDArray[np.floating]) -> Floats32:
    """One-hot votes for the largest posterior, the first of equals; zeros have no vote.

    Examples
    --------
    >>> votes_of(np.array([[0.3, 0.7], [0.5, 0.5], [0.0, 0.0]]))
    array([[0., 1.],
           [1., 0.],
           [0., 0.]], dtype=float32)
    """
    votes = np.zeros(posteriors.shape, np.float32)
    rows = np.flatnonzero(posteriors.max(axis=1, initial=0.0) > 0)
    votes[rows, posteriors[rows].argmax(axis=1)] = 1.0
    return votes


def neighbour_statistics(
    adjacency: csr_array[Any], nodes: NodeTable
) -> NeighbourStatistics:
    """Compute sums over in-neighbours in one process, from the complete adjacency.

    Row v of the adjacency holds the in-neighbours of node v.
    """
    values = nodes.posteriors, votes_of(nodes.posteriors)
    return NeighbourStatistics(*(adjacency @ one.astype(np.float64) for one in values))


def joint_rates(
    posteriors: NDArray[np.floating],
    sums: NDArray[np.floating],
    labels: NDArray[np.integer],
    hard: bool,
) -> Floats:
    """The matrix M of NACC, shape (C^2, C), from labelled nodes and `neighbour_sums`.

    Column k is the mean over the nodes of class k; row ``i C + j`` is of nodes
    predicted as i whose neighbours are predicted as j. A class without nodes is assumed
    to be predicted correctly, as by the identity in ACC.
    """
    n_classes = posteriors.shape[1]
    order = np.argsort(labels, kind="stable")
    sizes = np.bincount(labels, minlength=n_classes)
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    means = np.empty((n_classes, n_classes**2))
    joint_kernel(
        offsets,
        order.astype(np.int64),
        np.ones(len(labels), np.bool_),
        np.asarray(posteriors, np.float32),
        np.asarray(sums, np.float64),
        hard,
        means,
    )
    usable = posteriors.max(axis=1, initial=0.0) > 0
    for code in np.flatnonzero(np.bincount(labels[usable], minlength=n_classes) == 0):
        means[code] = 0.0
        means[code, code * n_classes + code] = 1.0
    return np.ascontiguousarray(means.T)


@njit(cache=True, nogil=True, error_model="numpy")
def joint_kernel(
    offsets: Ints,
    members: Ints,
    unlabelled: Bools,
    posteriors: Floats32,
    sums: Floats,
    hard: bool,
    means: Floats,
) -> None:
    """Mean over unlabelled members of pairs of their and their neighbours' predictions.

    In `means` (S, C^2), members predicted as i with neighbours predicted as j are at
    ``i C + j``; rows sum to 1, NaN without an unlabelled member. The largest of both
    are counted where `hard` (the first of equals), else products. A row of zeros in
    `posteriors` is skipped; one in `sums`, over neighbours, is replaced by the node's.
    """
    n_classes = posteriors.shape[1]
    total = np.empty(n_classes * n_classes)
    around = np.empty(n_classes)
    for s in range(offsets.shape[0] - 1):
        total[:] = 0.0
        seen = 0
        for position in range(offsets[s], offsets[s + 1]):
            node = members[position]
            if not unlabelled[node]:
                continue
            seen += 1
            own = 0
            for y in range(1, n_classes):
                if posteriors[node, y] > posteriors[node, own]:
                    own = y
            if not posteriors[node, own] > 0.0:
                continue
            mass = 0.0
            for y in range(n_classes):
                mass += sums[node, y]
            alone = not mass > 0.0
            if alone:
                mass = 0.0
                for y in range(n_classes):
                    mass += posteriors[node, y]
            best = 0
            for y in range(n_classes):
                around[y] = posteriors[node, y] if alone else sums[node, y]
                if around[y] > around[best]:
                    best = y
            if hard:
                total[own * n_classes + best] += 1.0
                continue
            for i in range(n_classes):
                for j in range(n_classes):
                    value = posteriors[node, i] * (around[j] / mass)
                    total[i * n_classes + j] += value
        mass = 0.0
        for pair in range(n_classes * n_classes):
            mass += total[pair]
        for pair in range(n_classes * n_classes):
            if seen == 0:
                means[s, pair] = np.nan
            elif mass > 0.0:
                means[s, pair] = total[pair] / mass
            else:
                means[s, pair] = 1.0 / (n_classes * n_classes)
