"""Clusters of nodes by label propagation, and the small graph between them.

A node joins the cluster that most of its in-neighbours are in, while that cluster is
below a given weight; a few passes over the edges find most of a community structure.
The edges between clusters, sampled where they are beyond the memory, are a weighted
graph that is clustered again in the same way, until it is small enough for METIS. The
size limit is the one of Meyerhenke, Sanders and Schulz ("Partitioning complex networks
via size-constrained clustering", SEA 2014).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

from xnq_dist.graph.csr import Csr

__all__ = ["PAIR", "Contracted", "coarsen", "contract", "find_clusters"]

ROUNDS = 5
"""Passes of label propagation: the fifth still moves a few per cent of the nodes."""
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

    indptr: NDArray[np.int64]
    """Shape (C + 1,)."""
    indices: NDArray[np.int32]
    counts: NDArray[np.int64]
    """Edges between the two clusters, of those that were sampled."""
    weights: NDArray[np.int64]
    """Weight of each cluster, shape (C,)."""


def find_clusters(csr: Csr, base: int, most: int) -> tuple[NDArray[np.int32], int]:
    """Cluster of every node, shape (N,), and the number of clusters, C.

    Parameters
    ----------
    csr
        Canonical adjacency; streamed `ROUNDS` times.
    base
        What a node weighs beside its in-degree.
    most
        Weight beyond which nobody joins a cluster. A heavier node stays alone.

    Notes
    -----
    28 bytes a node. Nodes take their turns in canonical order and see each other's
    latest choice, so that the answer does not depend on the chunks.
    """
    own = np.diff(csr.indptr) + base
    label = np.arange(len(own), dtype=np.int32)
    weight = own.copy()
    tally = np.zeros(len(own), np.int64)
    for _ in range(ROUNDS):
        for rows in csr.chunks():
            join_clusters(
                rows.first,
                rows.indptr,
                rows.indices,
                NO_COUNTS,
                own,
                most,
                label,
                weight,
                tally,
            )
    return _numbered(label)


def _numbered(label: NDArray[np.int32]) -> tuple[NDArray[np.int32], int]:
    """Labels 0, 1, ... in the same order, and how many there are."""
    there = np.zeros(len(label), np.bool_)
    there[label] = True
    number = np.cumsum(there, dtype=np.int32)
    return number[label] - 1, int(number[-1])


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def join_clusters(
    first: int,
    indptr: NDArray[np.int64],
    indices: NDArray[np.int32],
    counts: NDArray[np.int64],
    own: NDArray[np.int64],
    most: int,
    label: NDArray[np.int32],
    weight: NDArray[np.int64],
    tally: NDArray[np.int64],
) -> None:
    """One turn of some rows; a tie keeps the old cluster, else the first one met.

    Parameters
    ----------
    counts
        Votes of each edge; empty: one each.
    own
        Weight of each node, shape (N,).
    label, weight
        Cluster of each node and weight of each cluster so far, shape (N,).
    tally
        Zeros, shape (N,).
    """
    counted = counts.shape[0] > 0
    for row in range(indptr.shape[0] - 1):
        v = first + row
        if own[v] > most:
            continue
        old = label[v]
        for edge in range(indptr[row], indptr[row + 1]):
            if indices[edge] != v:
                tally[label[indices[edge]]] += counts[edge] if counted else 1
        best, votes = old, tally[old]
        for edge in range(indptr[row], indptr[row + 1]):
            other = label[indices[edge]]
            if tally[other] > votes and weight[other] + own[v] <= most:
                best, votes = other, tally[other]
        for edge in range(indptr[row], indptr[row + 1]):
            tally[label[indices[edge]]] = 0
        if best != old:
            weight[old] -= own[v]
            weight[best] += own[v]
            label[v] = best


def coarsen(
    small: Contracted, most: int, edges: int
) -> tuple[Contracted, NDArray[np.int32]]:
    """Cluster a contracted graph again until it has few edges; clusters of clusters.

    Parameters
    ----------
    most
        Weight beyond which nobody joins a cluster.
    edges
        Entries of `indices` that are few enough. Where clusters no longer grow the
        graph keeps its heaviest edges.

    Returns
    -------
    Contracted, NDArray[np.int32]
        The last graph, and the cluster in it of each cluster of `small`.
    """
    place = np.arange(len(small.weights), dtype=np.int32)
    while len(small.indices) > edges:
        before = len(small.weights)
        label = np.arange(before, dtype=np.int32)
        weight, tally = small.weights.copy(), np.zeros(before, np.int64)
        for _ in range(ROUNDS):
            join_clusters(
                0,
                small.indptr,
                small.indices,
                small.counts,
                small.weights,
                most,
                label,
                weight,
                tally,
            )
        label, clusters = _numbered(label)
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
        low[pairs] * clusters + small.indices[pairs],
        small.counts[pairs],
        small.weights,
    )


def _between(
    pairs: NDArray[np.int64],
    counts: NDArray[np.int64] | None,
    weights: NDArray[np.int64],
) -> Contracted:
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


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def fill_both(
    low: NDArray[np.int32],
    high: NDArray[np.int32],
    sums: NDArray[np.int64],
    at: NDArray[np.int64],
    indices: NDArray[np.int32],
    counts: NDArray[np.int64],
) -> None:
    """Put each pair into the rows of both its ends; `at` is where rows go on."""
    for pair in range(low.shape[0]):
        a, b = low[pair], high[pair]
        indices[at[a]], counts[at[a]] = b, sums[pair]
        at[a] += 1
        indices[at[b]], counts[at[b]] = a, sums[pair]
        at[b] += 1


def contract(
    csr: Csr, label: NDArray[np.int32], clusters: int, base: int, keep: int
) -> Contracted:
    """The graph between clusters, from about `keep` edges at most.

    Of more edges between clusters a sample is taken, by a hash of the two nodes: both
    directions of an edge stay or go together, whatever the chunks. `PAIR` bytes an edge
    that is kept.

    Parameters
    ----------
    label, clusters
        From `find_clusters`.
    base
        What a node weighs beside its in-degree.
    keep
        Directed edges to keep at most, about.
    """
    between = int(csr.indptr[-1])
    if between > keep:
        between = sum(
            pairs_between(rows.first, rows.indptr, rows.indices, label)
            for rows in csr.chunks()
        )
    limit = EVERY
    if between > keep:
        limit = np.uint64(int(keep / between * 2**53) << 11)
    parts = [np.empty(0, np.int64)]
    for rows in csr.chunks():
        found = np.empty(len(rows.indices), np.int64)
        size = sample_pairs(
            rows.first, rows.indptr, rows.indices, label, clusters, limit, found
        )
        parts.append(found[:size].copy())
    pairs = np.concatenate(parts)
    del parts
    weights = np.bincount(label, np.diff(csr.indptr), clusters).astype(np.int64)
    weights += base * np.bincount(label, minlength=clusters)
    return _between(pairs, None, weights)


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def pairs_between(
    first: int,
    indptr: NDArray[np.int64],
    indices: NDArray[np.int32],
    label: NDArray[np.int32],
) -> int:
    """Edges of some rows whose ends are in different clusters."""
    total = 0
    for row in range(indptr.shape[0] - 1):
        for edge in range(indptr[row], indptr[row + 1]):
            total += label[first + row] != label[indices[edge]]
    return total


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def sample_pairs(
    first: int,
    indptr: NDArray[np.int64],
    indices: NDArray[np.int32],
    label: NDArray[np.int32],
    clusters: int,
    limit: int,
    found: NDArray[np.int64],
) -> int:
    """Pairs of clusters, ``low * C + high``, of the edges whose hash is in `limit`."""
    size = 0
    for row in range(indptr.shape[0] - 1):
        v = first + row
        for edge in range(indptr[row], indptr[row + 1]):
            u = indices[edge]
            a, b = label[v], label[u]
            if a == b:
                continue
            ends = (np.uint64(min(u, v)) << np.uint64(32)) | np.uint64(max(u, v))
            ends = (ends ^ (ends >> np.uint64(30))) * MIX
            ends = (ends ^ (ends >> np.uint64(27))) * MIX_AGAIN
            ends ^= ends >> np.uint64(31)
            if ends <= limit:
                found[size] = np.int64(min(a, b)) * clusters + max(a, b)
                size += 1
    return size
