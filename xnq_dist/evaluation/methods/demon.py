"""DEMON: overlapping communities from the ego network of each node.

References
----------
M. Coscia, G. Rossetti, F. Giannotti, D. Pedreschi, "DEMON: a local-first discovery
method for overlapping communities", ACM SIGKDD Conference on Knowledge Discovery and
Data Mining (KDD), 2012.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from xnq_dist.core.blocks import for_each_block
from xnq_dist.core.random_bits import Purpose, stream
from xnq_dist.quantify.interface import Communities

if TYPE_CHECKING:
    import scipy.sparse as sp

__all__ = ["MIN_SIZE", "OVERLAP", "demon", "visiting_order"]

MIN_SIZE = 3
"""Local communities of this size or smaller, including the ego, are dropped."""
OVERLAP = 0.25
"""Minimum shared part of the smaller community for two communities to be merged."""
SWEEPS = 100
"""Maximum number of sweeps of label propagation in an ego network."""
BLOCK = 1024
"""Minimum number of egos in a block, since each block allocates an array of nodes."""


def demon(
    adjacency: sp.csr_array[Any],
    seed: int,
    overlap: float = OVERLAP,
    min_size: int = MIN_SIZE,
    threads: int = 1,
) -> Communities:
    """Detect overlapping communities; this process must hold all edges.

    The graph is treated as undirected, without weights and self-loops. For every node
    (ego), label propagation runs on the network of its neighbours without the ego. The
    ego is added to each resulting community, and communities larger than `min_size` are
    kept. Egos are processed in canonical order, and an ego's communities by their first
    member in visiting order. Each community is merged into the oldest one in the pool
    with which it shares at least `overlap` of the smaller of the two; otherwise it is
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
    overlap
        Minimum overlap for a merge, in (0, 1].
    min_size
        Largest size of dropped communities, at least 1.
    threads
        Number of threads; the result does not depend on it.

    Returns
    -------
    The communities, oldest first; they need not cover all nodes.
    """
    n_nodes = adjacency.shape[0]
    rank = visiting_order(n_nodes, seed)
    indptr, indices = _ranked(adjacency, rank)
    sizes: list[NDArray[np.int64]] = []
    members: list[NDArray[np.int32]] = []
    blocks: dict[int, tuple[NDArray[np.int64], NDArray[np.int32]]] = {}
    egos = rank.astype(np.int32)

    def work(first: int, last: int) -> None:
        local = np.full(n_nodes, -1, np.int32)
        blocks[first] = ego_communities(
            indptr, indices, egos[first:last], local, min_size, SWEEPS
        )

    for_each_block(n_nodes, threads, work, max(BLOCK, n_nodes // 64))
    for first in sorted(blocks):
        block_sizes, block_members = blocks.pop(first)
        sizes.append(block_sizes)
        members.append(block_members)
    lengths = np.concatenate([np.empty(0, np.int64), *sizes])
    joined = np.concatenate([np.empty(0, np.int32), *members])
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    head, following, owner, pool = merge(offsets, joined, n_nodes, overlap)
    return Communities(*listed(head, following, owner, pool, rank))


def visiting_order(n_nodes: int, seed: int) -> NDArray[np.int64]:
    """Position of every node in the visiting order, shape (N,)."""
    return stream(seed, Purpose.VISITING_ORDER, 0).permutation(n_nodes)


def _ranked(
    adjacency: sp.csr_array[Any], rank: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """CSR arrays of neighbours in either direction, with nodes renumbered by rank."""
    import scipy.sparse as sp

    rows = np.repeat(rank, np.diff(adjacency.indptr))
    columns = rank[adjacency.indices]
    apart = rows != columns
    pairs = sp.coo_array(
        (np.ones(int(apart.sum()), np.int8), (rows[apart], columns[apart])),
        shape=adjacency.shape,
    ).tocsr()
    # Counts of duplicate edges could overflow int8.
    pairs.data[:] = 1
    both = (pairs + pairs.T).tocsr()
    both.sort_indices()
    return both.indptr.astype(np.int64), both.indices.astype(np.int32)


@njit(cache=True, nogil=True)
def propagate_labels(
    indptr: NDArray[np.int64],
    indices: NDArray[np.int32],
    labels: NDArray[np.int32],
    votes: NDArray[np.int32],
    sweeps: int,
) -> None:
    """Label propagation on one small network, with nodes visited in their order.

    `labels`, shape (m,), is overwritten by the index of each label's first owner.
    `votes` is a work array of at least m zeros, which are zeros again afterwards.
    """
    count = indptr.shape[0] - 1
    for node in range(count):
        labels[node] = node
    for _ in range(sweeps):
        changed = False
        for node in range(count):
            highest = 0
            for i in range(indptr[node], indptr[node + 1]):
                label = labels[indices[i]]
                votes[label] += 1
                highest = max(highest, votes[label])
            if highest and votes[labels[node]] < highest:
                best = count
                for i in range(indptr[node], indptr[node + 1]):
                    label = labels[indices[i]]
                    if votes[label] == highest and label < best:
                        best = label
                labels[node] = best
                changed = True
            # Clear all counted labels; the node itself is not among its neighbours.
            for i in range(indptr[node], indptr[node + 1]):
                votes[labels[indices[i]]] = 0
        if not changed:
            break


@njit(cache=True, nogil=True)
def ego_communities(
    indptr: NDArray[np.int64],
    indices: NDArray[np.int32],
    egos: NDArray[np.int32],
    local: NDArray[np.int32],
    min_size: int,
    sweeps: int,
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Communities around each ego: sizes by ego, and members with the ego last.

    Neighbours must be ascending without self-loops, with every edge in both rows.
    `local` is a work array of shape (N,) filled with -1, as it is again afterwards.
    """
    widest = total = 0
    for ego in egos:
        degree = indptr[ego + 1] - indptr[ego]
        widest = max(widest, degree)
        total += 2 * degree
    inner_indptr = np.zeros(widest + 1, np.int64)
    inner = np.empty(1024, np.int32)
    labels = np.empty(widest, np.int32)
    votes = np.zeros(widest + 1, np.int32)
    places = np.empty(widest, np.int64)
    sizes = np.empty(total, np.int64)
    members = np.empty(total, np.int32)
    n_found, written = 0, 0
    for ego in egos:
        near = indices[indptr[ego] : indptr[ego + 1]]
        count = near.shape[0]
        if count < min_size:
            continue
        for i in range(count):
            local[near[i]] = i
        edges = 0
        for i in range(count):
            begin, end = indptr[near[i]], indptr[near[i] + 1]
            if edges + end - begin > inner.shape[0]:
                larger = np.empty(2 * (edges + end - begin), np.int32)
                larger[:edges] = inner[:edges]
                inner = larger
            for j in range(begin, end):
                if local[indices[j]] >= 0:
                    inner[edges] = local[indices[j]]
                    edges += 1
            inner_indptr[i + 1] = edges
        for i in range(count):
            local[near[i]] = -1
        propagate_labels(inner_indptr[: count + 1], inner, labels, votes, sweeps)
        # Sizes by label, then positions in the order of each community's first member.
        for i in range(count):
            votes[labels[i]] += 1
            places[i] = -1
        for i in range(count):
            label = labels[i]
            if votes[label] + 1 <= min_size:
                continue
            if places[label] < 0:
                places[label] = written
                sizes[n_found] = votes[label] + 1
                n_found += 1
                written += votes[label] + 1
                members[written - 1] = ego
            members[places[label]] = near[i]
            places[label] += 1
        for i in range(count):
            votes[labels[i]] = 0
    return sizes[:n_found].copy(), members[:written].copy()


