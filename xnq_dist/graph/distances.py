"""Effective diameter: the distance within which 90 % of the connected pairs lie.

A node's state after L supersteps depends on the nodes within L steps. The effective
diameter is estimated by breadth-first search from `SOURCES` nodes at once: each source
has a bit in a word of every node, and a pass over the rows adds the bits of a node's
in-neighbours to its own.

References
----------
J. Leskovec, J. Kleinberg, C. Faloutsos, "Graphs over time: densification laws,
shrinking diameters and possible explanations", KDD 2005 (the effective diameter).
"""

from __future__ import annotations

import numpy as np

from xnq_dist.core.arrays import Ints, Ints32, Words
from xnq_dist.core.kernel import kernel
from xnq_dist.core.random_bits import Purpose, stream
from xnq_dist.graph.csr import Csr

__all__ = ["MAX_STEPS", "SHARE", "effective_diameter"]

SOURCES = 64
"""Bits of a word."""
FULL = np.uint64(2**64 - 1)  # of a node that all 64 sources have reached
SHARE = 0.9
"""Share of the pairs within the effective diameter."""
MAX_STEPS = 30
"""Maximum number of supersteps derived from distances."""


def effective_diameter(csr: Csr) -> int:
    """Steps within which 90 % of the pairs within `MAX_STEPS` steps lie; at least 1.

    A step leads from a node to a node that has it as in-neighbour. The search starts
    from 64 random nodes with in-neighbours (from all if there are fewer), the same in
    every run. Memory is two 8-byte words a node.
    """
    degrees = np.diff(csr.indptr)
    linked = np.flatnonzero(degrees)
    if not len(linked):
        return 1
    count = min(SOURCES, len(linked))
    sources = stream(0, Purpose.DISTANCES).choice(linked, count, replace=False)
    before = np.zeros(len(degrees), np.uint64)
    before[sources] = np.uint64(1) << np.arange(count, dtype=np.uint64)
    reached = [int(np.bitwise_count(before).sum())]
    after = before.copy()
    for _ in range(MAX_STEPS):
        csr.map(lambda rows: spread_kernel(*rows.edges, before, after))
        reached.append(int(np.bitwise_count(after).sum()))
        if reached[-1] == reached[-2]:
            break
        before[:] = after
    pairs = np.array(reached) - reached[0]
    return max(1, int(np.searchsorted(pairs, SHARE * pairs[-1])))


@kernel
def spread_kernel(
    first: int, indptr: Ints, indices: Ints32, before: Words, after: Words
) -> None:
    """Write each row's word, combined with those of its in-neighbours, to `after`."""
    for row in range(indptr.shape[0] - 1):
        word, edge = before[first + row], indptr[row]
        while word != FULL and edge < indptr[row + 1]:
            word |= before[indices[edge]]
            edge += 1
        after[first + row] = word
