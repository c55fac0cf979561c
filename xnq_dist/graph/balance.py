"""Limits on the nodes and edges of partitions, held by moves of single nodes.

No partition has more than 1.1 times the mean number of edges or 1.05 times the mean
number of nodes, unless a single node does.
"""

from __future__ import annotations

import logging
from typing import NamedTuple

import numpy as np
from numba import njit

from xnq_dist.core.arrays import Ints, Ints32
from xnq_dist.graph.ahead import ahead
from xnq_dist.graph.csr import Csr

__all__ = ["fill_empty", "find_limits", "hold_limits"]

log = logging.getLogger(__name__)

EDGE_SLACK = 1.1
"""Maximum edges of a partition over the mean."""
NODE_SLACK = 1.05
"""Maximum nodes of a partition over the mean: descriptors, products and posteriors take
time by nodes. With 1.3, which is always used up, halo rows are a few per cent fewer."""
LOSSES = (0.0, 0.25, 0.5, 1.0, 1.0, 1.0, 1.0, 1.0)
"""Share of its neighbours that a node may lose in each pass when it leaves a partition
above its limits."""
MIN_PASSES = 4
"""Number of passes after which they end when the limits hold."""
REASSIGNED = (64, 16, 4, 1)
"""One of so many nodes is reassigned if moves did not reach the limits."""


class Limits(NamedTuple):
    """Maximum size of a partition."""

    nodes: int
    edges: int


