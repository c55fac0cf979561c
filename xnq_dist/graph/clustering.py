"""Clusters of nodes by label propagation, and the contracted graph of the clusters.

A few passes over the edges find most of a community structure. The edges between
clusters, sampled if memory is not enough for all, form a weighted graph for METIS.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from xnq_dist.core.arrays import Floats, Ints, Ints32
from xnq_dist.core.random_bits import mix
from xnq_dist.graph.csr import Csr
from xnq_dist.graph.moves import FIRST, numbered, propagate
from xnq_dist.graph.sort import SparseRows

if TYPE_CHECKING:
    import scipy.sparse as sp

__all__ = ["contract", "find_clusters"]

TURNS = range(FIRST - 2, FIRST + 1)
"""Two passes over a random half of the nodes each and one over all: without the halves
a grid had a fifth more halo rows, six real graphs from 1 % fewer to 8 % more; with two
more passes nine real graphs and two generated ones had .5 % more."""
SAMPLE_CHUNK = 1 << 18
"""Edges of a chunk while pairs of clusters are sampled, so that it stays in cache."""
EVERY = np.uint64(2**64 - 1)


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


def _sample(indptr: Ints, label: Ints32, limit: np.uint64, rows: SparseRows) -> Ints32:
    """The clusters at both ends of edges with a hash up to `limit`, shape (2, n)."""
    ends = np.stack([rows.targets, rows.indices])
    if limit < EVERY:
        begin = int(indptr[rows.first])
        positions: Any = np.arange(begin, begin + ends.shape[1], dtype=np.uint64)
        ends = ends[:, mix.py_func(positions) <= limit]
    clusters: Ints32 = label[ends]
    return clusters[:, clusters[0] != clusters[1]]
