"""Refines a partitioning: fewer halo rows, and nodes and edges within their limits.

A node u costs a halo row in each other partition that has an out-neighbour of u,
however many it has there. A table counts, for every node, its out-neighbours in each
partition, so that the gain of a move is exact. The true cost gives no gradient (moving
the second of three neighbours saves nothing). The first passes therefore use halving
costs: the first out-neighbour in a partition costs 1, the next 1/2, then 1/4. The last
passes count halo rows. Gains of the nodes of a batch are computed from the same table;
then the nodes move one by one, so that limits hold at every step.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import partial

import numpy as np
from numba import njit

from xnq_dist.core.arrays import Bools, Bytes, Ints, Ints32
from xnq_dist.graph.csr import Csr, CsrRows
from xnq_dist.graph.move_costs import UNIT, WIDE
from xnq_dist.graph.moves import (
    HALVING,
    ROWS,
    cost_rows,
    count_moves,
    count_rows,
    empty_table,
    hide_homes,
    take_moves,
    weigh_moves,
)
from xnq_dist.graph.thread_pool import BATCHES, ThreadPool, batches, max_batch_rows

__all__ = ["columns_in", "refine"]

log = logging.getLogger(__name__)

EDGE_SLACK = 1.1
"""Maximum edges of a partition over the mean."""
NODE_SLACK = 1.05
"""Maximum nodes of a partition over the mean: descriptors, products and posteriors take
time by nodes. With 1.3, which is always used up, halo rows are a few per cent fewer."""
SCHEDULE = (HALVING, HALVING, HALVING, HALVING, ROWS, ROWS)
MIN_SAVING = 0.03
"""A pass that saves no more than this share of the cost is the last one with its cost;
another one would save a quarter or a third of that."""
EXTRA_PASSES = 6
"""Maximum number of further passes while limits are violated."""
REASSIGNED = (64, 16, 4, 1)
"""One of so many nodes is reassigned if moves did not reach the limits."""


@dataclass(frozen=True)
class Limits:
    """Maximum nodes and edges of a partition."""

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


def refine(
    csr: Csr,
    part: Ints32,
    partitions: int,
    memory: int,
    schedule: tuple[int, ...] = SCHEDULE,
) -> None:
    """Move nodes, in place, each to the partition with the largest gain.

    Parameters
    ----------
    csr
        Canonical adjacency; streamed once to count, and at most once for each pass of
        the schedule.
    part
        Partition of each node, shape (N,); overwritten.
    partitions
        Number of partitions, P.
    memory
        Bytes for the table: one byte for each node and partition, for at least eight
        partitions. If not all fit, groups of partitions are refined in turn.
    schedule
        The cost of each pass; a cost whose pass saves at most `MIN_SAVING` is not used
        again.
    """
    limits = find_limits(csr, partitions)
    with ThreadPool() as pool:
        for group in _groups(partitions, columns_in(memory, len(part))):
            loads = _Loads.of(csr, part, partitions)
            turn = _Turn.of(pool, csr, part, partitions, group)
            _refine_group(turn, loads, limits, schedule)
    violated = _Loads.of(csr, part, partitions).over(limits).any()
    if violated and _reassign(csr, part, partitions, limits):
        refine(csr, part, partitions, memory, schedule[-1:])


def columns_in(memory: int, nodes: int) -> int:
    """Maximum partitions of a group, so that its table is within the memory."""
    return max(memory // nodes // WIDE, 1) * WIDE


def _refine_group(
    turn: _Turn, loads: _Loads, limits: Limits, schedule: tuple[int, ...]
) -> None:
    """Move nodes, in place, between the partitions of a group."""
    settled = -1
    for number in range(len(schedule) + EXTRA_PASSES):
        cost = schedule[min(number, len(schedule) - 1)]
        over = loads.over(limits)[turn.group].any()
        if number >= len(schedule) and not over:
            break
        if cost == settled and not over:
            continue
        moved, saved = turn.move(cost, loads, limits)
        if not over and saved <= MIN_SAVING * turn.costs(cost):
            settled = cost
        log.info(
            "refinement: %d nodes moved, %.0f saved (%s)",
            moved,
            saved / UNIT,
            "rows" if cost == ROWS else "halving",
        )


@dataclass(frozen=True)
class _Loads:
    """Nodes and edges of each partition; updated while nodes move."""

    nodes: Ints
    edges: Ints

    @classmethod
    def of(cls, csr: Csr, part: Ints32, partitions: int) -> _Loads:
        edges = np.bincount(part, np.diff(csr.indptr), partitions).astype(np.int64)
        return cls(np.bincount(part, minlength=partitions), edges)

    def over(self, limits: Limits) -> Bools:
        """Which partitions exceed their limits, shape (P,)."""
        over: Bools = self.nodes > limits.nodes
        return over | (self.edges > limits.edges)


@dataclass(frozen=True)
class _Turn:
    """A group of partitions that exchange nodes."""

    pool: ThreadPool
    csr: Csr
    part: Ints32
    group: Ints
    """Partition of each column."""
    slot: Ints
    """Column of each partition, or -1."""
    table: Bytes
    home: Bytes

    @classmethod
    def of(
        cls, pool: ThreadPool, csr: Csr, part: Ints32, partitions: int, group: Ints
    ) -> _Turn:
        """The turn of a group, its table counted in one pass."""
        slot = np.full(partitions, -1, np.int64)
        slot[group] = np.arange(len(group))
        table = empty_table(len(part), len(group))
        home = np.zeros(len(part), np.uint8)
        for rows in batches(csr):
            count = partial(count_rows, rows.edges, part, slot, table)
            pool.divide(len(group), len(rows.indices), count)
        hide_homes(part, slot, table, home)
        return cls(pool, csr, part, group, slot, table, home)

    def costs(self, cost: int) -> int:
        """Cost of all nodes in the partitions of the group."""
        return int(cost_rows(self.part, self.slot, self.table, cost))

    def move(self, cost: int, loads: _Loads, limits: Limits) -> tuple[int, int]:
        """Do one pass over all rows; return the number of moves and the cost saved."""
        width = self.table.shape[1]
        batch_rows = max_batch_rows(self.csr, BATCHES)
        gains, considered = (
            np.empty((batch_rows, width), np.int64),
            np.empty(batch_rows, np.bool_),
        )
        moved, ends = (
            np.empty(batch_rows, np.int64),
            np.empty((batch_rows, 2), np.int32),
        )
        base = int(self.csr.indptr[-1]) // len(self.part) + 1
        state = (self.slot, self.table, self.home)
        owned = loads.nodes, loads.edges
        maxima = limits.nodes, limits.edges, base
        total = 0, 0
        for rows in batches(self.csr, BATCHES):
            over = loads.over(limits)

            def weigh(_: int, low: int, piece: CsrRows, over: Bools = over) -> None:
                out = gains[low:], considered[low:]
                weigh_moves(piece.edges, self.part, state, over, cost, *out)

            self.pool.share(rows, weigh)
            degrees, weighed = np.diff(rows.indptr), (gains, considered)
            owners = self.part, self.group, state, owned, maxima, (moved, ends)
            count, saved = take_moves(rows.first, weighed, degrees, *owners)
            done = moved[:count], ends
            work = partial(count_moves, rows.edges, done, self.part, state)
            self.pool.divide(len(self.group), int(degrees[done[0]].sum()), work)
            total = total[0] + count, total[1] + saved
        return total


def _groups(partitions: int, size: int) -> list[Ints]:
    """Groups of partitions that exchange nodes: consecutive ones, then strided ones."""
    every = np.arange(partitions)
    turns = -(-partitions // size)
    if turns == 1:
        return [every]
    near = np.array_split(every, turns)
    return [*near, *(every[turn::turns] for turn in range(turns))]


def _reassign(csr: Csr, part: Ints32, partitions: int, limits: Limits) -> bool:
    """Reassign some nodes, by falling degree, if limits are still violated.

    Every 64th node (if that is not enough every 16th, and so on) goes to the partition
    with the fewest edges that is below its limits. If even reassigning all nodes fails,
    they are assigned in turn, which leaves each partition with at most the mean and one
    node's edges. Returns whether the limits hold.
    """
    degrees = np.diff(csr.indptr)
    for every in REASSIGNED:
        some = np.arange(0, len(part), every)
        some = some[np.argsort(-degrees[some], kind="stable")]
        stay = np.ones(len(part), np.bool_)
        stay[some] = False
        nodes = np.bincount(part[stay], minlength=partitions)
        edges = np.bincount(part[stay], degrees[stay], partitions).astype(np.int64)
        to = np.empty(len(some), np.int64)
        if assign(degrees[some], nodes, edges, limits.nodes, limits.edges, to):
            part[some] = to
            log.info("one of %d nodes was reassigned to keep the limits", every)
            return True
    nodes = np.bincount(part, minlength=partitions)
    edges = np.bincount(part, degrees, partitions).astype(np.int64)
    if nodes.max() > limits.nodes or edges.max() > edges.mean() + degrees.max():
        turn, place = np.divmod(np.arange(len(some)), partitions)
        part[some] = np.where(turn % 2 == 0, place, partitions - 1 - place)
    return False


@njit(cache=True, nogil=True)
def assign(
    degrees: Ints, nodes: Ints, edges: Ints, max_nodes: int, max_edges: int, to: Ints
) -> bool:
    """Assign each node to the partition with the fewest edges, within the limits.

    `nodes` and `edges`: counts of each partition, updated, shape (P,). The partition of
    each node is written to `to`. Returns whether all nodes fit.
    """
    for p in range(nodes.shape[0]):
        if nodes[p] > max_nodes or edges[p] > max_edges:
            return False
    for i in range(degrees.shape[0]):
        best = -1
        for p in range(nodes.shape[0]):
            if nodes[p] >= max_nodes or edges[p] + degrees[i] > max_edges:
                continue
            less = best < 0 or edges[p] < edges[best]
            if less or (edges[p] == edges[best] and nodes[p] < nodes[best]):
                best = p
        if best < 0:
            return False
        to[i] = best
        nodes[best] += 1
        edges[best] += degrees[i]
    return True