def find_limits(csr: Csr, partitions: int) -> Limits:
    """The slacks times the means, but at least the edges of the largest hub."""
    n, edges = len(csr.indptr) - 1, int(csr.indptr[-1])
    hub = int(np.diff(csr.indptr).max())
    limits = Limits(
        max(int(NODE_SLACK * n / partitions), -(-n // partitions)),
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


def hold_limits(csr: Csr, part: Ints32, partitions: int) -> None:
    """Move nodes, in place, until partitions are within their limits.

    Nodes also move where they gain: to the partition of most of their in-neighbours.

    Parameters
    ----------
    csr
        Canonical adjacency; streamed once for each pass.
    part
        Partition of each node, shape (N,); overwritten.
    partitions
        Number of partitions, P; at most N. Each gets at least one node.
    """
    limits, degrees = find_limits(csr, partitions), np.diff(csr.indptr)
    sizes = _sizes(part, degrees, partitions)
    for turn, loss in enumerate(LOSSES):
        if turn >= MIN_PASSES and (sizes <= limits).all():
            break
        for rows in ahead(csr.chunks()):
            move_nodes(*rows.edges, part, sizes, limits, loss)
    if (sizes > limits).any():
        _reassign(part, degrees, sizes, limits)
    fill_empty(part, partitions)


def _sizes(part: Ints32, degrees: Ints, partitions: int) -> Ints:
    """Nodes and edges of each partition, shape (P, 2)."""
    nodes = np.bincount(part, minlength=partitions)
    edges = np.bincount(part, degrees, partitions).astype(np.int64)
    return np.stack([nodes, edges], axis=1)


def fill_empty(part: Ints32, partitions: int) -> None:
    """Give each partition without nodes, in place, the first node of the largest."""
    sizes = np.bincount(part, minlength=partitions)
    for empty in np.flatnonzero(sizes == 0):
        largest = int(np.argmax(sizes))
        part[np.argmax(part == largest)] = empty
        sizes[largest] -= 1
        sizes[empty] = 1


def _reassign(part: Ints32, degrees: Ints, sizes: Ints, limits: Limits) -> None:
    """Reassign some nodes, by falling degree, if limits are still violated.

    An eighth of the nodes of partitions above their limits and every 64th of all nodes
    (if that is not enough, more of both) go to the partition with the fewest edges that
    is below its limits. If even reassigning all nodes fails, they are assigned in turn,
    which leaves each partition with at most the mean and one node's edges.
    """
    over = np.any(sizes > limits, axis=1)
    for every in REASSIGNED:
        leaves = np.zeros(len(part), np.bool_)
        leaves[:: max(every // 8, 1)] = True
        leaves &= over[part]
        leaves[::every] = True
        some = np.flatnonzero(leaves)
        some = some[np.argsort(-degrees[some], kind="stable")]
        kept = _sizes(part[~leaves], degrees[~leaves], len(sizes))
        to = np.empty(len(some), np.int64)
        if assign(degrees[some], kept, limits, to):
            part[some] = to
            log.info("%d nodes were reassigned to keep the limits", len(some))
            return
    nodes, edges = sizes.T
    if nodes.max() > limits.nodes or edges.max() > edges.mean() + degrees.max():
        turn, place = np.divmod(np.arange(len(some)), len(sizes))
        part[some] = np.where(turn % 2 == 0, place, len(sizes) - 1 - place)


@njit(cache=True, nogil=True)
def excess(size: Ints, nodes: int, edges: int, limits: Limits) -> int:
    """By how much a partition with more nodes and edges exceeds its limits, in edges.

    A node counts as many edges as partitions have for each node.
    """
    by_nodes = max(size[0] + nodes - limits.nodes, 0)
    by_edges = max(size[1] + edges - limits.edges, 0)
    return int(by_nodes * (limits.edges // limits.nodes + 1) + by_edges)


@njit(cache=True, nogil=True)
def move_nodes(
    first: int,
    indptr: Ints,
    indices: Ints32,
    part: Ints32,
    sizes: Ints,
    limits: Limits,
    loss: float,
) -> None:
    """Move each row's node to the partition of most of its in-neighbours.

    A move may not increase the total excess over the limits. One that reduces it may
    lose the share `loss` of the neighbours in the old partition, and with all of them
    go to any partition; others must gain neighbours.
    """
    partitions = sizes.shape[0]
    votes = np.zeros(partitions, np.int64)
    for row in range(indptr.shape[0] - 1):
        v, begin, end = first + row, indptr[row], indptr[row + 1]
        for edge in range(begin, end):
            votes[part[indices[edge]]] += indices[edge] != v
        old, degree = part[v], end - begin
        without = excess(sizes[old], -1, -degree, limits)
        eased = excess(sizes[old], 0, 0, limits) - without
        least = votes[old] * (1 - loss)
        anywhere = eased > 0 and loss == 1
        best, strain = old, 0
        for i in range(partitions if anywhere else degree):
            q = i if anywhere else part[indices[begin + i]]
            if q == old or (best != old and votes[q] < votes[best]):
                continue
            strained = excess(sizes[q], 1, degree, limits)
            strained -= excess(sizes[q], 0, 0, limits)
            gains = strained == eased and votes[q] > votes[old]
            eases = strained < eased and votes[q] >= least
            more = best == old or votes[q] > votes[best] or strained < strain
            if (gains or eases) and more:
                best, strain = q, strained
        for edge in range(begin, end):
            votes[part[indices[edge]]] = 0
        if best != old:
            sizes[old, 0] -= 1
            sizes[old, 1] -= degree
            sizes[best, 0] += 1
            sizes[best, 1] += degree
            part[v] = best


@njit(cache=True, nogil=True)
def assign(degrees: Ints, sizes: Ints, limits: Limits, to: Ints) -> bool:
    """Assign each node to the partition with the fewest edges, within the limits.

    `sizes`: nodes and edges of each partition, updated, shape (P, 2). The partition of
    each node is written to `to`. Returns whether all nodes fit.
    """
    for p in range(sizes.shape[0]):
        if excess(sizes[p], 0, 0, limits):
            return False
    for i in range(degrees.shape[0]):
        best = -1
        for p in range(sizes.shape[0]):
            fewer = best < 0 or sizes[p, 1] < sizes[best, 1]
            if fewer and not excess(sizes[p], 1, degrees[i], limits):
                best = p
        if best < 0:
            return False
        to[i] = best
        sizes[best, 0] += 1
        sizes[best, 1] += degrees[i]
    return True
