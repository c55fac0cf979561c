"""Clusters of nodes by label propagation, and the small graph between them.

A node joins the cluster that most of its in-neighbours are in, while that cluster is
below a given weight; a few passes over the edges find most of a community structure.
What is between clusters, sampled down to what memory allows, is a graph small enough
for METIS. The size limit is the one of Meyerhenke, Sanders and Schulz ("Partitioning
complex networks via size-constrained clustering", SEA 2014).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

from xnq_dist.graph.csr import Csr

__all__ = ["Contracted", "contract", "find_clusters"]

ROUNDS = 5
"""Passes of label propagation: the fifth still moves a few per cent of the nodes."""
MIX = np.uint64(0x9E3779B97F4A7C15)
MIX_AGAIN = np.uint64(0xBF58476D1CE4E5B9)
EVERY = np.uint64(2**64 - 1)


@dataclass(frozen=True)
class Contracted:
    """An undirected graph of clusters; each pair is there in both directions."""

    indptr: NDArray[np.int64]
    """Shape (C + 1,)."""
    indices: NDArray[np.int64]
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
    16 bytes a node. Nodes take their turns in canonical order and see each other's
    latest choice, so that the answer does not depend on the chunks.
    """
    n = len(csr.indptr) - 1
    label = np.arange(n, dtype=np.int32)
    weight = np.diff(csr.indptr) + base
    tally = np.zeros(n, np.int32)
    for _ in range(ROUNDS):
        for rows in csr.chunks():
            join_clusters(
                rows.first, rows.indptr, rows.indices, base, most, label, weight, tally
            )
    del weight, tally
    there = np.zeros(n, np.bool_)
    there[label] = True
    number = np.cumsum(there, dtype=np.int32)
    return number[label] - 1, int(number[-1])


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def join_clusters(
    first: int,
    indptr: NDArray[np.int64],
    indices: NDArray[np.int32],
    base: int,
    most: int,
    label: NDArray[np.int32],
    weight: NDArray[np.int64],
    tally: NDArray[np.int32],
) -> None:
    """One turn of some rows; a tie keeps the old cluster, else the first one met.

    Parameters
    ----------
    label, weight
        Cluster of each node and weight of each cluster so far, shape (N,).
    tally
        Zeros, shape (N,).
    """
    for row in range(indptr.shape[0] - 1):
        v = first + row
        own = indptr[row + 1] - indptr[row] + base
        if own > most:
            continue
        old = label[v]
        for edge in range(indptr[row], indptr[row + 1]):
            if indices[edge] != v:
                tally[label[indices[edge]]] += 1
        best, votes = old, tally[old]
        for edge in range(indptr[row], indptr[row + 1]):
            other = label[indices[edge]]
            if tally[other] > votes and weight[other] + own <= most:
                best, votes = other, tally[other]
        for edge in range(indptr[row], indptr[row + 1]):
            tally[label[indices[edge]]] = 0
        if best != old:
            weight[old] -= own
            weight[best] += own
            label[v] = best


def contract(
    csr: Csr, label: NDArray[np.int32], clusters: int, base: int, keep: int
) -> Contracted:
    """The graph between clusters, from about `keep` edges at most.

    Of more edges between clusters a sample is taken, by a hash of the two nodes: both
    directions of an edge stay or go together, whatever the chunks. Twice 8 bytes an
    edge that is kept, and what the answer holds.

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
    pairs.sort()
    starts = np.flatnonzero(np.diff(pairs, prepend=-1))
    counts = np.diff(starts, append=len(pairs))
    low, high = np.divmod(pairs[starts], clusters)
    del pairs, starts
    degrees = np.bincount(low, minlength=clusters)
    degrees += np.bincount(high, minlength=clusters)
    indptr = np.concatenate([[0], np.cumsum(degrees)]).astype(np.int64)
    order = np.argsort(np.concatenate([low, high]), kind="stable")
    weights = np.bincount(label, np.diff(csr.indptr), clusters).astype(np.int64)
    return Contracted(
        indptr,
        np.concatenate([high, low])[order],
        np.concatenate([counts, counts])[order],
        weights + base * np.bincount(label, minlength=clusters),
    )


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
