"""DEMON: overlapping communities from the ego network of each node.

References
----------
M. Coscia, G. Rossetti, F. Giannotti, D. Pedreschi, "DEMON: a local-first discovery
method for overlapping communities", ACM SIGKDD Conference on Knowledge Discovery and
Data Mining (KDD), 2012.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy.sparse import csr_array

from xnq_dist.core.random_bits import Purpose, stream
from xnq_dist.evaluation.methods.baselines import links
from xnq_dist.evaluation.regions import joined
from xnq_dist.quantify.interface import Communities

__all__ = ["MIN_SIZE", "OVERLAP", "demon", "visiting_order"]

MIN_SIZE = 3
"""Local communities of this size or smaller, including the ego, are dropped."""
OVERLAP = 0.25
"""Minimum shared part of the smaller community for two communities to be merged."""
SWEEPS = 100
"""Maximum number of sweeps of label propagation in an ego network."""


def demon(adjacency: csr_array[Any], seed: int) -> Communities:
    """Detect overlapping communities; this process must hold all edges.

    The graph is treated as undirected, without weights and self-loops. For every node
    (ego), label propagation runs on the network of its neighbours without the ego. The
    ego is added to each resulting community, and communities larger than `MIN_SIZE` are
    kept. Egos are processed in canonical order, and an ego's communities by their first
    member in visiting order. Each community is merged into the oldest one in the pool
    with which it shares at least `OVERLAP` of the smaller of the two; otherwise it is
    added to the pool. Merged communities keep their position and are not compared
    again.

    Label propagation visits the nodes in one random order, the same for all egos. Each
    node starts with its own label, and sweeps continue until nothing changes. A node
    takes the most frequent label among its neighbours. On a tie it keeps its label if
    that is one of them, or else takes the label whose first owner comes first.

    Parameters
    ----------
    adjacency
        Adjacency by canonical index, shape (N, N).
    seed
        Seed of the visiting order.

    Returns
    -------
    The communities, oldest first; they need not cover all nodes.
    """
    n_nodes = adjacency.shape[0]
    rank = visiting_order(n_nodes, seed)
    order = np.argsort(rank)
    indptr, indices = _ranked(adjacency, order)
    place, votes = np.full(n_nodes, -1, np.int64), np.zeros(n_nodes, np.int64)
    pool: list[set[int]] = []
    of_node: list[list[int]] = [[] for _ in range(n_nodes)]
    for ego in rank:
        near = indices[indptr[ego] : indptr[ego + 1]]
        labels = propagate_labels(indptr, indices, near, place, votes, SWEEPS)
        names, first = np.unique(labels, return_index=True)
        for name in names[np.argsort(first)]:
            community = {int(ego), *near[labels == name].tolist()}
            if len(community) > MIN_SIZE:
                _merge(community, pool, of_node)
    return joined([np.sort(order[list(community)]) for community in pool])


def visiting_order(n_nodes: int, seed: int) -> NDArray[np.int64]:
    """Position of every node in the visiting order, shape (N,)."""
    return stream(seed, Purpose.VISITING_ORDER, 0).permutation(n_nodes)


def _ranked(
    adjacency: csr_array[Any], order: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """CSR arrays of neighbours in either direction, with nodes in visiting order."""
    one_way = links(adjacency)
    both = (one_way + one_way.T).tocsr()
    both.setdiag(0)
    both.eliminate_zeros()
    ranked = both[order][:, order]
    ranked.sort_indices()
    return ranked.indptr.astype(np.int64), ranked.indices.astype(np.int64)


def _merge(community: set[int], pool: list[set[int]], of_node: list[list[int]]) -> None:
    """Merge a community into the oldest one that it overlaps with, or add it.

    `of_node` lists the communities of the pool that each node is in.
    """
    shared = Counter(old for node in community for old in of_node[node])
    target = min(
        (
            old
            for old, count in shared.items()
            if count >= OVERLAP * min(len(community), len(pool[old]))
        ),
        default=len(pool),
    )
    if target == len(pool):
        pool.append(set())
    for node in community - pool[target]:
        of_node[node].append(target)
    pool[target] |= community


@njit(cache=True, nogil=True)
def propagate_labels(
    indptr: NDArray[np.int64],
    indices: NDArray[np.int64],
    near: NDArray[np.int64],
    place: NDArray[np.int64],
    votes: NDArray[np.int64],
    sweeps: int,
) -> NDArray[np.int64]:
    """Label propagation among the neighbours of an ego, in visiting order, shape (m,).

    A label is the position of its first owner. `place`, filled with -1, and `votes`,
    with zeros, are work arrays of shape (N,), and are the same again afterwards.
    """
    count = near.shape[0]
    labels = np.arange(count)
    for i in range(count):
        place[near[i]] = i
    for _ in range(sweeps):
        changed = False
        for node in range(count):
            others = indices[indptr[near[node]] : indptr[near[node] + 1]]
            highest = 0
            for other in others:
                if place[other] >= 0:
                    label = labels[place[other]]
                    votes[label] += 1
                    highest = max(highest, votes[label])
            best = labels[node]
            if votes[best] < highest:
                best = count
                for other in others:
                    if place[other] >= 0 and votes[labels[place[other]]] == highest:
                        best = min(best, labels[place[other]])
            for other in others:
                if place[other] >= 0:
                    votes[labels[place[other]]] = 0
            changed |= best != labels[node]
            labels[node] = best
        if not changed:
            break
    for node in near:
        place[node] = -1
    return labels
