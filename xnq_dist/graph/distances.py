"""How far nodes are apart: after how many steps most of what can be reached is.

A node's state after L supersteps has seen what lies within L steps of it. The distance
that holds for 90 % of the pairs (the effective diameter) is estimated by breadth-first
search from `SOURCES` nodes at once: each has a bit in a word of every node, and a pass
over the rows gives a node what its in-neighbours have.

References
----------
J. Leskovec, J. Kleinberg, C. Faloutsos, "Graphs over time: densification laws,
shrinking diameters and possible explanations", KDD 2005 (the effective diameter).
"""

from __future__ import annotations

import numpy as np
from numba import njit

from xnq_dist.core.random_bits import Purpose, stream
from xnq_dist.graph.arrays import Ints, Ints32, Words
from xnq_dist.graph.csr import Csr

__all__ = ["MOST_STEPS", "effective_diameter"]

SOURCES = 64
"""Bits of a word."""
SHARE = 0.9
MOST_STEPS = 30
"""Beyond it no number of supersteps follows from the distances."""


def effective_diameter(csr: Csr, most: int) -> int:
    """Steps within which 90 % of the pairs lie that are within `most` steps, at most.

    A step leads from a node to those that it is an in-neighbour of. From 64 sources
    drawn among the nodes with in-neighbours (all where there are no more); the same for
    every run, and 1 for a graph without edges. Memory: two words of 8 bytes a node, and
    a chunk of edges.
    """
    degrees = np.diff(csr.indptr)
    linked = np.flatnonzero(degrees)
    if not len(linked):
        return 1
    sources = linked
    if len(linked) > SOURCES:
        sources = np.sort(
            stream(0, Purpose.DISTANCES).choice(linked, SOURCES, replace=False)
        )
    before = np.zeros(len(degrees), np.uint64)
    before[sources] = np.uint64(1) << np.arange(len(sources), dtype=np.uint64)
    reached = [int(np.bitwise_count(before).sum())]
    after = before.copy()
    for _ in range(most):
        for rows in csr.chunks():
            spread_kernel(*rows.edges, before, after)
        reached.append(int(np.bitwise_count(after).sum()))
        if reached[-1] == reached[-2]:
            break
        before[:] = after
    pairs = np.array(reached) - reached[0]
    return max(1, int(np.searchsorted(pairs, SHARE * pairs[-1])))


@njit(cache=True, nogil=True)
def spread_kernel(
    first: int, indptr: Ints, indices: Ints32, before: Words, after: Words
) -> None:
    """Add the words of their in-neighbours to the words of some rows, in `after`."""
    for row in range(indptr.shape[0] - 1):
        word = before[first + row]
        for edge in range(indptr[row], indptr[row + 1]):
            word |= before[indices[edge]]
        after[first + row] = word
