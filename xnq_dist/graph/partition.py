"""Assigns nodes to partitions: METIS, streaming clusters, or ranges.

METIS and ``stream`` are followed by `hold_limits`: no partition has more than 1.1 times
the mean number of edges or 1.05 times the mean number of nodes, unless a single node
does.

For METIS the weight of a node is its in-degree plus the mean in-degree, because a
superstep has a cost for each node and each edge. (By degree alone one of eight
partitions of a power-law graph had 1.7 times the mean number of nodes; by number alone,
2.8 times the mean number of edges.) Results of the pipeline do not depend on the
partitioning, only the bytes exchanged and the balance do.
"""

from __future__ import annotations

import logging
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from xnq_dist.core.arrays import Ints, Ints32
from xnq_dist.core.errors import DoesNotFitError, SettingsError
from xnq_dist.graph.balance import hold_limits
from xnq_dist.graph.clustering import contract, find_clusters
from xnq_dist.graph.csr import Csr

__all__ = ["METIS_EDGE", "divide", "metis", "metis_memory"]

log = logging.getLogger(__name__)

CLUSTERS = 64
"""A cluster has at most a partition's share of the weights over this. (With 16, nine
real graphs and two generated ones had 5 % more halo rows, 2 % without Cora, whose 64
partitions had 1.8 times as many.)"""
SAMPLED = 0.25
"""Least part of `CLUSTERS` for METIS on a sample of the edges, which are few for small
clusters. (With all 64 and a twentieth of the edges a graph of 2 M nodes had 10 % more
halo rows than with 16.)"""
MAX_VOTES = 2**31 - 1
"""Edges are counted in int32."""
METIS_EDGE = 300
"""Bytes of `input.memory` for each edge between clusters that METIS gets: 150 for each
direction."""
MIN_MEMORY = 16 << 20
"""Minimum bytes for streaming: all edges of a small graph are always used."""
METIS_SEED = 1
"""Fixed, so that the partitioning does not depend on the run's seed."""

Partitioner = Literal["auto", "metis", "stream", "contiguous"]


def divide(
    csr: Csr,
    partitions: int,
    partitioner: Partitioner,
    memory: int = 1 << 30,
    symmetric: bool = False,
) -> tuple[Ints32, str]:
    """Partition of every node, shape (N,), and the partitioner that was used.

    A single partition is ``contiguous``.

    Parameters
    ----------
    csr
        Canonical adjacency. METIS holds it in memory, ``stream`` reads it about 10
        times in chunks, the others use its row pointers only.
    partitions
        Number of partitions, P; each gets at least one node.
    partitioner
        ``auto``: METIS if its memory is within `memory` (with 1 GiB 7 million directed
        edges, 10 s for a social graph, 60 s for a random one), else ``stream``.
    memory
        Bytes, at least `MIN_MEMORY`, in addition to about 60 a node. With more memory
        ``stream`` samples more edges between clusters, so its result depends on it.
    symmetric
        Whether each edge is known to have its reverse.

    Raises
    ------
    SettingsError
        When there are more partitions than nodes.
    DoesNotFitError
        When METIS is requested by name and the graph is beyond what it can number.
    """
    n = len(csr.indptr) - 1
    if partitions > n:
        raise SettingsError(
            f"partitions = {partitions} is more than the graph's {n} nodes: set "
            f"partitions to {n} or fewer"
        )
    if partitions == 1:
        return np.zeros(n, np.int32), "contiguous"
    name: str = partitioner
    if name == "auto":
        fits = metis_memory(n, int(csr.indptr[-1]), symmetric) <= memory
        name = "metis" if fits else "stream"
        log.info("partitioner: %s", name)
    if name == "contiguous":
        part = _contiguous(csr, partitions)
    else:
        part = (
            _metis(csr, partitions, symmetric)
            if name == "metis"
            else _stream(csr, partitions, max(memory, MIN_MEMORY))
        )
        hold_limits(csr, part, partitions)
    _fill_empty(part, partitions)
    return part, name


