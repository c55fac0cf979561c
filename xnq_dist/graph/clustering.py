"""Clusters of nodes by label propagation, and the contracted graph of the clusters.

A few passes over the edges find most of a community structure. The edges between
clusters, sampled if memory is not enough for all, form a weighted graph. It is
clustered again in the same way until it is small enough for METIS.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
from numba import njit

from xnq_dist.core.arrays import Floats, Ints, Ints32, offsets_of
from xnq_dist.core.random_bits import mix
from xnq_dist.core.threads import map_threads
from xnq_dist.graph.csr import ArrayCsr, Csr, spans
from xnq_dist.graph.moves import FIRST, Communities, numbered

__all__ = ["PAIR", "coarsen", "contract", "find_clusters"]

PASSES = 3
"""Maximum number of passes: after 5 instead of 3, five real graphs had from 3 % fewer
to 3 % more halo rows, a generated one 5 % more."""
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
EVERY = np.uint64(2**64 - 1)


@dataclass(frozen=True)
class Contracted:
    """An undirected graph of clusters; each pair is stored in both directions."""

    indptr: Ints
    """Shape (C + 1,)."""
    indices: Ints32
    counts: Ints
    """Sampled edges between the two clusters."""
    sizes: Floats
    """Sum of the nodes' weights in each cluster, shape (C,)."""


def find_clusters(csr: Csr, weights: Floats, limit: float) -> tuple[Ints32, Floats]:
    """Cluster of every node, shape (N,), and the weight of each, shape (C,).

    No cluster grows beyond the limit, and a node with more weight stays alone. `csr` is
    streamed up to `PASSES` times; memory is 30 bytes a node, and 28 for each edge of
    the row with most edges.
    """
    label = np.arange(len(weights), dtype=np.int32)
    due = np.zeros(len(weights), np.uint8)
    nodes = Communities(label, weights, weights.copy(), due, 0.0, limit)
    for turn in range(FIRST, FIRST + PASSES):
        if not nodes.move(csr, turn):
            break
    label, clusters = numbered(label)
    return label, np.bincount(label, weights, clusters).astype(np.float64)


def coarsen(small: Contracted, limit: float, edges: int) -> tuple[Contracted, Ints32]:
    """Cluster a contracted graph again until it has at most `edges` entries.

    When clusters stop growing, only the heaviest edges are kept. No cluster grows
    beyond the limit. Returns the last graph, and the cluster in it of each cluster
    of `small`.
    """
    place = np.arange(len(small.sizes), dtype=np.int32)
    while len(small.indices) > edges:
        before = len(small.sizes)
        votes = small.counts.astype(np.float32)
        adjacency = ArrayCsr(small.indptr, small.indices, votes)
        label, sizes = find_clusters(adjacency, small.sizes, limit)
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


def _between(pairs: Ints, counts: Ints | None, sizes: Floats) -> Contracted:
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
    indptr = offsets_of(degrees)
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


def contract(csr: Csr, label: Ints32, sizes: Floats, keep: int) -> Contracted:
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
        sample = partial(sample_rows, label, len(sizes), limit, csr)
        parts = map_threads(sample, list(spans(csr.indptr, SAMPLE_CHUNK)))
        size = sum(map(len, parts))
        if limit == EVERY or 2 * size > keep:
            break
        edges = max(int(size / keep * edges * SAMPLE_MARGIN), 1)
    parts.append(np.empty(0, np.int64))
    pairs = np.concatenate(parts)
    del parts
    return _between(pairs, None, sizes)


def sample_rows(
    label: Ints32, clusters: int, limit: np.uint64, csr: Csr, span: tuple[int, int]
) -> Ints:
    """The pairs of clusters of some rows' edges; see `sample_pairs`."""
    rows = csr.rows(*span)
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
            # Compare labels last: most edges are not in a small sample.
            if every or mix(ends) <= limit:
                a, b = label[v], label[u]
                if a != b:
                    pairs[size] = np.int64(min(a, b)) * clusters + max(a, b)
                    size += 1
    return size
