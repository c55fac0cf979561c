"""Clusters of nodes by label propagation, and the contracted graph of the clusters.

A few passes over the edges find most of a community structure. The edges between
clusters, sampled if memory is not enough for all, form a weighted graph. It is
clustered again in the same way until it is small enough for METIS. With a penalty on
heavy clusters instead of maximum sizes, what a node gains is modularity
(`groups.streamed`).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
from numba import njit

from xnq_dist.core.arrays import Bytes, Floats, Floats32, Ints, Ints32
from xnq_dist.core.simd import prefetch
from xnq_dist.graph.csr import NO_WEIGHTS, ArrayCsr, Csr, CsrRows, map_chunks
from xnq_dist.graph.propagation import ROUNDS, Labels, Limits, numbered
from xnq_dist.graph.thread_pool import ThreadPool, batches, max_batch_rows

__all__ = [
    "FIRST",
    "PAIR",
    "choices",
    "coarsen",
    "contract",
    "find_clusters",
    "join_clusters",
]

log = logging.getLogger(__name__)

AHEAD = 32
"""Prefetch distance in edges for labels, and half of it for weights of clusters."""
FIRST = 4
"""A pass from which on nodes are due again when a neighbour joined another cluster."""
NEVER = 255
SAMPLE_CHUNK = 1 << 18
"""Edges of a chunk while pairs of clusters are sampled, so that it stays in cache."""
SAMPLE_MARGIN = 1.05
"""Factor on the estimated number of edges, so that a random sample is not too large."""
MAX_VOTES = 2**31 - 1
"""Votes are summed in int32."""
MIN_SHRINKAGE = 0.95
"""Coarsening ends when it leaves more than this share of the clusters."""
PAIR = 64
"""Maximum bytes for each edge between clusters during contraction."""
NONE_DUE = np.empty(0, np.uint8)
MIX = np.uint64(0x9E3779B97F4A7C15)
MIX_AGAIN = np.uint64(0xBF58476D1CE4E5B9)
EVERY = np.uint64(2**64 - 1)
SPREAD = 2654435769
LOW_BITS = 2**32 - 1


@dataclass(frozen=True)
class Contracted:
    """An undirected graph of clusters; each pair is stored in both directions."""

    indptr: Ints
    """Shape (C + 1,)."""
    indices: Ints32
    counts: Ints
    """Sampled edges between the two clusters."""
    sizes: Ints
    """Nodes of each cluster and their edges, shape (C, 2)."""


def find_clusters(csr: Csr, limits: Limits) -> tuple[Ints32, Ints]:
    """Cluster of every node, shape (N,), and nodes and edges of each, shape (C, 2).

    A node's edges are its in-edges. No cluster grows beyond the limits, and a node with
    more edges stays alone. `csr` is streamed up to `ROUNDS` times; memory is 36 bytes a
    node, and 28 for each edge of the row with most edges.
    """
    degrees = np.diff(csr.indptr)
    return _cluster(csr, np.stack([np.ones_like(degrees), degrees], axis=1), limits)


def _cluster(
    csr: Csr, own: Ints, limits: Limits, weighted: bool = False
) -> tuple[Ints32, Ints]:
    """Clusters of nodes and their sizes; for the arguments see `Labels.move`."""
    labels = Labels(np.arange(len(own), dtype=np.int32), own, own.copy())
    with ThreadPool() as pool:
        for _ in range(ROUNDS):
            moved = labels.move(pool, csr, limits, weighted=weighted)
            log.info("%d nodes joined others", moved)
            if not moved:
                break
    label, clusters = numbered(labels.label)
    return label, Labels.of(label, own, clusters).sizes


def choices(
    pool: ThreadPool,
    csr: Csr,
    weighted: bool,
    node_weight: Ints | Floats,
    max_weight: float,
    label: Ints32,
    weight: Ints | Floats,
    penalty: float = 0.0,
    due: Bytes = NONE_DUE,
    turn: int = 0,
) -> Iterator[tuple[int, Ints32]]:
    """A pass: the first row of every batch and the clusters that its rows choose.

    The caller lets them join, in `label` and the `weight` of each cluster, before it
    asks for the next batch. `due`: the pass in which each node is due, changed in place
    (empty: all are); nodes with neighbours that moved are due again from `FIRST` on.
    """
    choice = np.empty(max_batch_rows(csr), np.int32)

    def choose(_: int, low: int, rows: CsrRows) -> None:
        votes = rows.weights if weighted else NO_WEIGHTS
        columns = label.reshape(-1, 1), weight.reshape(-1, 1)
        choose_clusters(
            *rows.edges,
            votes,
            node_weight,
            max_weight,
            penalty,
            *columns,
            due,
            turn,
            choice[low:],
        )

    def mark(before: Ints32, _: int, low: int, rows: CsrRows) -> None:
        mark_due(*rows.edges, before[low:], label, due)

    for rows in batches(csr):
        pool.share(rows, choose)
        size = len(rows.indptr) - 1
        before = label[rows.first : rows.first + size].copy()
        yield rows.first, choice[:size]
        if len(due):
            pool.share(rows, partial(mark, before))


@njit(cache=True, nogil=True)
def choose_clusters(
    first: int,
    indptr: Ints,
    indices: Ints32,
    votes: Floats32 | Ints,
    node_weight: Ints | Floats,
    max_weight: float,
    penalty: float,
    label: Ints32,
    weight: Ints | Floats,
    due: Bytes,
    turn: int,
    choice: Ints32,
) -> None:
    """Choose a cluster for each row; a tie keeps the old one, else takes the first.

    A cluster gains its votes less `penalty` times its weight and the node's, both
    without the node. `indptr`: offsets of the rows in `indices`. `votes` of each edge;
    empty: one each. Shapes: `node_weight` (N,), `label` (N, 1), `weight` of each
    cluster (C, 1). Only rows with `due` up to `turn` choose, empty: all; then they are
    never due. The result is written to `choice`, the old cluster for other rows.
    """
    rows = indptr.shape[0] - 1
    # Copy the edges of rows that choose, so that the next ones can be prefetched.
    chooses = np.empty(rows, np.int32)
    size, edges, widest = 0, 0, 1
    for row in range(rows):
        v = first + row
        choice[row] = label[v, 0]
        if due.shape[0] > 0:
            if due[v] > turn:
                continue
            due[v] = NEVER
        if node_weight[v] <= max_weight:
            chooses[size] = row
            size += 1
            edges += indptr[row + 1] - indptr[row]
            widest = max(widest, indptr[row + 1] - indptr[row])
    ends = np.empty(edges, np.int32)
    at = 0
    for k in range(size):
        for i in range(indptr[chooses[k]], indptr[chooses[k] + 1]):
            ends[at] = indices[i]
            at += 1
    # A hash table of the clusters of one row stays in cache.
    clusters = np.full(2 * widest, -1, np.int32)
    sums = np.empty(2 * widest, np.float64)
    met = np.empty(widest, np.int32)
    last, at = edges - 1, 0
    for k in range(size):
        row = chooses[k]
        v, old, own = first + row, choice[row], node_weight[first + row]
        begin, degree = indptr[row], indptr[row + 1] - indptr[row]
        count, kept = 0, 0.0
        for i in range(degree):
            prefetch(label, ends[min(at + AHEAD, last)], 0)
            prefetch(weight, label[ends[min(at + AHEAD // 2, last)], 0], 0)
            other = label[ends[at], 0]
            loop = ends[at] == v
            at += 1
            if loop:
                continue
            vote = np.float64(votes[begin + i]) if votes.shape[0] > 0 else 1.0
            if other == old:
                kept += vote
                continue
            slot = (((other * SPREAD) & LOW_BITS) * (2 * degree)) >> 32
            while clusters[slot] != other and clusters[slot] >= 0:
                slot = slot + 1 if slot + 1 < 2 * degree else 0
            if clusters[slot] < 0:
                clusters[slot], sums[slot] = other, 0.0
                met[count] = slot
                count += 1
            sums[slot] += vote
        gain = kept - penalty * own * (weight[old, 0] - own)
        for i in range(count):
            slot = met[i]
            other = clusters[slot]
            clusters[slot] = -1
            more = sums[slot] - penalty * own * weight[other, 0]
            fits = weight[other, 0] + own <= max_weight
            if sums[slot] > 0 and more > gain and fits:
                choice[row], gain = other, more


@njit(cache=True, nogil=True)
def mark_due(
    first: int, indptr: Ints, indices: Ints32, before: Ints32, label: Ints32, due: Bytes
) -> None:
    """Nodes are due if a neighbour left cluster `before` for one that is not theirs."""
    for row in range(indptr.shape[0] - 1):
        joined = label[first + row]
        if joined != before[row]:
            for i in range(indptr[row], indptr[row + 1]):
                u = indices[i]
                if due[u] > FIRST and label[u] != joined:
                    due[u] = FIRST


@njit(cache=True, nogil=True)
def join_clusters(
    first: int,
    choice: Ints32,
    node_weight: Ints | Floats,
    max_weight: float,
    label: Ints32,
    weight: Ints | Floats,
) -> int:
    """Let rows join their chosen cluster within the limit; return how many moved."""
    moved = 0
    for row in range(choice.shape[0]):
        v, best = first + row, choice[row]
        old = label[v]
        if best != old and weight[best] + node_weight[v] <= max_weight:
            weight[old] -= node_weight[v]
            weight[best] += node_weight[v]
            label[v] = best
            moved += 1
    return moved


def coarsen(small: Contracted, limits: Limits, edges: int) -> tuple[Contracted, Ints32]:
    """Cluster a contracted graph again until it has at most `edges` entries.

    When clusters stop growing, only the heaviest edges are kept. No cluster grows
    beyond the limits. Returns the last graph, and the cluster in it of each cluster
    of `small`.
    """
    place = np.arange(len(small.sizes), dtype=np.int32)
    while len(small.indices) > edges:
        before = len(small.sizes)
        adjacency = ArrayCsr(small.indptr, small.indices, small.counts)
        label, sizes = _cluster(adjacency, small.sizes, limits, weighted=True)
        place = label[place]
        ends = label[np.repeat(np.arange(before), np.diff(small.indptr))]
        others = label[small.indices]
        upward = ends < others
        pairs = ends[upward].astype(np.int64) * len(sizes) + others[upward]
        del ends, others
        small = _between(pairs, small.counts[upward], sizes)
        if len(sizes) > MIN_SHRINKAGE * before:
            break
    return _heaviest(small, edges), place


def _heaviest(small: Contracted, edges: int) -> Contracted:
    """The graph with its heaviest pairs only, at most `edges` entries."""
    if len(small.indices) <= edges:
        return small
    clusters = len(small.sizes)
    low = np.repeat(np.arange(clusters), np.diff(small.indptr))
    pairs = np.flatnonzero(low < small.indices)
    heavy = np.argsort(-small.counts[pairs], kind="stable")
    pairs = pairs[heavy[: edges // 2]]
    return _between(
        low[pairs] * clusters + small.indices[pairs], small.counts[pairs], small.sizes
    )


def _between(pairs: Ints, counts: Ints | None, sizes: Ints) -> Contracted:
    """The graph of pairs ``low * C + high`` with their counts (None: one each)."""
    clusters = len(sizes)
    if counts is None:
        pairs.sort()
    else:
        order = np.argsort(pairs, kind="stable")
        pairs, counts = pairs[order], counts[order]
        del order
    starts = np.flatnonzero(np.diff(pairs, prepend=-1))
    if counts is None:
        sums = np.diff(starts, append=len(pairs))
    elif len(starts):
        sums = np.add.reduceat(counts, starts)
    else:
        sums = counts
    low, high = np.divmod(pairs[starts], clusters)
    low, high = low.astype(np.int32), high.astype(np.int32)
    degrees = np.bincount(low, minlength=clusters)
    degrees += np.bincount(high, minlength=clusters)
    indptr = np.concatenate([[0], np.cumsum(degrees)]).astype(np.int64)
    indices = np.empty(2 * len(low), np.int32)
    both = np.empty(2 * len(low), np.int64)
    fill_both(low, high, sums, indptr[:-1].copy(), indices, both)
    return Contracted(indptr, indices, both, sizes)


@njit(cache=True, nogil=True)
def fill_both(
    low: Ints32, high: Ints32, sums: Ints, at: Ints, indices: Ints32, counts: Ints
) -> None:
    """Add each pair to the rows of both ends; `at` is the next free entry of a row."""
    for pair in range(low.shape[0]):
        a, b = low[pair], high[pair]
        indices[at[a]], counts[at[a]] = b, sums[pair]
        at[a] += 1
        indices[at[b]], counts[at[b]] = a, sums[pair]
        at[b] += 1


def contract(csr: Csr, label: Ints32, sizes: Ints, keep: int) -> Contracted:
    """The graph between the clusters of `find_clusters`, from about `keep` edges.

    If there are more edges between clusters, a sample is drawn by a hash of the two
    nodes: both directions of an edge are kept or left out together, for any chunks.
    Memory is `PAIR` bytes for each kept edge.
    """
    keep = min(keep, MAX_VOTES)

    # First assume that all edges are between clusters; if the sample is then less than
    # half as large as allowed, sample again with the estimated number.
    edges = max(int(csr.indptr[-1]), 1)
    parts: list[Ints] = []
    for _ in range(2):
        limit = np.uint64(int(keep / edges * 2**53) << 11) if keep < edges else EVERY
        sample = partial(sample_rows, label, len(sizes), limit)
        parts = map_chunks(csr, sample, SAMPLE_CHUNK)
        size = sum(map(len, parts))
        if limit == EVERY or 2 * size > keep:
            break
        edges = max(int(size / keep * edges * SAMPLE_MARGIN), 1)
    parts.append(np.empty(0, np.int64))
    pairs = np.concatenate(parts)
    del parts
    return _between(pairs, None, sizes)


def sample_rows(label: Ints32, clusters: int, limit: np.uint64, rows: CsrRows) -> Ints:
    """The pairs of clusters of some rows' edges; see `sample_pairs`."""
    pairs = np.empty(len(rows.indices), np.int64)
    size = sample_pairs(*rows.edges, label, clusters, limit, pairs)
    return pairs[:size].copy()


@njit(cache=True, nogil=True)
def sample_pairs(
    first: int,
    indptr: Ints,
    indices: Ints32,
    label: Ints32,
    clusters: int,
    limit: np.uint64,
    pairs: Ints,
) -> int:
    """Write ``low * C + high`` of edges with a hash up to `limit`; return how many."""
    size = 0
    every = limit == EVERY
    for row in range(indptr.shape[0] - 1):
        v = first + row
        for edge in range(indptr[row], indptr[row + 1]):
            u = indices[edge]
            ends = (np.uint64(min(u, v)) << np.uint64(32)) | np.uint64(max(u, v))
            ends = (ends ^ (ends >> np.uint64(30))) * MIX
            ends = (ends ^ (ends >> np.uint64(27))) * MIX_AGAIN
            ends ^= ends >> np.uint64(31)
            # Compare labels last: most edges are not in a small sample.
            if every or ends <= limit:
                a, b = label[v], label[u]
                if a != b:
                    pairs[size] = np.int64(min(a, b)) * clusters + max(a, b)
                    size += 1
    return size
