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
from scipy.sparse import csr_array

from xnq_dist.core.arrays import Ints, Ints32
from xnq_dist.core.random_bits import Purpose, stream
from xnq_dist.evaluation.methods.baselines import links
from xnq_dist.graph.clustering import FIRST, propagate
from xnq_dist.graph.csr import csr_of
from xnq_dist.quantify import interface

__all__ = ["MIN_SIZE", "OVERLAP", "demon", "visiting_order"]

MIN_SIZE = 3
"""Local communities of this size or smaller, including the ego, are dropped."""
OVERLAP = 0.25
"""Minimum shared part of the smaller community for two communities to be merged."""
SWEEPS = 100
"""Maximum number of sweeps of label propagation in an ego network."""


def demon(adjacency: csr_array[Any], seed: int) -> interface.Communities:
    """Detect overlapping communities; this process must hold all edges.

    The graph is treated as undirected, without weights and self-loops. For every node
    (ego), label propagation runs on the network of its neighbours without the ego. The
    ego is added to each resulting community, and communities larger than `MIN_SIZE` are
    kept. Egos are processed in canonical order, and an ego's communities by their first
    member in visiting order. Each community is merged into the oldest one in the pool
    with which it shares at least `OVERLAP` of the smaller of the two; otherwise it is
    added to the pool. Merged communities keep their position and are not compared
    again.

    Label propagation (`clustering.propagate`) visits the nodes in one random order, the
    same for all egos. Each node starts with its own label, and sweeps continue until
    nothing changes. A node takes the most frequent label among its neighbours. On a tie
    it keeps its label if that is one of them, or else takes that of the first neighbour
    that has one of them.

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
    ranked = _ranked(adjacency, order)
    pool: list[set[int]] = []
    of_node: list[list[int]] = [[] for _ in range(n_nodes)]
    for ego in rank:
        near = ranked.indices[ranked.indptr[ego] : ranked.indptr[ego + 1]]
        if len(near) < MIN_SIZE:
            continue
        labels = _propagated(ranked[near][:, near])
        for name in dict.fromkeys(labels.tolist()):
            community = {int(ego), *near[labels == name].tolist()}
            if len(community) > MIN_SIZE:
                _merge(community, pool, of_node)
    return interface.Communities.of(
        [np.sort(order[list(community)]) for community in pool]
    )


def visiting_order(n_nodes: int, seed: int) -> Ints:
    """Position of every node in the visiting order, shape (N,)."""
    return stream(seed, Purpose.VISITING_ORDER, 0).permutation(n_nodes)


def _ranked(adjacency: csr_array[Any], order: Ints) -> csr_array[Any]:
    """Neighbours in either direction, with nodes in visiting order."""
    one_way = links(adjacency)
    both = (one_way + one_way.T).tocsr()
    ranked: csr_array[Any] = both[order][:, order]
    ranked.sort_indices()
    return ranked


def _propagated(network: csr_array[Any]) -> Ints32:
    """Labels of the nodes of an ego network, shape (m,)."""
    count = network.shape[0]
    csr = csr_of(
        network.indptr.astype(np.int64),
        network.indices.astype(np.int32),
        np.empty(0, np.float32),
    )
    label = np.arange(count, dtype=np.int32)
    propagate(csr, label, np.ones(count), range(FIRST, FIRST + SWEEPS))
    return label


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
