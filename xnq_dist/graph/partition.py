"""Which partition owns a node: METIS, one streaming pass or more, ranges, chance.

A node weighs its in-degree plus the mean in-degree: a superstep costs something for
each node and something for each edge, and this keeps both in balance (by degree alone
one of eight partitions of a power-law graph had 1.7 times the mean number of nodes, by
number alone 2.8 times the mean number of edges). Answers of the pipeline do not depend
on the partition, only the bytes exchanged and the balance do.
"""

from __future__ import annotations

import logging
from typing import Literal

import numpy as np
from numba import njit
from numpy.typing import NDArray

from xnq_dist.errors import DoesNotFitError, SettingsError
from xnq_dist.graph.csr import Csr

__all__ = ["divide", "metis_memory"]

log = logging.getLogger(__name__)

RANDOM_PURPOSE = 101
"""First part of the key of the random streams here."""
METIS_SEED = 1
"""Fixed, so that a run's seed does not divide the graph anew."""
METIS_SHARE = 1
"""``auto`` takes METIS up to this many times `input.memory`: 7 million directed edges
by default, 10 s on a social graph, a minute on a random one (2 cores)."""
SLACK = 1.1
"""Most weight of a streamed partition over the mean (Fennel's nu)."""
PASSES = 3
"""Passes of the streaming partitioner: one, then restreaming."""

Partitioner = Literal["auto", "metis", "stream", "contiguous", "random"]


