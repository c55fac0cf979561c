"""Label propagation: nodes join the communities of most of their neighbours.

Large communities lose votes by modularity's penalty, or have a maximum size. Nodes move
one after the other, each with the latest choices of all others. In canonical order
alone communities of a grid grow along its rows, so nodes may be due in different
passes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from xnq_dist.core.arrays import Bytes, Floats, Floats32, Ints, Ints32
from xnq_dist.core.simd import prefetch
from xnq_dist.graph.csr import Csr

__all__ = ["FIRST", "Communities", "numbered"]

AHEAD = 32
"""Prefetch distance in edges for labels, and half of it for their weights."""
SPREAD = 2654435769
LOW_BITS = 2**32 - 1
FIRST = 4
"""The pass from which on nodes are due again when a neighbour moved."""
NEVER = 255
Edges = tuple[int, Ints, Ints32]
"""First row, row pointers as offsets in the indices, and indices."""
Table = tuple[Ints32, Floats, Ints32]
"""Labels and their votes by slot, -1 and undefined if free; the slots in use."""
State = tuple[NDArray[Any], Floats, NDArray[Any], Bytes]
"""Community of each node, (N, 1); strength, (N,); weight of each community, (C, 1);
the pass in which each node is due, (N,)."""


@dataclass(frozen=True)
class Communities:
    """A community for each node, changed in place when nodes move."""

    label: Ints32
    """Shape (N,)."""
    strength: Floats
    """Weight of each node, shape (N,)."""
    weight: Floats
    """Sum of the weights of each community, shape (C,)."""
    due: Bytes
    """The pass in which each node is due, shape (N,)."""
    penalty: float
    """Votes that a community loses for each unit of its weight and the node's."""
    limit: float
    """Maximum weight of a community that nodes join."""

    def move(self, csr: Csr, turn: int) -> int:
        """Let the nodes that are due up to this pass choose and move; how many moved.

        From `FIRST` on, nodes with neighbours that moved are due again.
        """
        columns = self.label.reshape(-1, 1), self.weight.reshape(-1, 1)
        state = columns[0], self.strength, columns[1], self.due
        rules = self.penalty, self.limit, turn
        chunks = csr.chunks()
        return sum(move_rows(each.edges, each.weights, state, rules) for each in chunks)


def numbered(label: Ints32) -> tuple[Ints32, int]:
    """Labels renumbered from 0 in the same order, and their number."""
    used = np.zeros(len(label), np.bool_)
    used[label] = True
    number = np.cumsum(used, dtype=np.int32)
    clusters = int(number[-1])
    number -= 1
    return number[label], clusters


@njit(cache=True, nogil=True)
def empty_table(size: int) -> Table:
    """A hash table for the labels of a row with at most `size` neighbours."""
    return (
        np.full(2 * size, -1, np.int32),
        np.empty(2 * size, np.float64),
        np.empty(size, np.int32),
    )


@njit(cache=True, nogil=True)
def add_vote(table: Table, degree: int, count: int, label: int, vote: float) -> int:
    """Add a vote for a label; return the number of labels in the table, now `count`.

    Only the first ``2 * degree`` slots are used, so that those of a row stay in cache.
    """
    labels, sums, met = table
    slot = (((label * SPREAD) & LOW_BITS) * (2 * degree)) >> 32
    while labels[slot] != label and labels[slot] >= 0:
        slot = slot + 1 if slot + 1 < 2 * degree else 0
    if labels[slot] < 0:
        labels[slot], sums[slot] = label, 0.0
        met[count] = slot
        count += 1
    sums[slot] += vote
    return count


@njit(cache=True, nogil=True)
def move_rows(
    edges: Edges, votes: Floats32, state: State, rules: tuple[float, float, int]
) -> int:
    """Let each row choose a community and move to it; return how many moved.

    A community gains its votes less the penalty times its weight and the node's, both
    without the node; a tie keeps the old community, else takes the first. `votes` of
    each edge; empty: one each. `rules`: penalty, limit and number of the pass. Only
    rows that are due up to it choose, and then are due again if a neighbour leaves for
    a community that is not theirs.
    """
    first, indptr, indices = edges
    label, strength, weight, due = state
    penalty, limit, turn = rules
    table = empty_table(np.diff(indptr).max() + 1)
    labels, sums, met = table
    last = indices.shape[0] - 1
    moved = 0
    for row in range(indptr.shape[0] - 1):
        v = first + row
        old, own = label[v, 0], strength[v]
        if due[v] > turn:
            continue
        due[v] = NEVER
        if own > limit:
            continue
        degree = indptr[row + 1] - indptr[row]
        count, kept = 0, 0.0
        for i in range(indptr[row], indptr[row + 1]):
            prefetch(label, indices[min(i + AHEAD, last)], 0)
            prefetch(weight, label[indices[min(i + AHEAD // 2, last)], 0], 0)
            u = indices[i]
            if u == v:
                continue
            vote = np.float64(votes[i]) if votes.shape[0] > 0 else 1.0
            if label[u, 0] == old:
                kept += vote
            else:
                count = add_vote(table, degree, count, label[u, 0], vote)
        best, gain = old, kept - penalty * own * (weight[old, 0] - own)
        for i in range(count):
            other, sum_ = labels[met[i]], sums[met[i]]
            labels[met[i]] = -1
            more = sum_ - penalty * own * weight[other, 0]
            if sum_ > 0 and more > gain and weight[other, 0] + own <= limit:
                best, gain = other, more
        if best != old:
            weight[old, 0] -= own
            weight[best, 0] += own
            label[v, 0] = best
            moved += 1
            for i in range(indptr[row], indptr[row + 1]):
                u = indices[i]
                if due[u] > FIRST and label[u, 0] != best:
                    due[u] = FIRST
    return moved
