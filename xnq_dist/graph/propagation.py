"""Label propagation with maximum sizes: for clusters, and for limits on partitions.

In a pass each node joins the label of most of its in-neighbours, if that label stays
within its limits. The nodes of a batch choose in parallel, then join one by one, so the
result is the same for any number of threads and limits hold at every step. From each
node alone a few passes find clusters. From a partitioning that exceeds its limits they
move nodes until the limits hold: those nodes may also leave at a loss.

References
----------
H. Meyerhenke, P. Sanders, C. Schulz, "Partitioning complex networks via
size-constrained clustering", SEA 2014.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from xnq_dist.core.arrays import Bools, Floats, Floats32, Ints, Ints32
from xnq_dist.core.simd import prefetch
from xnq_dist.core.threads import threads_here
from xnq_dist.graph.batches import batches, max_batch_rows, share_rows
from xnq_dist.graph.csr import NO_WEIGHTS, Csr, CsrRows

__all__ = ["ROUNDS", "Labels", "Limits", "numbered"]

ROUNDS = 3
"""Maximum number of passes in which nodes only gain: after 5 instead of 3, five real
graphs had from 3 % fewer to 3 % more halo rows, a generated one 5 % more."""
AHEAD = 32
"""Prefetch distance in edges for labels, and half of it for their sizes."""
SPREAD = 2654435769
LOW_BITS = 2**32 - 1
LEAVES = -1
"""Choice of a node that may leave for any label."""
Edges = tuple[int, Ints, Ints32]
"""First row, row pointers as offsets in the indices, and indices."""
State = tuple[NDArray[Any], Ints, Ints]
"""Label of each node, (N, 1); size of each node, (N, 2); size of each label, (L, 2)."""
Table = tuple[Ints32, Floats, Ints32]
"""Labels and their votes by slot, -1 and undefined if free; the slots in use."""


class Limits(NamedTuple):
    """Maximum size of a label."""

    nodes: int
    edges: int

    @property
    def excess(self) -> tuple[int, int, int]:
        """Both limits, and how many edges a node above its limit counts as."""
        return self.nodes, self.edges, self.edges // self.nodes + 1


@dataclass(frozen=True)
class Labels:
    """A label for each node, changed in place when nodes move."""

    label: Ints32
    """Shape (N,)."""
    own: Ints
    """Nodes and edges that each node stands for, shape (N, 2)."""
    sizes: Ints
    """Sums of `own` by label, shape (L, 2)."""

    @classmethod
    def of(cls, label: Ints32, own: Ints, count: int) -> Labels:
        """The labels and their sizes; `count`: number of labels, L."""
        sums = [np.bincount(label, column, count) for column in own.T]
        return cls(label, own, np.stack(sums, axis=1).astype(np.int64))

    def over(self, limits: Limits) -> bool:
        """Whether any label exceeds its limits."""
        return bool((self.sizes > limits).any())

    def move(
        self, csr: Csr, limits: Limits, loss: float = 0.0, weighted: bool = False
    ) -> int:
        """Make one pass over all nodes; return how many moved.

        `loss`: share of its votes that a node may lose when it leaves a label above
        its limits. `weighted`: an edge has as many votes as its weight, else one.
        """
        choice = np.empty(max_batch_rows(csr), np.int32)
        gains = np.empty(len(choice), np.bool_)
        state = self.label.reshape(-1, 1), self.own, self.sizes

        def choose(low: int, rows: CsrRows) -> None:
            votes = rows.weights if weighted else NO_WEIGHTS
            chosen = choice[low:], gains[low:]
            choose_labels(rows.edges, votes, state, limits.excess, loss, chosen)

        moved, threads = 0, threads_here()
        for rows in batches(csr):
            share_rows(rows, choose, threads)
            size = len(rows.indptr) - 1
            chosen = choice[:size], gains[:size]
            moved += join_labels(rows.first, chosen, state, limits.excess)
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
def _excess(nodes: int, edges: int, limits: tuple[int, int, int]) -> int:
    """By how much a label exceeds its limits, in edges."""
    return max(nodes - limits[0], 0) * limits[2] + max(edges - limits[1], 0)


@njit(cache=True, nogil=True)
def _eased(own: Ints, size: Ints, limits: tuple[int, int, int]) -> int:
    """By how much less a label exceeds its limits without a node."""
    without = _excess(size[0] - own[0], size[1] - own[1], limits)
    return _excess(size[0], size[1], limits) - without


@njit(cache=True, nogil=True)
def _strained(own: Ints, size: Ints, limits: tuple[int, int, int]) -> int:
    """By how much more a label exceeds its limits with another node."""
    with_it = _excess(size[0] + own[0], size[1] + own[1], limits)
    return with_it - _excess(size[0], size[1], limits)


@njit(cache=True, nogil=True)
def choose_labels(
    edges: Edges,
    votes: Floats32 | Ints,
    state: State,
    limits: tuple[int, int, int],
    loss: float,
    chosen: tuple[Ints32, Bools],
) -> None:
    """Choose a label for each row: most votes, a tie keeps the old one or the first.

    A move may not increase the total excess over the limits. One that reduces it may
    lose the share `loss` of the row's votes for its old label; any other must gain.
    `votes` of each edge; empty: one each. Output: the choices, `LEAVES` for rows that
    may lose all votes and whose neighbours have no label for them; whether they gain.
    """
    first, indptr, indices = edges
    label, own, sizes = state
    choice, gains = chosen
    rows = indptr.shape[0] - 1
    widest = 1
    for row in range(rows):
        widest = max(widest, indptr[row + 1] - indptr[row])
    table = empty_table(widest)
    labels, sums, met = table
    last = indices.shape[0] - 1
    for row in range(rows):
        v = first + row
        old = label[v, 0]
        degree = indptr[row + 1] - indptr[row]
        count, kept = 0, 0.0
        for edge in range(indptr[row], indptr[row + 1]):
            prefetch(label, indices[min(edge + AHEAD, last)], 0)
            prefetch(sizes, label[indices[min(edge + AHEAD // 2, last)], 0], 0)
            if indices[edge] == v:
                continue
            other = label[indices[edge], 0]
            vote = np.float64(votes[edge]) if votes.shape[0] > 0 else 1.0
            if other == old:
                kept += vote
            else:
                count = add_vote(table, degree, count, other, vote)
        eased = _eased(own[v], sizes[old], limits)
        least = -loss * kept if eased > 0 else 0.0
        best, gained = old, -np.inf
        if eased > 0 and loss > 0 and least <= -kept:
            best = LEAVES
        for i in range(count):
            other, gain = labels[met[i]], sums[met[i]] - kept
            labels[met[i]] = -1
            if gain <= gained or gain < least:
                continue
            strained = _strained(own[v], sizes[other], limits)
            if strained < eased or (strained == eased and gain > 0):
                best, gained = other, gain
        choice[row], gains[row] = best, gained > 0


@njit(cache=True, nogil=True)
def join_labels(
    first: int,
    chosen: tuple[Ints32, Bools],
    state: State,
    limits: tuple[int, int, int],
) -> int:
    """Let rows join their chosen labels under the same rules; return how many moved.

    Rows that leave for any label join the first one that exceeds its limits least.
    """
    choice, gains = chosen
    label, own, sizes = state
    moved = 0
    for row in range(choice.shape[0]):
        v, best = first + row, choice[row]
        old = label[v, 0]
        eased = _eased(own[v], sizes[old], limits)
        if best == old or (best == LEAVES and eased == 0):
            continue
        if best == LEAVES:
            best = 0
            for q in range(sizes.shape[0]):
                least = _strained(own[v], sizes[best], limits)
                if _strained(own[v], sizes[q], limits) < least:
                    best = q
        strained = _strained(own[v], sizes[best], limits)
        if strained < eased or (strained == eased and gains[row]):
            sizes[old] -= own[v]
            sizes[best] += own[v]
            label[v, 0] = best
            moved += 1
    return moved
