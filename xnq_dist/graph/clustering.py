"""Clusters of nodes by label propagation, and the contracted graph of the clusters.

A few passes over the edges find most of a community structure. The edges between
clusters, sampled if memory is not enough for all, form a weighted graph for METIS.

Nodes join the communities of most of their neighbours. Large communities lose votes by
modularity's penalty, or have a maximum size. Nodes move one after the other, each with
the latest choices of all others. In canonical order alone communities of a grid grow
along its rows, so nodes may be due in different passes.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from xnq_dist.core.arrays import Bytes, Floats, Floats32, Ints, Ints32
from xnq_dist.core.kernel import kernel, prefetch
from xnq_dist.core.random_bits import mix
from xnq_dist.graph.csr import Csr
from xnq_dist.graph.sort import SparseRows

if TYPE_CHECKING:
    import scipy.sparse as sp

__all__ = ["FIRST", "contract", "find_clusters", "numbered", "propagate"]

AHEAD = 32
"""Prefetch distance in edges for labels, and half of it for their votes."""
FIRST = 4
"""The pass from which on nodes are due again when a neighbour moved."""
NEVER = 255
"""Pass of a node that is not due."""
Edges = tuple[int, Ints, Ints32]
"""First row, row pointers as offsets in the indices, and indices."""
State = tuple[NDArray[Any], Floats, NDArray[Any], Bytes]
"""Community of each node, (N, 1); strength, (N,); weight and votes of each community,
(C, 2), no votes between two rows; the pass in which each node is due, (N,)."""

TURNS = range(FIRST - 2, FIRST + 1)
"""Two passes over a random half of the nodes each and one over all: without the halves
a grid had a fifth more halo rows, six real graphs from 1 % fewer to 8 % more; with two
more passes nine real graphs and two generated ones had .5 % more."""
SAMPLE_CHUNK = 1 << 18
"""Edges of a chunk while pairs of clusters are sampled, so that it stays in cache."""
EVERY = np.uint64(2**64 - 1)
"""Largest hash: all edges."""


def find_clusters(csr: Csr, weights: Floats, limit: float) -> tuple[Ints32, Floats]:
    """Cluster of every node, shape (N,), and the weight of each, shape (C,).

    No cluster grows beyond the limit, and a node with more weight stays alone. `csr` is
    streamed three times; memory is 46 bytes a node.
    """
    label = np.arange(len(weights), dtype=np.int32)
    propagate(csr, label, weights, TURNS, limit=limit)
    label, clusters = numbered(label)
    return label, np.bincount(label, weights, clusters).astype(np.float64)


def contract(csr: Csr, label: Ints32, clusters: int, share: float) -> sp.csr_array:
    """The graph between clusters of nodes, or nodes, from a share of the edges.

    Each pair is stored in both directions, with the number of edges, of which `share`
    must leave less than 2^31. A share below 1 is drawn by a hash of the edges'
    positions, the same for any chunks. Memory is 64 bytes for each of its edges.
    """
    from scipy import sparse

    limit = np.uint64(int(share * 2**53) << 11) if share < 1 else EVERY
    parts = csr.map(partial(_sample, csr.indptr, label, limit), SAMPLE_CHUNK)
    pairs = np.concatenate([np.empty((2, 0), np.int32), *parts], axis=1)
    del parts
    ones = np.ones(pairs.shape[1], np.int32)
    shape = clusters, clusters
    one_way = sparse.coo_array((ones, tuple(pairs)), shape=shape).tocsr()
    both: sp.csr_array = one_way + one_way.T
    return both


def propagate(
    csr: Csr,
    label: Ints32,
    strength: Floats,
    turns: range,
    penalty: float = 0.0,
    limit: float = np.inf,
    settled: float = 0.0,
    seed: int = 0,
) -> None:
    """Let nodes choose and join communities, in place, in passes over the edges.

    Parameters
    ----------
    label
        Community of each node, below N, shape (N,); overwritten.
    strength
        Weight of each node, shape (N,).
    turns
        Numbers of the passes. A node is first due in a random pass before `FIRST`, and
        from `FIRST` on when a neighbour moved. From `FIRST`: all nodes are due in it.
    penalty
        Votes that a community loses for each unit of its weight and the node's.
    limit
        Maximum weight of a community that nodes join.
    settled
        Passes end with one, from `FIRST` on, that moved at most this many nodes.
    """
    n, first = len(label), turns.start
    rng = np.random.default_rng(seed)
    due = rng.integers(first, max(FIRST, first + 1), n, np.uint8)
    sums = np.stack([np.bincount(label, strength, n), np.zeros(n)], axis=1)
    state = label.reshape(-1, 1), strength, sums, due
    for turn in turns:
        rules = penalty, limit, turn
        chunks = csr.chunks()
        moved = sum(
            _move_rows(rows.edges, rows.weights, state, rules) for rows in chunks
        )
        if turn >= FIRST and moved <= settled:
            break


def numbered(label: Ints32) -> tuple[Ints32, int]:
    """Labels renumbered from 0 in the same order, and their number."""
    used = np.zeros(len(label), np.bool_)
    used[label] = True
    number = np.cumsum(used, dtype=np.int32)
    clusters = int(number[-1])
    number -= 1
    return number[label], clusters


@kernel
def _move_rows(
    edges: Edges, votes: Floats32, state: State, rules: tuple[float, float, int]
) -> int:
    """Let each row choose a community and move to it; return how many moved.

    A community gains its votes less the penalty times its weight and the node's, both
    without the node; a tie keeps the old community, else takes the first. `votes` of
    each edge; empty: one each. `rules`: penalty, limit and number of the pass. Only
    rows that are due up to it choose, and then are due again if a neighbour leaves for
    a community that is not theirs.
    """
    first, indptr, indices = edges
    label, strength, sums, due = state
    penalty, limit, turn = rules
    last, moved = indices.shape[0] - 1, 0
    for row in range(indptr.shape[0] - 1):
        v = first + row
        old, own = label[v, 0], strength[v]
        if due[v] > turn:
            continue
        due[v] = NEVER
        if own > limit:
            continue
        for i in range(indptr[row], indptr[row + 1]):
            prefetch(label, indices[min(i + AHEAD, last)], 0)
            prefetch(sums, label[indices[min(i + AHEAD // 2, last)], 0], 0)
            if indices[i] != v:
                vote = np.float64(votes[i]) if votes.shape[0] > 0 else 1.0
                sums[label[indices[i], 0], 1] += vote
        best, gain = old, sums[old, 1] - penalty * own * (sums[old, 0] - own)
        sums[old, 1] = 0.0
        for i in range(indptr[row], indptr[row + 1]):
            other = label[indices[i], 0]
            weight, sum_ = sums[other]
            more = sum_ - penalty * own * weight
            if sum_ > 0 and more > gain and weight + own <= limit:
                best, gain = other, more
            sums[other, 1] = 0.0
        if best != old:
            sums[old, 0] -= own
            sums[best, 0] += own
            label[v, 0] = best
            moved += 1
            for i in range(indptr[row], indptr[row + 1]):
                u = indices[i]
                if due[u] > FIRST and label[u, 0] != best:
                    due[u] = FIRST
    return moved


def _sample(indptr: Ints, label: Ints32, limit: np.uint64, rows: SparseRows) -> Ints32:
    """The clusters at both ends of edges with a hash up to `limit`, shape (2, n)."""
    ends = np.stack([rows.targets, rows.indices])
    if limit < EVERY:
        begin = int(indptr[rows.first])
        positions: Any = np.arange(begin, begin + ends.shape[1], dtype=np.uint64)
        ends = ends[:, mix.py_func(positions) <= limit]
    clusters: Ints32 = label[ends]
    return clusters[:, clusters[0] != clusters[1]]
