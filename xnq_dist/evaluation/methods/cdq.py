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

from xnq_dist.core.errors import InputError, SettingsError
from xnq_dist.evaluation.methods.votes import (
    check_labels,
    class_counts,
    draw_from_prior,
    majority,
    majority_order,
)
from xnq_dist.quantify.interface import Communities

if TYPE_CHECKING:
    import scipy.sparse as sp

__all__ = ["Strategy", "cdq", "densities", "disjoint_communities"]

Strategy = Literal["frequency", "density"]


def cdq(
    communities: Communities,
    labels: NDArray[np.integer],
    n_classes: int,
    strategy: Strategy,
    seed: int,
    density: NDArray[np.float64] | None = None,
) -> NDArray[np.int32]:
    """Majority training label of each node's community.

    Only communities with a labelled member have a say; a labelled node's own label
    counts in them. Ties within a community go to the class with more training labels,
    then to the lower code. Of several communities of a node, ``frequency`` follows
    the one whose majority class has the highest share of the labelled members,
    ``density`` the densest; of equals the first. A node in no such community gets a
    class drawn from the training labels.

    Parameters
    ----------
    communities
        Of `demon`, or of `disjoint_communities`.
    labels
        Training labels, K variants side by side, -1 hidden, shape (K, N).
    n_classes
        C.
    strategy
        How overlaps are resolved.
    seed
        Of the draws.
    density
        Of each community, shape (S,), by `densities`; needed by ``density``.

    Returns
    -------
    Class codes of all nodes, shape (K, N).

    Raises
    ------
    InputError
        For labels that cannot be, or communities of other nodes.
    SettingsError
        For a strategy that is not defined, or ``density`` without densities.
    """
    labels = np.asarray(labels)
    n_nodes = labels.shape[-1] if labels.ndim else 0
    labels = check_labels(labels, n_nodes, n_classes)
    if strategy not in ("frequency", "density"):
        raise SettingsError(
            f"CDQ has no strategy {strategy!r}: choose frequency or density"
        )
    if strategy == "density" and (density is None or len(density) != len(communities)):
        raise SettingsError(
            "CDQ with strategy density needs the density of each of the "
            f"{len(communities)} communities: give it, or choose frequency"
        )
    members = communities.members
    if len(members) and (members.min() < 0 or members.max() >= n_nodes):
        raise InputError(
            f"CDQ is given communities with a node {members.max()} and labels of "
            f"{n_nodes} nodes: both must be of one graph"
        )
    counts = class_counts(labels, n_classes)
    order = majority_order(counts)
    community = np.repeat(np.arange(len(communities)), np.diff(communities.offsets))
    votes = np.full(labels.shape, -1, np.int32)
    for variant, row in enumerate(labels):
        inside = _label_counts(communities, community, row, n_classes)
        labelled = inside.sum(axis=1)
        if strategy == "density" and density is not None:
            score = density
        else:
            score = inside.max(axis=1, initial=0) / np.maximum(labelled, 1)
        # Places from the least to the most trusted: a node follows its highest.
        trust = np.lexsort((-np.arange(len(score)), score, labelled > 0))
        place = np.empty(len(score), np.int64)
        place[trust] = np.arange(len(score))
        place[labelled == 0] = -1
        best = np.full(n_nodes, -1, np.int64)
        np.maximum.at(best, members, place[community])
        heard = best >= 0
        winners = majority(inside, order[variant])
        votes[variant, heard] = winners[trust[best[heard]]]
    return draw_from_prior(votes, counts, seed)


def _label_counts(
    communities: Communities,
    community: NDArray[np.int64],
    labels: NDArray[np.int32],
    n_classes: int,
) -> NDArray[np.int64]:
    """Labelled members of each class, shape (S, C)."""
    codes = labels[communities.members]
    known = codes >= 0
    cells = community[known] * n_classes + codes[known]
    counts = np.bincount(cells, minlength=len(communities) * n_classes)
    return counts.reshape(len(communities), n_classes).astype(np.int64)


def densities(
    communities: Communities, adjacency: sp.csr_array[Any]
) -> NDArray[np.float64]:
    """Directed edges within each community over n (n - 1), shape (S,).

    Distinct edges u -> v with u != v and both ends inside, whatever their weight; an
    undirected edge is two. 0 for a community of one node.

    Parameters
    ----------
    communities
        S sets of nodes, which may overlap.
    adjacency
        Shape (N, N), by canonical index; all edges in this process.
    """
    mark = np.full(adjacency.shape[0], -1, np.int64)
    edges = edges_inside(
        adjacency.indptr,
        adjacency.indices,
        communities.offsets,
        communities.members,
        mark,
    )
    sizes = np.diff(communities.offsets).astype(np.float64)
    found: NDArray[np.float64] = edges / np.maximum(sizes * (sizes - 1), 1)
    return found


@njit(cache=True, nogil=True)
def edges_inside(
    indptr: NDArray[np.integer],
    indices: NDArray[np.integer],
    offsets: NDArray[np.int64],
    members: NDArray[np.int64],
    mark: NDArray[np.int64],
) -> NDArray[np.int64]:
    """Edges with both ends in a community, self-loops left out, shape (S,).

    Parameters
    ----------
    indptr, indices
        Distinct in-neighbours of each node.
    offsets, members
        The communities.
    mark
        Scratch, shape (N,), filled with -1.
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


def disjoint_communities(assignment: NDArray[np.integer]) -> Communities:
    """Communities from the number of each node's community, shape (N,).

    Examples
    --------
    >>> found = disjoint_communities(np.array([1, 0, 1, 0, 0]))
    >>> found.offsets.tolist(), found.members.tolist()
    ([0, 3, 5], [1, 3, 4, 0, 2])
    """
    sizes = np.bincount(assignment)
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    return Communities(offsets, np.argsort(assignment, kind="stable").astype(np.int64))
