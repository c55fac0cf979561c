"""Clusters of nodes by label propagation, and the small graph between them.

A node joins the cluster that most of its in-neighbours are in, while that cluster is
below a given weight; a few passes over the edges find most of a community structure.
The edges between clusters, sampled where they are beyond the memory, are a weighted
graph that is clustered again in the same way, until it is small enough for METIS. The
size limit is the one of Meyerhenke, Sanders and Schulz ("Partitioning complex networks
via size-constrained clustering", SEA 2014).
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import partial

import numpy as np
from numba import njit

from xnq_dist.core.simd import prefetch
from xnq_dist.graph.arrays import Ints, Ints32
from xnq_dist.graph.csr import NO_WEIGHTS, ArrayCsr, Csr, CsrRows, map_chunks
from xnq_dist.graph.thread_pool import Crew, batches, most_rows

__all__ = ["PAIR", "coarsen", "contract", "find_clusters"]

log = logging.getLogger(__name__)

ROUNDS = 5
"""Passes of label propagation at most."""
STILL = 0.0
"""A pass in which no more than this share of the nodes moved is the last one."""
AHEAD = 32
"""Edges whose labels are on their way from memory."""
SAMPLED = 1 << 18
"""Edges at a time while pairs of clusters are sampled: they stay in the cache."""
ROOM = 1.05
"""Edges are sampled as if there were so many times more of them: chance has room."""
MOST_VOTES = 2**31 - 1
"""Votes are summed in int32."""
GROWS = 0.95
"""Clustering again ends when it leaves more than this share of the clusters."""
PAIR = 64
"""Bytes of an edge between clusters while they are contracted, at most."""
NO_COUNTS = np.empty(0, np.int64)
MIX = np.uint64(0x9E3779B97F4A7C15)
MIX_AGAIN = np.uint64(0xBF58476D1CE4E5B9)
EVERY = np.uint64(2**64 - 1)


@dataclass(frozen=True)
class Contracted:
    """An undirected graph of clusters; each pair is there in both directions."""

    indptr: Ints
    """Shape (C + 1,)."""
    indices: Ints32
    counts: Ints
    """Edges between the two clusters, of those that were sampled."""
    weights: Ints
    """Weight of each cluster, shape (C,)."""


def find_clusters(csr: Csr, base: int, most: int) -> tuple[Ints32, int]:
    """Cluster of every node, shape (N,), and the number of clusters, C.

    A node weighs its in-degree and `base`; nobody joins a cluster beyond the weight
    `most`, and a heavier node stays alone. `csr` is streamed `ROUNDS` times at most;
    memory is 24 bytes a node, and 4 for each thread. Batches of nodes take their turns
    in canonical order; those of a batch choose at the same time, then join one by one:
    the answer is the same for any number of threads.
    """
    own = np.diff(csr.indptr) + base
    return _propagate(csr, NO_COUNTS, own, most)


def _propagate(csr: Csr, counts: Ints, own: Ints, most: int) -> tuple[Ints32, int]:
    """Clusters of nodes that weigh `own`; edges have one vote or their counts."""
    n = len(own)
    label, clusters = np.arange(n, dtype=np.int32), n
    weight = own.copy()
    with Crew() as crew:
        for _ in range(ROUNDS):
            moved = _one_pass(crew, csr, counts, own, most, label, weight)
            label, clusters = _numbered(label)
            weight = np.bincount(label, own, clusters).astype(np.int64)
            log.info("%d nodes joined others, %d clusters", moved, clusters)
            if moved <= STILL * n:
                break
    return label, clusters


def _one_pass(
    crew: Crew,
    csr: Csr,
    counts: Ints,
    own: Ints,
    most: int,
    label: Ints32,
    weight: Ints,
) -> int:
    """Every node's turn, in place; how many moved."""
    tallies = [np.zeros(len(weight), np.int32) for _ in range(crew.threads)]
    choice = np.empty(most_rows(csr), np.int32)

    def choose(thread: int, low: int, rows: CsrRows) -> None:
        begin = int(csr.indptr[rows.first] - rows.indptr[0])
        choose_clusters(
            *rows.edges,
            counts[begin : begin + len(rows.indices)],
            own,
            most,
            label.reshape(-1, 1),
            weight,
            tallies[thread],
            choice[low:],
        )

    moved = 0
    for rows in batches(csr):
        crew.share(rows, choose)
        chosen = choice[: len(rows.indptr) - 1]
        moved += join_clusters(rows.first, chosen, own, most, label, weight)
    return moved


def _numbered(label: Ints32) -> tuple[Ints32, int]:
    """Labels 0, 1, ... in the same order, and how many there are."""
    there = np.zeros(len(label), np.bool_)
    there[label] = True
    number = np.cumsum(there, dtype=np.int32)
    clusters = int(number[-1])
    number -= 1
    return number[label], clusters


@njit(cache=True, nogil=True)
def choose_clusters(
    first: int,
    indptr: Ints,
    indices: Ints32,
    counts: Ints,
    own: Ints,
    most: int,
    label: Ints32,
    weight: Ints,
    tally: Ints32,
    choice: Ints32,
) -> None:
    """What some nodes would join; a tie keeps the old cluster, else the first met.

    `indptr`: of the rows, as places in `indices`. `counts`: votes of each edge, below
    2^31 in sum; empty: one each. `own` (N,), `label` (N, 1), `weight` of each cluster,
    `tally`: zeros, one a cluster. The cluster of each row is written to `choice`.
    """
    counted = counts.shape[0] > 0
    rows = indptr.shape[0] - 1
    widest = 0
    for row in range(rows):
        widest = max(widest, indptr[row + 1] - indptr[row])
    met = np.empty(widest, np.int32)
    last = indices.shape[0] - 1
    for row in range(rows):
        v = first + row
        old = label[v, 0]
        choice[row] = old
        begin, size = indptr[row], indptr[row + 1] - indptr[row]
        if own[v] > most:
            continue
        for i in range(size):
            prefetch(label, indices[min(begin + i + AHEAD, last)], 0)
            met[i] = label[indices[begin + i], 0]
        for i in range(size):
            if indices[begin + i] != v:
                tally[met[i]] += counts[begin + i] if counted else 1
        votes = tally[old]
        for i in range(size):
            # Counted once: where it is met again it has no votes left.
            other, count = met[i], tally[met[i]]
            tally[other] = 0
            if count > votes and weight[other] + own[v] <= most:
                choice[row] = other
                votes = count