@njit(cache=True, nogil=True)
def merge(
    offsets: NDArray[np.int64], members: NDArray[np.int32], n_nodes: int, overlap: float
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int32], NDArray[np.int64]]:
    """Merge each candidate into the oldest community that it overlaps with.

    The pool is stored as a linked list of communities per node, so that a candidate is
    compared only with communities that share a node with it. Returns ``head``,
    ``following`` and ``owner``, shapes (N,), (M,), (M,): ``owner[head[v]]`` is a
    community of node v, and ``following`` is the next entry of its list or -1. Also
    returns the size of each community in the pool, oldest first.
    """
    capacity = members.shape[0]
    head = np.full(n_nodes, -1, np.int64)
    following = np.empty(capacity, np.int64)
    owner = np.empty(capacity, np.int32)
    candidates = offsets.shape[0] - 1
    pool = np.empty(candidates, np.int64)
    shared = np.zeros(candidates, np.int64)
    touched = np.empty(candidates, np.int64)
    n_found, used = 0, 0
    for candidate in range(candidates):
        inside = members[offsets[candidate] : offsets[candidate + 1]]
        met = 0
        for node in inside:
            at = head[node]
            while at >= 0:
                community = owner[at]
                if shared[community] == 0:
                    touched[met] = community
                    met += 1
                shared[community] += 1
                at = following[at]
        target = n_found
        for i in range(met):
            community = touched[i]
            smaller = min(inside.shape[0], pool[community])
            if community < target and shared[community] >= overlap * smaller:
                target = community
            shared[community] = 0
        if target == n_found:
            pool[n_found] = 0
            n_found += 1
        for node in inside:
            at = head[node]
            while at >= 0 and owner[at] != target:
                at = following[at]
            if at < 0:
                owner[used] = target
                following[used] = head[node]
                head[node] = used
                pool[target] += 1
                used += 1
    return head, following, owner, pool[:n_found].copy()


@njit(cache=True, nogil=True)
def listed(
    head: NDArray[np.int64],
    following: NDArray[np.int64],
    owner: NDArray[np.int32],
    pool: NDArray[np.int64],
    rank: NDArray[np.int64],
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Offsets and members (ascending canonical indexes) of the pool's communities."""
    offsets = np.zeros(pool.shape[0] + 1, np.int64)
    offsets[1:] = np.cumsum(pool)
    place = offsets[:-1].copy()
    members = np.empty(offsets[-1], np.int64)
    for node in range(rank.shape[0]):
        at = head[rank[node]]
        while at >= 0:
            community = owner[at]
            members[place[community]] = node
            place[community] += 1
            at = following[at]
    return offsets, members
