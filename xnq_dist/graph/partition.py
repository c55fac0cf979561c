"""Assigns nodes to partitions: METIS, streaming clusters, or ranges; holds limits.

METIS and ``stream`` are followed by `hold_limits`, by moves of single nodes. Partitions
have at most 1.1 times the mean number of edges and 1.05 times the mean number of nodes,
unless a single node has more. A few per cent above (in tiny graphs one edge) are left
where no single move helps: 1.13 times the mean edges at most, on nine real graphs of up
to 64 partitions. Reassigning nodes until the limits hold had 1 % more halo rows on
average.

For METIS the weight of a node is its in-degree plus the mean in-degree, because a
superstep has a cost for each node and each edge. (By degree alone one of eight
partitions of a power-law graph had 1.7 times the mean number of nodes; by number alone,
2.8 times the mean number of edges.) Results of the pipeline do not depend on the
partitioning, only the bytes exchanged and the balance do.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from xnq_dist.core.arrays import Ints, Ints32
from xnq_dist.core.errors import SettingsError
from xnq_dist.core.kernel import kernel
from xnq_dist.graph.clustering import FIRST, contract, find_clusters, propagate
from xnq_dist.graph.csr import Csr

if TYPE_CHECKING:
    from scipy.sparse import csr_array

__all__ = ["METIS_EDGE", "divide", "hold_limits", "metis_memory"]

log = logging.getLogger(__name__)

EDGE_SLACK = 1.1
"""Maximum edges of a partition over the mean."""
NODE_SLACK = 1.05
"""Maximum nodes of a partition over the mean: descriptors, products and posteriors take
time by nodes. With 1.3, which is always used up, halo rows are a few per cent fewer."""
LOSSES = (0.0, 0.5, 1.0, 1.0, 1.0)
"""Share of its neighbours that a node may lose in each pass when it leaves a partition
above its limits."""
GAINS = range(FIRST, FIRST + 2)
"""Passes in which nodes move where they gain, before the limits are held: without them
``stream`` had up to a fifth more halo rows."""

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


def divide(
    csr: Csr,
    partitions: int,
    partitioner: str,
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
    """
    n = len(csr.indptr) - 1
    if partitions > n:
        raise SettingsError(
            f"partitions = {partitions} is more than the graph's {n} nodes: set "
            f"partitions to {n} or fewer"
        )
    if partitions == 1:
        return np.zeros(n, np.int32), "contiguous"
    if partitioner == "auto":
        fits = metis_memory(n, int(csr.indptr[-1]), symmetric) <= memory
        partitioner = "metis" if fits else "stream"
        log.info("partitioner: %s", partitioner)
    if partitioner == "contiguous":
        part = _contiguous(csr, partitions)
    else:
        held = max(memory, MIN_MEMORY) if partitioner == "stream" else None
        part = _by_metis(csr, partitions, held)
        hold_limits(csr, part, partitions)
    _fill_empty(part, partitions)
    return part, partitioner


def hold_limits(csr: Csr, part: Ints32, partitions: int) -> None:
    """Move nodes, in place, until partitions are within their limits, if moves can.

    Before that nodes move where they gain: to the partition of most of their
    in-neighbours.

    Parameters
    ----------
    csr
        Canonical adjacency; streamed once for each pass.
    part
        Partition of each node, shape (N,); overwritten.
    partitions
        Number of partitions, P; at most N.
    """
    degrees = np.diff(csr.indptr)
    weights = degrees + degrees.mean()
    limit = NODE_SLACK * weights.sum() / partitions
    propagate(csr, part, weights, GAINS, limit=limit)
    limits = _find_limits(degrees, partitions)
    nodes = np.bincount(part, minlength=partitions)
    edges = np.bincount(part, degrees, partitions).astype(np.int64)
    sizes = np.stack([nodes, edges], axis=1)
    for loss in LOSSES:
        if (sizes <= limits).all():
            return
        for rows in csr.chunks():
            _ease(*rows.edges, part, sizes, limits, loss)


def metis_memory(n_nodes: int, n_edges: int, symmetric: bool) -> int:
    """Upper bound of the bytes that METIS needs, from measurements (64-bit METIS)."""
    return 60 * n_nodes + (140 if symmetric else 280) * n_edges


class Limits(NamedTuple):
    """Maximum size of a partition."""

    nodes: int
    edges: int


