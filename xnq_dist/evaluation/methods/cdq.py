"""CDQ, community discovery for quantification: the majority label of a community.

References
----------
L. Milli, A. Monreale, G. Rossetti, D. Pedreschi, F. Giannotti, F. Sebastiani,
"Quantification in social networks", IEEE International Conference on Data Science and
Advanced Analytics (DSAA), 2015.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numba import njit
from numpy.typing import NDArray

from xnq_dist.evaluation.methods.votes import (
    class_counts,
    draw_from_prior,
    majority,
    majority_order,
)
from xnq_dist.evaluation.regions import class_counts_in
from xnq_dist.quantify.interface import Communities

if TYPE_CHECKING:
    import scipy.sparse as sp

__all__ = ["Strategy", "cdq", "densities"]

Strategy = Literal["frequency", "density"]


def cdq(
    communities: Communities,
    labels: NDArray[np.int32],
    n_classes: int,
    strategy: Strategy,
    seed: int,
    density: NDArray[np.float64] | None = None,
) -> NDArray[np.int32]:
    """Predict for each node the majority training label of its community.

    Communities without a labelled member are ignored; a labelled node's label counts in
    its community. Ties within a community go to the class with more training labels,
    then to the lower code. If a node is in several communities, ``frequency`` uses the
    one whose majority class has the highest share of the labelled members, ``density``
    the densest; ties go to the first. Other nodes get a class drawn from the training
    labels.

    Parameters
    ----------
    communities
        S communities, which may overlap.
    labels
        Training labels, shape (K, N) (see `votes`).
    strategy
        How overlaps are resolved.
    seed
        Seed of the draws from the training labels.
    density
        Density of each community from `densities`, shape (S,); for ``density``.

    Returns
    -------
    Class codes of all nodes, shape (K, N), like the labels (see `votes`).
    """
    n_nodes, members = labels.shape[1], communities.members
    counts = class_counts(labels, n_classes)
    order = majority_order(counts)
    community = np.repeat(np.arange(len(communities)), np.diff(communities.offsets))
    votes = np.full(labels.shape, -1, np.int32)
    for variant, row in enumerate(labels):
        inside = class_counts_in(communities, row, n_classes)
        labelled = inside.sum(axis=1)
        if strategy == "density" and density is not None:
            score = density
        else:
            score = inside.max(axis=1, initial=0) / np.maximum(labelled, 1)
        # Rank communities; each node uses its community of the highest rank.
        trust = np.lexsort((-np.arange(len(score)), score, labelled > 0))
        place = np.empty(len(score), np.int64)
        place[trust] = np.arange(len(score))
        place[labelled == 0] = -1
        best = np.full(n_nodes, -1, np.int64)
        np.maximum.at(best, members, place[community])
        covered = best >= 0
        winners = majority(inside, order[variant])
        votes[variant, covered] = winners[trust[best[covered]]]
    return draw_from_prior(votes, counts, seed)


def densities(
    communities: Communities, adjacency: sp.csr_array[Any]
) -> NDArray[np.float64]:
    """Directed edges within each community divided by n (n - 1), shape (S,).

    Distinct edges u -> v with u != v and both ends inside are counted without weights;
    an undirected edge counts twice. The density of one node is 0. This process must
    hold all edges.
    """
    mark = np.full(adjacency.shape[0], -1, np.int64)
    graph, sets = (adjacency.indptr, adjacency.indices), communities
    edges = edges_inside(*graph, sets.offsets, sets.members, mark)
    sizes = np.diff(communities.offsets).astype(np.float64)
    density: NDArray[np.float64] = edges / np.maximum(sizes * (sizes - 1), 1)
    return density


@njit(cache=True, nogil=True)
def edges_inside(
    indptr: NDArray[np.integer],
    indices: NDArray[np.integer],
    offsets: NDArray[np.int64],
    members: NDArray[np.int64],
    mark: NDArray[np.int64],
) -> NDArray[np.int64]:
    """Number of edges with both ends in a community, without self-loops, shape (S,).

    `mark` is a work array of shape (N,), filled with -1.
    """
    count = offsets.shape[0] - 1
    edges = np.zeros(count, np.int64)
    for community in range(count):
        inside = members[offsets[community] : offsets[community + 1]]
        for node in inside:
            mark[node] = community
        for node in inside:
            for i in range(indptr[node], indptr[node + 1]):
                other = indices[i]
                if other != node and mark[other] == community:
                    edges[community] += 1
    return edges