def _fill_empty(part: Ints32, partitions: int) -> None:
    """Give each partition without nodes, in place, the first node of the largest."""
    sizes = np.bincount(part, minlength=partitions)
    for empty in np.flatnonzero(sizes == 0):
        largest = int(np.argmax(sizes))
        part[np.argmax(part == largest)] = empty
        sizes[largest] -= 1
        sizes[empty] = 1


def _node_weights(csr: Csr) -> Ints:
    """In-degrees plus the mean in-degree plus one."""
    degrees = np.diff(csr.indptr)
    return degrees + int(csr.indptr[-1]) // len(degrees) + 1


def _metis(csr: Csr, partitions: int, symmetric: bool) -> Ints32:
    import scipy.sparse as sp

    n = len(csr.indptr) - 1
    indices, _ = csr.arrays()
    rows = np.repeat(np.arange(n, dtype=np.int32), np.diff(csr.indptr))
    ends = rows != indices
    rows, columns = rows[ends], indices[ends]
    if not symmetric:
        rows, columns = np.r_[rows, columns], np.r_[columns, rows]
    ones = np.ones(len(rows), np.int8)
    graph = sp.coo_array((ones, (rows, columns)), shape=(n, n)).tocsr()
    if not graph.nnz:
        return _contiguous(csr, partitions)
    return metis(graph.indptr, graph.indices, _node_weights(csr), partitions)


def _contiguous(csr: Csr, partitions: int) -> Ints32:
    """Ranges of canonical indices of about equal weight."""
    weights = _node_weights(csr)
    before = np.cumsum(weights) - weights
    total = int(weights.sum())
    part: Ints32 = (before * partitions // total).astype(np.int32)
    return part


def _stream(csr: Csr, partitions: int, memory: int) -> Ints32:
    """Clusters by label propagation, and METIS on the graph between them."""
    weights = _node_weights(csr).astype(np.float64)
    share = min(memory // METIS_EDGE, MAX_VOTES) / max(int(csr.indptr[-1]), 1)
    clusters = partitions * CLUSTERS * min(max(share, SAMPLED), 1)
    label, sizes = find_clusters(csr, weights, weights.sum() / clusters)
    small = contract(csr, label, len(sizes), share)
    log.info("%d clusters with %d edges between them", len(sizes), small.nnz // 2)
    if len(sizes) < partitions or not small.nnz:
        return _contiguous(csr, partitions)
    of_graph = small.indptr, small.indices, sizes.astype(np.int64)
    return metis(*of_graph, partitions, small.data)[label]


def metis_memory(n_nodes: int, n_edges: int, symmetric: bool) -> int:
    """Upper bound of the bytes that METIS needs, from measurements (64-bit METIS)."""
    return 60 * n_nodes + (140 if symmetric else 280) * n_edges


def metis(
    indptr: NDArray[Any],
    indices: NDArray[Any],
    weights: Ints,
    partitions: int,
    counts: Ints | None = None,
) -> Ints32:
    """Partition of every node by METIS, shape (N,); some may be empty.

    `indptr`, `indices`: each edge in both directions, no self-loops. `weights`: of the
    nodes; each of the (at least two) partitions gets about the same sum. `counts`:
    weights of the edges; None: one each. The sum of the cut edges is minimised: half as
    much time as for the number of halo rows itself, which is 3 % larger.

    Raises
    ------
    DoesNotFitError
        When the graph is beyond what METIS can number.
    """
    import pymetis

    if int(weights.sum()) >= 2**62 or len(weights) >= 2**31:
        raise DoesNotFitError(
            "the graph is too large for METIS: set partitioner = stream"
        )
    result = pymetis.part_graph(
        partitions,
        adjacency=pymetis.CSRAdjacency(
            indptr.astype(np.int64), indices.astype(np.int64)
        ),
        vweights=weights,
        eweights=counts,
        options=pymetis.Options(seed=METIS_SEED),
        recursive=False,
    )
    return np.asarray(result[1]).astype(np.int32)