def divide(
    csr: Csr,
    partitions: int,
    partitioner: Partitioner,
    seed: int = 0,
    memory: int = 1 << 30,
    symmetric: bool = False,
) -> tuple[NDArray[np.int32], str]:
    """Partition of every node, shape (N,), and the partitioner that was used.

    Parameters
    ----------
    csr
        Canonical adjacency. METIS holds it in memory, the others stream it or need
        its row pointers alone.
    partitions
        Number of partitions, P; each gets one node at least.
    partitioner
        ``auto``: METIS while its memory is within `memory`, else ``stream``.
    seed
        For ``random``.
    memory
        Bytes.
    symmetric
        Whether each edge is known to have its reverse.

    Raises
    ------
    SettingsError
        When there are more partitions than nodes.
    DoesNotFitError
        When METIS is asked for by name and the graph is beyond what it can number.
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
    if name == "auto":
        fits = metis_memory(n, int(csr.indptr[-1]), symmetric) <= METIS_SHARE * memory
        name = "metis" if fits else "stream"
        log.info("partitioner: %s", name)
    if name == "metis":
        part = _metis(csr, partitions, symmetric)
    elif name == "stream":
        part = _stream(csr, partitions)
    elif name == "contiguous":
        part = _contiguous(csr, partitions)
    else:
        part = _random(n, partitions, seed)
    return _fill_empty(part, partitions), name


def metis_memory(n_nodes: int, n_edges: int, symmetric: bool) -> int:
    """Bytes that `metis` needs at most, from measurements (64-bit METIS)."""
    return 60 * n_nodes + (140 if symmetric else 280) * n_edges


def _base_weight(csr: Csr) -> int:
    """What a node weighs without its edges: the mean in-degree, and one."""
    return int(csr.indptr[-1]) // (len(csr.indptr) - 1) + 1


def _node_weights(csr: Csr) -> NDArray[np.int64]:
    return np.diff(csr.indptr) + _base_weight(csr)


def _metis(csr: Csr, partitions: int, symmetric: bool) -> NDArray[np.int32]:
    import pymetis
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
    if int(weights.sum()) >= 2**62 or n >= 2**31:
        raise DoesNotFitError("the graph is beyond METIS: set partitioner = stream")
    answer = pymetis.part_graph(
        partitions,
        adjacency=pymetis.CSRAdjacency(
            graph.indptr.astype(np.int64), graph.indices.astype(np.int64)
        ),
        vweights=weights,
        # The total communication volume is our halo rows; cut edges, the default
        # objective, left 7-25 % more of them on social graphs.
        options=pymetis.Options(seed=METIS_SEED, objtype=int(pymetis.ObjType.VOL)),
        recursive=False,
    )
    return np.asarray(answer[1]).astype(np.int32)


def _contiguous(csr: Csr, partitions: int) -> NDArray[np.int32]:
    """Ranges of canonical indices of about equal weight."""
    weights = _node_weights(csr)
    before = np.cumsum(weights) - weights
    total = int(weights.sum())
    part: NDArray[np.int32] = (before * partitions // total).astype(np.int32)
    return part


def _random(n: int, partitions: int, seed: int) -> NDArray[np.int32]:
    """Equal numbers of nodes, by chance."""
    key = np.random.SeedSequence(seed, spawn_key=(RANDOM_PURPOSE, 0))
    order = np.random.Generator(np.random.Philox(key)).permutation(n)
    return (order % partitions).astype(np.int32)


def _stream(csr: Csr, partitions: int) -> NDArray[np.int32]:
    """Fennel (Tsourakakis et al. 2014, gamma = 1.5) on node weights, restreamed.

    A node goes where its in-neighbours are, less what the partition's load costs.
    Loads are in units of the mean node weight, so that Fennel's
    alpha = m sqrt(k) / n^1.5 keeps its meaning.
    """
    n = len(csr.indptr) - 1
    part = np.full(n, -1, np.int32)
    loads = np.zeros(partitions)
    base = _base_weight(csr)
    unit = n / float(csr.indptr[-1] + n * base)
    # m counts undirected edges in the paper: here each is two rows' neighbour.
    alpha = (csr.indptr[-1] / 2) * partitions**0.5 / n**1.5
    scale = 1.5 * alpha
    limit = SLACK * n / partitions
    neighbours = np.zeros(partitions, np.int64)
    for _ in range(PASSES):
        for rows in csr.chunks():
            fennel(
                rows.first,
                rows.indptr,
                rows.indices,
                part,
                loads,
                neighbours,
                base,
                unit,
                scale,
                limit,
            )
    return part


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def fennel(
    first: int,
    indptr: NDArray[np.int64],
    indices: NDArray[np.int32],
    part: NDArray[np.int32],
    loads: NDArray[np.float64],
    neighbours: NDArray[np.int64],
    base: int,
    unit: float,
    scale: float,
    limit: float,
) -> None:
    """Place some rows, one after the other; a placed node is taken out first.

    Parameters
    ----------
    part
        Partition of each node so far, -1 before its first turn, shape (N,).
    loads, neighbours
        Weight of each partition, and zeros, shape (P,).
    base, unit
        A node's weight without edges; what turns weights into units of their mean.
    scale, limit
        Price of a load's square root; load beyond which a partition is full.
    """
    partitions = loads.shape[0]
    for row in range(indptr.shape[0] - 1):
        v = first + row
        weight = (indptr[row + 1] - indptr[row] + base) * unit
        if part[v] >= 0:
            loads[part[v]] -= weight
        for edge in range(indptr[row], indptr[row + 1]):
            u = indices[edge]
            if u != v and part[u] >= 0:
                neighbours[part[u]] += 1
        best, best_score, lightest = -1, 0.0, 0
        for p in range(partitions):
            if loads[p] < loads[lightest]:
                lightest = p
            if loads[p] + weight <= limit:
                score = neighbours[p] - scale * np.sqrt(max(loads[p], 0.0))
                if best < 0 or score > best_score:
                    best, best_score = p, score
        if best < 0:
            best = lightest
        for edge in range(indptr[row], indptr[row + 1]):
            u = indices[edge]
            if u != v and part[u] >= 0:
                neighbours[part[u]] = 0
        part[v] = best
        loads[best] += weight


def _fill_empty(part: NDArray[np.int32], partitions: int) -> NDArray[np.int32]:
    """Give each partition without nodes the first node of the largest one."""
    sizes = np.bincount(part, minlength=partitions)
    for empty in np.flatnonzero(sizes == 0):
        largest = int(np.argmax(sizes))
        part[np.argmax(part == largest)] = empty
        sizes[largest] -= 1
        sizes[empty] = 1
    return part
