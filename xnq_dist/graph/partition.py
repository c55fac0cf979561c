"""Which partition owns a node: METIS, clusters of a stream, ranges, chance.

METIS and ``stream`` are followed by `refine`: no partition has more than 1.1 times the
mean of the edges nor 1.3 times that of the nodes, as far as single nodes allow.

Until then a node weighs its in-degree plus the mean in-degree: a superstep costs
something for each node and something for each edge, and this keeps both in some balance
(by degree alone one of eight partitions of a power-law graph had 1.7 times the mean
number of nodes, by number alone 2.8 times the mean number of edges). Answers of the
pipeline do not depend on the partition, only the bytes exchanged and the balance do.
"""

from __future__ import annotations

import logging
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from xnq_dist.core.errors import DoesNotFitError, SettingsError
from xnq_dist.core.random_bits import Purpose, stream
from xnq_dist.graph.arrays import Ints, Ints32
from xnq_dist.graph.clustering import PAIR, coarsen, contract, find_clusters
from xnq_dist.graph.csr import Csr
from xnq_dist.graph.moves import ROWS
from xnq_dist.graph.refining import refine

__all__ = ["divide", "metis", "metis_memory"]

log = logging.getLogger(__name__)

METIS_SHARE = 1
"""``auto`` takes METIS up to this many times `input.memory`: 7 million directed edges
by default, 10 s on a social graph, a minute on a random one (2 cores)."""
CLUSTERS = 16
"""A cluster weighs a partition's share over this at most."""
METIS_ENTRY = 150
"""Bytes that METIS needs for each direction of a weighted edge."""
LEAST_MEMORY = 16 << 20
"""Bytes that are taken whatever was given: little graphs are always seen whole."""
FEW = 16
"""Most partitions for which METIS minimises halo rows. Its time grows with them (64
took 13 s where cut edges took 1), and after refinement they are hardly fewer."""
METIS_SEED = 1
"""Fixed, so that a run's seed does not divide the graph anew."""
METIS_SCHEDULE = (ROWS, ROWS)
"""METIS has done the rest."""

Partitioner = Literal["auto", "metis", "stream", "contiguous", "random"]


