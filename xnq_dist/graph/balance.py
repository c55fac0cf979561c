"""Limits on the nodes and edges of partitions, held by moves of single nodes.

Partitions have at most 1.1 times the mean number of edges and 1.05 times the mean
number of nodes, unless a single node has more. A few per cent above (in tiny graphs one
edge) are left where no single move helps: 1.13 times the mean edges at most, on nine
real graphs of up to 64 partitions. Reassigning nodes until the limits hold had 1 % more
halo rows on average.
"""

from __future__ import annotations

import logging
from typing import NamedTuple

import numpy as np

from xnq_dist.core.arrays import Ints, Ints32
from xnq_dist.core.kernel import kernel
from xnq_dist.graph.csr import Csr
from xnq_dist.graph.moves import FIRST, propagate

__all__ = ["hold_limits"]

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


class Limits(NamedTuple):
    """Maximum size of a partition."""

    nodes: int
    edges: int


def find_limits(degrees: Ints, partitions: int) -> Limits:
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
    limits = find_limits(degrees, partitions)
    nodes = np.bincount(part, minlength=partitions)
    edges = np.bincount(part, degrees, partitions).astype(np.int64)
    sizes = np.stack([nodes, edges], axis=1)
    for loss in LOSSES:
        if (sizes <= limits).all():
            return
        for rows in csr.chunks():
            ease(*rows.edges, part, sizes, limits, loss)


@kernel
def excess(size: Ints, nodes: int, edges: int, limits: Limits) -> int:
    """By how much a partition with more nodes and edges exceeds its limits, in edges.

    A node counts as many edges as partitions have for each node.
    """
    by_nodes = max(size[0] + nodes - limits.nodes, 0)
    by_edges = max(size[1] + edges - limits.edges, 0)
    return int(by_nodes * (limits.edges // limits.nodes + 1) + by_edges)


@kernel
def ease(
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
        eased = excess(sizes[old], 0, 0, limits)
        eased -= excess(sizes[old], -1, -degree, limits)
        if eased == 0:
            continue
        votes[:] = 0
        for edge in range(begin, end):
            votes[part[indices[edge]]] += indices[edge] != v
        best = old
        for q in range(sizes.shape[0]):
            strained = excess(sizes[q], 1, degree, limits)
            strained -= excess(sizes[q], 0, 0, limits)
            may = strained < eased and votes[q] >= votes[old] * (1 - loss)
            if may and (best == old or votes[q] > votes[best]):
                best = q
        if best != old:
            sizes[old, 0] -= 1
            sizes[old, 1] -= degree
            sizes[best, 0] += 1
            sizes[best, 1] += degree
            part[v] = best
