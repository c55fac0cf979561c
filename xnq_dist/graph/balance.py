"""Limits on the nodes and edges of partitions, held by label propagation.

No partition has more than 1.1 times the mean number of edges or 1.05 times the mean
number of nodes, unless a single node does.
"""

from __future__ import annotations

import logging

import numpy as np
from numba import njit

from xnq_dist.core.arrays import Bools, Ints, Ints32
from xnq_dist.graph.csr import Csr
from xnq_dist.graph.propagation import ROUNDS, Labels, Limits

__all__ = ["fill_empty", "find_limits", "hold_limits"]

log = logging.getLogger(__name__)

EDGE_SLACK = 1.1
"""Maximum edges of a partition over the mean."""
NODE_SLACK = 1.05
"""Maximum nodes of a partition over the mean: descriptors, products and posteriors take
time by nodes. With 1.3, which is always used up, halo rows are a few per cent fewer."""
LOSSES = (0.0, 0.25, 0.5, 1.0, 1.0, 1.0, 1.0, 1.0)
"""Share of its votes that a node may lose in each pass when it leaves a partition above
its limits. If all may be lost at once, Tolokers has 4 % more halo rows."""
MIN_PASSES = 4
"""Number of passes after which they end when the limits hold."""
REASSIGNED = (64, 16, 4, 1)
"""One of so many nodes is reassigned if moves did not reach the limits."""


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
    limits = find_limits(csr, partitions)
    degrees = np.diff(csr.indptr)
    own = np.stack([np.ones_like(degrees), degrees], axis=1)
    labels = Labels.of(part, own, partitions)
    for turn, loss in enumerate(LOSSES):
        if turn >= MIN_PASSES and not labels.over(limits):
            break
        moved = labels.move(csr, limits, loss)
        log.info("%d nodes moved between partitions", moved)
    if labels.over(limits) and _reassign(labels, limits):
        labels = Labels.of(part, own, partitions)
        for _ in range(ROUNDS):
            labels.move(csr, limits)
    fill_empty(part, partitions)


def fill_empty(part: Ints32, partitions: int) -> None:
    """Give each partition without nodes, in place, the first node of the largest."""
    sizes = np.bincount(part, minlength=partitions)
    for empty in np.flatnonzero(sizes == 0):
        largest = int(np.argmax(sizes))
        part[np.argmax(part == largest)] = empty
        sizes[largest] -= 1
        sizes[empty] = 1


def _reassign(labels: Labels, limits: Limits) -> bool:
    """Reassign some nodes, by falling degree, if limits are still violated.

    The nodes of partitions above their limits and every 64th of all nodes (if that is
    not enough every 16th, and so on) go to the partition with the fewest edges that is
    below its limits. If even reassigning all nodes fails, they are assigned in turn,
    which leaves each partition with at most the mean and one node's edges. Returns
    whether the limits hold.
    """
    part, degrees, partitions = labels.label, labels.own[:, 1], len(labels.sizes)
    over: Bools = np.any(labels.sizes > limits, axis=1)
    for every in REASSIGNED:
        leaves = over[part]
        leaves[::every] = True
        some = np.flatnonzero(leaves)
        some = some[np.argsort(-degrees[some], kind="stable")]
        sizes = Labels.of(part[~leaves], labels.own[~leaves], partitions).sizes
        to = np.empty(len(some), np.int64)
        if assign(degrees[some], sizes, limits, to):
            part[some] = to
            log.info("%d nodes were reassigned to keep the limits", len(some))
            return True
    nodes, edges = labels.sizes.T
    if nodes.max() > limits.nodes or edges.max() > edges.mean() + degrees.max():
        turn, place = np.divmod(np.arange(len(some)), partitions)
        part[some] = np.where(turn % 2 == 0, place, partitions - 1 - place)
    return False


@njit(cache=True, nogil=True)
def assign(degrees: Ints, sizes: Ints, limits: Limits, to: Ints) -> bool:
    """Assign each node to the partition with the fewest edges, within the limits.

    `sizes`: nodes and edges of each partition, updated, shape (P, 2). The partition of
    each node is written to `to`. Returns whether all nodes fit.
    """
    for p in range(sizes.shape[0]):
        if sizes[p, 0] > limits.nodes or sizes[p, 1] > limits.edges:
            return False
    for i in range(degrees.shape[0]):
        best = -1
        for p in range(sizes.shape[0]):
            nodes, edges = sizes[p]
            if nodes >= limits.nodes or edges + degrees[i] > limits.edges:
                continue
            less = best < 0 or edges < sizes[best, 1]
            if less or (edges == sizes[best, 1] and nodes < sizes[best, 0]):
                best = p
        if best < 0:
            return False
        to[i] = best
        sizes[best, 0] += 1
        sizes[best, 1] += degrees[i]
    return True