@njit(cache=True, nogil=True)
def join_clusters(
    first: int, choice: Ints32, own: Ints, most: int, label: Ints32, weight: Ints
) -> int:
    """Let some nodes join what they chose while there is room; how many did."""
    moved = 0
    for row in range(choice.shape[0]):
        v, best = first + row, choice[row]
        old = label[v]
        if best != old and weight[best] + own[v] <= most:
            weight[old] -= own[v]
            weight[best] += own[v]
            label[v] = best
            moved += 1
    return moved


def coarsen(small: Contracted, most: int, edges: int) -> tuple[Contracted, Ints32]:
    """Cluster a contracted graph again until it has at most `edges` entries.

    Where clusters no longer grow the graph keeps its heaviest edges. Nobody joins a
    cluster beyond the weight `most`. Returns the last graph, and the cluster in it of
    each cluster of `small`.
    """
    place = np.arange(len(small.weights), dtype=np.int32)
    while len(small.indices) > edges:
        before = len(small.weights)
        whole = ArrayCsr(small.indptr, small.indices, NO_WEIGHTS)
        label, clusters = _propagate(whole, small.counts, small.weights, most)
        place = label[place]
        ends = label[np.repeat(np.arange(before), np.diff(small.indptr))]
        others = label[small.indices]
        upward = ends < others
        pairs = ends[upward].astype(np.int64) * clusters + others[upward]
        del ends, others
        weights = np.bincount(label, small.weights, clusters).astype(np.int64)
        small = _between(pairs, small.counts[upward], weights)
        if clusters > GROWS * before:
            break
    return _heaviest(small, edges), place


def _heaviest(small: Contracted, edges: int) -> Contracted:
    """The same graph with its heaviest pairs only, `edges` entries at most."""
    if len(small.indices) <= edges:
        return small
    clusters = len(small.weights)
    low = np.repeat(np.arange(clusters), np.diff(small.indptr))
    pairs = np.flatnonzero(low < small.indices)
    heavy = np.argsort(-small.counts[pairs], kind="stable")
    pairs = pairs[heavy[: edges // 2]]
    return _between(
        low[pairs] * clusters + small.indices[pairs], small.counts[pairs], small.weights
    )


def _between(pairs: Ints, counts: Ints | None, weights: Ints) -> Contracted:
    """A graph of pairs ``low * C + high`` with their counts (one each if None)."""
    clusters = len(weights)
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
    return Contracted(indptr, indices, both, weights)


@njit(cache=True, nogil=True)
def fill_both(
    low: Ints32, high: Ints32, sums: Ints, at: Ints, indices: Ints32, counts: Ints
) -> None:
    """Put each pair into the rows of both its ends; `at` is where rows go on."""
    for pair in range(low.shape[0]):
        a, b = low[pair], high[pair]
        indices[at[a]], counts[at[a]] = b, sums[pair]
        at[a] += 1
        indices[at[b]], counts[at[b]] = a, sums[pair]
        at[b] += 1


def contract(
    csr: Csr, label: Ints32, clusters: int, base: int, keep: int
) -> Contracted:
    """The graph between the clusters of `find_clusters`, from about `keep` edges.

    Of more edges between clusters a sample is taken, by a hash of the two nodes: both
    directions of an edge stay or go together, whatever the chunks. `PAIR` bytes an edge
    that is kept; `base` is what a node weighs besides its in-degree.
    """
    keep = min(keep, MOST_VOTES)

    def sample(limit: np.uint64, rows: CsrRows) -> Ints:
        found = np.empty(len(rows.indices), np.int64)
        size = sample_pairs(*rows.edges, label, clusters, limit, found)
        return found[:size].copy()

    # As if all edges were between clusters; where hardly half of them are, once more.
    edges = max(int(csr.indptr[-1]), 1)
    parts: list[Ints] = []
    for _ in range(2):
        limit = np.uint64(int(keep / edges * 2**53) << 11) if keep < edges else EVERY
        parts = map_chunks(csr, partial(sample, limit), SAMPLED)
        size = sum(map(len, parts))
        if limit == EVERY or 2 * size > keep:
            break
        edges = max(int(size / keep * edges * ROOM), 1)
    parts.append(np.empty(0, np.int64))
    pairs = np.concatenate(parts)
    del parts
    weights = np.bincount(label, np.diff(csr.indptr), clusters).astype(np.int64)
    weights += base * np.bincount(label, minlength=clusters)
    return _between(pairs, None, weights)


@njit(cache=True, nogil=True)
def sample_pairs(
    first: int,
    indptr: Ints,
    indices: Ints32,
    label: Ints32,
    clusters: int,
    limit: np.uint64,
    found: Ints,
) -> int:
    """Pairs of clusters, ``low * C + high``, of the edges whose hash is in `limit`."""
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
            # Labels are looked at last: most edges are not in a small sample.
            if every or ends <= limit:
                a, b = label[v], label[u]
                if a != b:
                    found[size] = np.int64(min(a, b)) * clusters + max(a, b)
                    size += 1
    return size
