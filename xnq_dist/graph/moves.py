"""Label propagation: nodes join the communities of most of their neighbours.

Large communities lose votes by modularity's penalty, or have a maximum size. The nodes
of a batch choose in parallel, then join one by one, so the result is the same for any
number of threads. In canonical order alone communities of a grid grow along its rows,
so nodes may be due in different passes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from xnq_dist.core.arrays import Bytes, Floats, Floats32, Ints, Ints32
from xnq_dist.core.simd import prefetch
from xnq_dist.graph.batches import batches, max_batch_rows, share_rows
from xnq_dist.graph.csr import Csr, CsrRows

__all__ = ["FIRST", "Communities", "join_communities", "numbered"]

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
        """Let the nodes that are due up to this pass choose and join; how many moved.

        From `FIRST` on, nodes with neighbours that moved are due again.
        """
        choice = np.empty(max_batch_rows(csr), np.int32)
        columns = self.label.reshape(-1, 1), self.weight.reshape(-1, 1)
        state = columns[0], self.strength, columns[1], self.due
        rules = self.penalty, self.limit, turn

        def choose(low: int, rows: CsrRows) -> None:
            choose_communities(rows.edges, rows.weights, state, rules, choice[low:])

        def mark(before: Ints32, low: int, rows: CsrRows) -> None:
            mark_due(rows.edges, before[low:], self.label, self.due)

        moved = 0
        for rows in batches(csr):
            size = len(rows.indptr) - 1
            before = self.label[rows.first : rows.first + size].copy()
            share_rows(rows, choose)
            nodes = self.strength, self.label, self.weight
            moved += join_communities(rows.first, choice[:size], *nodes, self.limit)
            share_rows(rows, partial(mark, before))
        return moved


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
def choose_communities(
    edges: Edges,
    votes: Floats32,
    state: State,
    rules: tuple[float, float, int],
    choice: Ints32,
) -> None:
    """Choose a community for each row; a tie keeps the old one, else takes the first.

    A community gains its votes less the penalty times its weight and the node's, both
    without the node. `votes` of each edge; empty: one each. `rules`: penalty, limit and
    number of the pass. Only rows that are due up to it choose, and then are never due.
    The result is written to `choice`, the old community for other rows.
    """
    first, indptr, indices = edges
    label, strength, weight, due = state
    penalty, limit, turn = rules
    table = empty_table(np.diff(indptr).max() + 1)
    labels, sums, met = table
    last = indices.shape[0] - 1
    for row in range(indptr.shape[0] - 1):
        v = first + row
        old, own = label[v, 0], strength[v]
        choice[row] = old
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
        gain = kept - penalty * own * (weight[old, 0] - own)
        for i in range(count):
            other, sum_ = labels[met[i]], sums[met[i]]
            labels[met[i]] = -1
            more = sum_ - penalty * own * weight[other, 0]
            fits = weight[other, 0] + own <= limit
            if sum_ > 0 and more > gain and fits:
                choice[row], gain = other, more


@njit(cache=True, nogil=True)
def join_communities(
    first: int,
    choice: Ints32,
    strength: Ints | Floats,
    label: Ints32,
    weight: Ints | Floats,
    limit: float,
) -> int:
    """Let rows join their chosen community within the limit; return how many moved."""
    moved = 0
    for row in range(choice.shape[0]):
        v, best = first + row, choice[row]
        old = label[v]
        if best != old and weight[best] + strength[v] <= limit:
            weight[old] -= strength[v]
            weight[best] += strength[v]
            label[v] = best
            moved += 1
    return moved


@njit(cache=True, nogil=True)
def mark_due(edges: Edges, before: Ints32, label: Ints32, due: Bytes) -> None:
    """Nodes are due if a neighbour left community `before` for one not theirs."""
    first, indptr, indices = edges
    for row in range(indptr.shape[0] - 1):
        joined = label[first + row]
        if joined != before[row]:
            for i in range(indptr[row], indptr[row + 1]):
                u = indices[i]
                if due[u] > FIRST and label[u] != joined:
                    due[u] = FIRST