def divide(
    csr: Csr,
    partitions: int,
    partitioner: Partitioner,
    seed: int = 0,
    memory: int = 1 << 30,
    symmetric: bool = False,
) -> tuple[Ints32, str]:
    """Partition of every node, shape (N,), and the partitioner that was used.

    Parameters
    ----------
    csr
        Canonical adjacency. METIS holds it in memory, ``stream`` reads it some 12
        times by chunks, the others need its row pointers alone.
    partitions
        Number of partitions, P; each gets one node at least.
    partitioner
        ``auto``: METIS while its memory is within `memory`, else ``stream``.
    seed
        For ``random``.
    memory
        Bytes, besides some 40 a node; `LEAST_MEMORY` at least. With more of them
        ``stream`` reads more edges between clusters: its answer depends on them.
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
        alone = "contiguous" if partitioner == "auto" else partitioner
        return np.zeros(n, np.int32), alone
    name: str = partitioner
    given, memory = memory, max(memory, LEAST_MEMORY)
    if name == "auto":
        fits = metis_memory(n, int(csr.indptr[-1]), symmetric) <= METIS_SHARE * given
        name = "metis" if fits else "stream"
        log.info("partitioner: %s", name)
    if name == "metis":
        part = _fill_empty(_metis(csr, partitions, symmetric), partitions)
        refine(csr, part, partitions, memory, METIS_SCHEDULE)
    elif name == "stream":
        part = _fill_empty(_stream(csr, partitions, memory), partitions)
        refine(csr, part, partitions, memory)
    elif name == "contiguous":
        part = _contiguous(csr, partitions)
    else:
        part = _random(n, partitions, seed)
    return _fill_empty(part, partitions), name


def _base_weight(csr: Csr) -> int:
    """What a node weighs without its edges: the mean in-degree, and one."""
    return int(csr.indptr[-1]) // (len(csr.indptr) - 1) + 1


def _node_weights(csr: Csr) -> Ints:
    return np.diff(csr.indptr) + _base_weight(csr)


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
    weights = _node_weights(csr)
    by_volume = partitions <= FEW
    return metis(graph.indptr, graph.indices, weights, partitions, None, by_volume)


def _contiguous(csr: Csr, partitions: int) -> Ints32:
    """Ranges of canonical indices of about equal weight."""
    weights = _node_weights(csr)
    before = np.cumsum(weights) - weights
    total = int(weights.sum())
    part: Ints32 = (before * partitions // total).astype(np.int32)
    return part


def _random(n: int, partitions: int, seed: int) -> Ints32:
    """Equal numbers of nodes, by chance."""
    order = stream(seed, Purpose.PARTITION, 0).permutation(n)
    return (order % partitions).astype(np.int32)


def _stream(csr: Csr, partitions: int, memory: int) -> Ints32:
    """Clusters by label propagation, METIS on the graph between them, refinement."""
    base = _base_weight(csr)
    total = int(csr.indptr[-1]) + base * (len(csr.indptr) - 1)
    most = max(total // (partitions * CLUSTERS), 1)
    label, clusters = find_clusters(csr, base, most)
    if clusters < partitions:
        return _contiguous(csr, partitions)
    whole = contract(csr, label, clusters, base, memory // PAIR)
    small, place = coarsen(whole, most, memory // METIS_ENTRY)
    del whole
    log.info(
        "%d clusters, %d clusters of clusters with %d edges between them",
        clusters,
        len(small.weights),
        len(small.indices) // 2,
    )
    if len(small.weights) < partitions or not len(small.indices):
        return _contiguous(csr, partitions)
    part = metis(small.indptr, small.indices, small.weights, partitions, small.counts)
    return part[place][label]


def _fill_empty(part: Ints32, partitions: int) -> Ints32:
    """Give each partition without nodes the first node of the largest one."""
    sizes = np.bincount(part, minlength=partitions)
    for empty in np.flatnonzero(sizes == 0):
        largest = int(np.argmax(sizes))
        part[np.argmax(part == largest)] = empty
        sizes[largest] -= 1
        sizes[empty] = 1
    return part


def metis_memory(n_nodes: int, n_edges: int, symmetric: bool) -> int:
    """Bytes that METIS needs at most, from measurements (64-bit METIS)."""
    return 60 * n_nodes + (140 if symmetric else 280) * n_edges


def metis(
    indptr: NDArray[Any],
    indices: NDArray[Any],
    weights: Ints,
    partitions: int,
    counts: Ints | None = None,
    by_volume: bool = False,
) -> Ints32:
    """Partition of every node by METIS, shape (N,); some may stay empty.

    `indptr`, `indices`: each edge in both directions, no self-loops. `weights`: of the
    nodes; each of two or more partitions gets about the same sum. `counts`: weights of
    the edges; None: one each. `by_volume`: minimise the communication volume, our halo
    rows, instead of the edges between partitions; `counts` are not looked at then.

    Raises
    ------
    DoesNotFitError
        When the graph is beyond what METIS can number.
    """
    import pymetis

    if int(weights.sum()) >= 2**62 or len(weights) >= 2**31:
        raise DoesNotFitError("the graph is beyond METIS: set partitioner = stream")
    objective = pymetis.ObjType.VOL if by_volume else pymetis.ObjType.CUT
    answer = pymetis.part_graph(
        partitions,
        adjacency=pymetis.CSRAdjacency(
            indptr.astype(np.int64), indices.astype(np.int64)
        ),
        vweights=weights,
        eweights=counts,
        options=pymetis.Options(seed=METIS_SEED, objtype=int(objective)),
        recursive=False,
    )
    return np.asarray(answer[1]).astype(np.int32)
