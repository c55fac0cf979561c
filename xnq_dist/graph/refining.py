"""A division made better: fewer halo rows, and nodes and edges within their limits.

A node u costs a halo row in each partition, not its own, that has an out-neighbour of
u; how many it has there does not matter. A table counts, for every node, its
out-neighbours in each partition, and with it what a move changes is exact. The true
cost has no slope (the second of three rows leaves and nothing is saved), so the first
passes halve it: the first row of u in a partition costs 1, the next 1/2, then 1/4;
the last passes count halo rows. Nodes of a batch are weighed against the same table;
then they move one after the other, so that limits hold at every step.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import partial

import numpy as np
from numba import njit

from xnq_dist.graph.arrays import Bools, Bytes, Ints, Ints32
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
from xnq_dist.graph.thread_pool import BATCHES, Crew, batches, most_rows

__all__ = ["refine"]

log = logging.getLogger(__name__)

EDGE_SLACK = 1.1
"""Most edges of a partition over the mean."""
NODE_SLACK = 1.3
"""Most nodes of a partition over the mean: a superstep costs more for edges."""
SCHEDULE = (HALVING, HALVING, HALVING, HALVING, ROWS, ROWS)
ENOUGH = 0.03
"""Share of its cost that a pass saves if another one is to follow: that one would save
a quarter or a third of it."""
MORE = 6
"""Passes more, while limits are broken."""
DEALT = (64, 16, 4, 1)
"""One node of so many is dealt anew where moves did not keep the limits."""


@dataclass(frozen=True)
class Limits:
    """Most that one partition may own."""

    nodes: int
    edges: int


def find_limits(csr: Csr, partitions: int) -> Limits:
    """The slacks times the means, or the largest hub's edges where they are more."""
    n, edges = len(csr.indptr) - 1, int(csr.indptr[-1])
    hub = int(np.diff(csr.indptr).max())
    limits = Limits(
        max(int(NODE_SLACK * n / partitions), -(-n // partitions)),
        max(int(EDGE_SLACK * edges / partitions), -(-edges // partitions), hub),
    )
    if hub > EDGE_SLACK * edges / partitions:
        log.warning(
            "one node has %d in-neighbours, %.2f times a partition's mean edges: "
            "fewer partitions would be in balance",
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
    """Move nodes, in place, each where it saves most within the limits.

    Parameters
    ----------
    csr
        Canonical adjacency; streamed once for each pass of the schedule, at most, and
        once before.
    part
        A partition for each node, shape (N,).
    partitions
        Number of partitions, P.
    memory
        Bytes for the table, one byte a node and partition, eight partitions at least;
        where all do not fit, partitions take turns, as many at a time as fit.
    schedule
        The cost that each pass counts; there is no second pass of a cost that saved
        less than `ENOUGH`.
    """
    limits = find_limits(csr, partitions)
    loads = _Loads.of(csr, part, partitions)
    fit = max(memory // len(part) // WIDE, 1) * WIDE
    with Crew() as crew:
        for group in _groups(partitions, fit):
            turn = _Turn.of(crew, csr, part, partitions, group)
            settled = -1
            for number in range(len(schedule) + MORE):
                cost = schedule[min(number, len(schedule) - 1)]
                over = loads.over(limits)[group].any()
                if number >= len(schedule) and not over:
                    break
                if cost == settled and not over:
                    continue
                moved, saved = turn.move(cost, loads, limits)
                if not over and saved <= ENOUGH * turn.costs(cost):
                    settled = cost
                log.info(
                    "refinement: %d nodes moved, %.0f saved (%s)",
                    moved,
                    saved / UNIT,
                    "rows" if cost == ROWS else "halving",
                )
            del turn
    broken = loads.over(limits).any()
    if broken and _deal(csr, part, partitions, limits):
        refine(csr, part, partitions, memory, schedule[-1:])


@dataclass(frozen=True)
class _Loads:
    """What each partition owns; changes while nodes move."""

    nodes: Ints
    edges: Ints

    @classmethod
    def of(cls, csr: Csr, part: Ints32, partitions: int) -> _Loads:
        edges = np.bincount(part, np.diff(csr.indptr), partitions).astype(np.int64)
        return cls(np.bincount(part, minlength=partitions), edges)

    def over(self, limits: Limits) -> Bools:
        """Which partitions are beyond their limits."""
        over: Bools = self.nodes > limits.nodes
        return over | (self.edges > limits.edges)


@dataclass(frozen=True)
class _Turn:
    """A group of partitions whose nodes change places."""

    crew: Crew
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
        cls, crew: Crew, csr: Csr, part: Ints32, partitions: int, group: Ints
    ) -> _Turn:
        """With the table counted in one pass."""
        slot = np.full(partitions, -1, np.int64)
        slot[group] = np.arange(len(group))
        table = empty_table(len(part), len(group))
        home = np.zeros(len(part), np.uint8)
        for rows in batches(csr):
            whole = rows.edges
            count = partial(count_rows, whole, part, slot, table)
            crew.divide(len(group), len(rows.indices), count)
        hide_homes(part, slot, table, home)
        return cls(crew, csr, part, group, slot, table, home)

    def costs(self, cost: int) -> int:
        """What all nodes cost in the partitions of the group."""
        return int(cost_rows(self.part, self.slot, self.table, cost))

    def move(self, cost: int, loads: _Loads, limits: Limits) -> tuple[int, int]:
        """One pass over all rows; how many nodes moved, and what they saved."""
        width = self.table.shape[1]
        most = most_rows(self.csr, BATCHES)
        gains, considered = np.empty((most, width), np.int64), np.empty(most, np.bool_)
        moved, ends = np.empty(most, np.int64), np.empty((most, 2), np.int32)
        base = int(self.csr.indptr[-1]) // len(self.part) + 1
        state = (self.slot, self.table, self.home)
        owned, room = (loads.nodes, loads.edges), (limits.nodes, limits.edges, base)
        total = 0, 0
        for rows in batches(self.csr, BATCHES):
            over = loads.over(limits)

            def weigh(_: int, low: int, piece: CsrRows, over: Bools = over) -> None:
                where = piece.edges
                found = gains[low:], considered[low:]
                weigh_moves(where, self.part, state, over, cost, *found)

            self.crew.share(rows, weigh)
            degrees, weighed = np.diff(rows.indptr), (gains, considered)
            given = self.part, self.group, state, owned, room, (moved, ends)
            count, saved = take_moves(rows.first, weighed, degrees, *given)
            whole, done = rows.edges, (moved[:count], ends)
            work = partial(count_moves, whole, done, self.part, state)
            self.crew.divide(len(self.group), int(degrees[done[0]].sum()), work)
            total = total[0] + count, total[1] + saved
        return total


def _groups(partitions: int, size: int) -> list[Ints]:
    """Partitions that exchange nodes: neighbours by number, then far ones."""
    every = np.arange(partitions)
    if size >= partitions:
        return [every]
    turns = -(-partitions // size)
    near = np.array_split(every, turns)
    return [*near, *(every[turn::turns] for turn in range(turns))]


def _deal(csr: Csr, part: Ints32, partitions: int, limits: Limits) -> bool:
    """Where limits are still broken: deal some nodes out anew, by falling degree.

    Every 64th node of all, where that does not do every 16th, and so on, goes to the
    partition with the fewest edges that has room. Where even all nodes do not fit, no
    partition may have more than the mean and one node's edges: what dealing to each in
    turn leaves at most. Returns whether the limits hold now.
    """
    degrees = np.diff(csr.indptr)
    for every in DEALT:
        some = np.arange(0, len(part), every)
        some = some[np.argsort(-degrees[some], kind="stable")]
        stay = np.ones(len(part), np.bool_)
        stay[some] = False
        nodes = np.bincount(part[stay], minlength=partitions)
        edges = np.bincount(part[stay], degrees[stay], partitions).astype(np.int64)
        to = np.empty(len(some), np.int64)
        if deal_out(degrees[some], nodes, edges, limits.nodes, limits.edges, to):
            part[some] = to
            log.info("one node of %d was dealt anew to keep the limits", every)
            return True
    nodes = np.bincount(part, minlength=partitions)
    edges = np.bincount(part, degrees, partitions).astype(np.int64)
    if nodes.max() > limits.nodes or edges.max() > edges.mean() + degrees.max():
        turn, place = np.divmod(np.arange(len(some)), partitions)
        part[some] = np.where(turn % 2 == 0, place, partitions - 1 - place)
    return False


@njit(cache=True, nogil=True)
def deal_out(
    degrees: Ints, nodes: Ints, edges: Ints, most_nodes: int, most_edges: int, to: Ints
) -> bool:
    """Give each node to the partition with the fewest edges; whether the limits hold.

    `nodes` and `edges`: what each partition has, before and after, shape (P,). The
    partition of each node is written to `to`.
    """
    for p in range(nodes.shape[0]):
        if nodes[p] > most_nodes or edges[p] > most_edges:
            return False
    for i in range(degrees.shape[0]):
        best = -1
        for p in range(nodes.shape[0]):
            if nodes[p] >= most_nodes or edges[p] + degrees[i] > most_edges:
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