def _find_limits(degrees: Ints, partitions: int) -> Limits:
    """The slacks times the means, but at least the edges of the largest hub."""
    n, edges, hub = len(degrees), int(degrees.sum()), int(degrees.max())
    limits = Limits(
        max(int(NODE_SLACK * n / partitions), n // partitions + 1),
        max(int(EDGE_SLACK * edges / partitions), -(-edges // partitions), hub),
    )
    if hub > EDGE_SLACK * edges / partitions:
        log.warning(
            "one node has %d in-neighbours, %.2f times a partition's mean edges: set "
            "fewer partitions for a better balance",
            hub,
            hub * partitions / edges,
        )
    return limits


@kernel
def _excess(size: Ints, nodes: int, edges: int, limits: Limits) -> int:
    """By how much a partition with more nodes and edges exceeds its limits, in edges.

    A node counts as many edges as partitions have for each node.
    """
    by_nodes = max(size[0] + nodes - limits.nodes, 0)
    by_edges = max(size[1] + edges - limits.edges, 0)
    return int(by_nodes * (limits.edges // limits.nodes + 1) + by_edges)


@kernel
def _ease(
    first: int,
    indptr: Ints,
    indices: Ints32,
    part: Ints32,
    sizes: Ints,
    limits: Limits,
    loss: float,
) -> None:
    """Move rows' nodes out of partitions above their limits, where the excess shrinks.

    A node goes to the partition of most of its in-neighbours among those that give it
    at least as many as the old one, less a share `loss`.
    """
    votes = np.empty(sizes.shape[0], np.int64)
    for row in range(indptr.shape[0] - 1):
        v, begin, end = first + row, indptr[row], indptr[row + 1]
        old, degree = part[v], end - begin
        eased = _excess(sizes[old], 0, 0, limits)
        eased -= _excess(sizes[old], -1, -degree, limits)
        if eased == 0:
            continue
        votes[:] = 0
        for edge in range(begin, end):
            votes[part[indices[edge]]] += indices[edge] != v
        best = old
        for q in range(sizes.shape[0]):
            strained = _excess(sizes[q], 1, degree, limits)
            strained -= _excess(sizes[q], 0, 0, limits)
            may = strained < eased and votes[q] >= votes[old] * (1 - loss)
            if may and (best == old or votes[q] > votes[best]):
                best = q
        if best != old:
            sizes[old, 0] -= 1
            sizes[old, 1] -= degree
            sizes[best, 0] += 1
            sizes[best, 1] += degree
            part[v] = best


def _by_metis(csr: Csr, partitions: int, memory: int | None) -> Ints32:
    """METIS on the graph between clusters, within `memory`; None: between nodes."""
    weights = _node_weights(csr).astype(np.float64)
    share, label, sizes = 1.0, np.arange(len(weights), dtype=np.int32), weights
    if memory is not None:
        share = min(memory // METIS_EDGE, MAX_VOTES) / max(int(csr.indptr[-1]), 1)
        clusters = partitions * CLUSTERS * min(max(share, SAMPLED), 1)
        label, sizes = find_clusters(csr, weights, weights.sum() / clusters)
    graph = contract(csr, label, len(sizes), share)
    log.info("METIS: %d nodes or clusters, %d edges", len(sizes), graph.nnz // 2)
    if len(sizes) < partitions or not graph.nnz:
        return _contiguous(csr, partitions)
    return metis(graph, sizes.astype(np.int64), partitions)[label]


def metis(graph: csr_array, weights: Ints, partitions: int) -> Ints32:
    """Partition of every node by METIS, shape (N,); some may be empty.

    `graph`: each edge in both directions with its weight, no self-loops. `weights`: of
    the nodes; each of the (at least two) partitions gets about the same sum. The sum of
    the cut edges is minimised: half as much time as for the number of halo rows itself,
    which is 3 % larger.
    """
    import pymetis

    result = pymetis.part_graph(
        partitions,
        adjacency=pymetis.CSRAdjacency(
            graph.indptr.astype(np.int64), graph.indices.astype(np.int64)
        ),
        vweights=weights,
        eweights=graph.data,
        options=pymetis.Options(seed=METIS_SEED),
        recursive=False,
    )
    return np.asarray(result[1]).astype(np.int32)


def _contiguous(csr: Csr, partitions: int) -> Ints32:
    """Ranges of canonical indices of about equal weight."""
    weights = _node_weights(csr)
    before = np.cumsum(weights) - weights
    total = int(weights.sum())
    part: Ints32 = (before * partitions // total).astype(np.int32)
    return part


def _node_weights(csr: Csr) -> Ints:
    """In-degrees plus the mean in-degree plus one."""
    degrees = np.diff(csr.indptr)
    return degrees + int(csr.indptr[-1]) // len(degrees) + 1


def _fill_empty(part: Ints32, partitions: int) -> None:
    """Give each partition without nodes, in place, the first node of the largest."""
    sizes = np.bincount(part, minlength=partitions)
    for empty in np.flatnonzero(sizes == 0):
        largest = int(np.argmax(sizes))
        part[np.argmax(part == largest)] = empty
        sizes[largest] -= 1
        sizes[empty] = 1
