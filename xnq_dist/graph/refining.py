"""A division made better: fewer halo rows, and nodes and edges within their limits.

A node u costs a halo row in each partition, not its own, that has an out-neighbour of
u; how many it has there does not matter. A table counts, for every node, its
out-neighbours in each partition, and with it what a move changes is exact. The true
cost has no slope (the second of three rows leaves and nothing is saved), so the first
passes halve it: the first row of u in a partition costs 1, the next 1/2, then 1/4;
the last passes count halo rows.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

from xnq_dist.graph.csr import Csr
from xnq_dist.graph.prices import UNIT, WIDE, add_prices
from xnq_dist.lanes import prefetch

__all__ = ["Limits", "find_limits", "refine"]

log = logging.getLogger(__name__)

EDGE_SLACK = 1.1
"""Most edges of a partition over the mean."""
NODE_SLACK = 1.3
"""Most nodes of a partition over the mean: a superstep costs more for edges."""
HALVING, ROWS = 0, 5
"""The two costs: a row after c others costs ``UNIT >> (c << cost)``."""
SCHEDULE = (HALVING, HALVING, HALVING, HALVING, ROWS, ROWS)
MORE = 6
"""Passes more, while limits are broken."""
DEALT = (64, 16, 4, 1)
"""One node of so many is dealt anew where moves did not keep the limits."""
FULL = 255
RUN = 1 << 16
"""Edges whose prices are summed in int32."""
AHEAD = 8
"""Edges whose rows of the table are on their way from memory."""


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
    part: NDArray[np.int32],
    partitions: int,
    memory: int,
    schedule: tuple[int, ...] = SCHEDULE,
) -> None:
    """Move nodes, in place, each where it saves most within the limits.

    Parameters
    ----------
    csr
        Canonical adjacency; streamed once for each pass of the schedule, and once
        before.
    part
        A partition for each node, shape (N,).
    partitions
        Number of partitions, P.
    memory
        Bytes for the table, one byte a node and partition, eight partitions at least;
        where all do not fit, partitions take turns, as many at a time as fit.
    schedule
        The cost that each pass counts.
    """
    limits = find_limits(csr, partitions)
    nodes = np.bincount(part, minlength=partitions)
    edges = np.bincount(part, np.diff(csr.indptr), partitions).astype(np.int64)
    base = int(csr.indptr[-1]) // len(part) + 1
    fit = max(memory // len(part) // WIDE, 1) * WIDE
    for group in _groups(partitions, fit):
        slot = np.full(partitions, -1, np.int64)
        slot[group] = np.arange(len(group))
        table = empty_table(len(part), len(group))
        for rows in csr.chunks():
            count_rows(rows.first, rows.indptr, rows.indices, part, slot, table)
        for turn in range(len(schedule) + MORE):
            cost = schedule[min(turn, len(schedule) - 1)]
            over = (nodes > limits.nodes) | (edges > limits.edges)
            if turn >= len(schedule) and not over[group].any():
                break
            for rows in csr.chunks():
                move_nodes(
                    rows.first,
                    rows.indptr,
                    rows.indices,
                    part,
                    group,
                    slot,
                    table,
                    nodes,
                    edges,
                    (limits.nodes, limits.edges, base, cost),
                )
        del table
    over = (nodes > limits.nodes) | (edges > limits.edges)
    if over.any() and _deal(csr, part, partitions, limits):
        refine(csr, part, partitions, memory, schedule[-1:])


def empty_table(nodes: int, partitions: int) -> NDArray[np.uint8]:
    """Zeros for so many partitions, and columns up to a multiple of `WIDE`."""
    return np.zeros((nodes, -(-partitions // WIDE) * WIDE), np.uint8)


def _groups(partitions: int, size: int) -> list[NDArray[np.int64]]:
    """Partitions that exchange nodes: neighbours by number, then far ones."""
    every = np.arange(partitions)
    if size >= partitions:
        return [every]
    turns = -(-partitions // size)
    near = np.array_split(every, turns)
    return [*near, *(every[turn::turns] for turn in range(turns))]


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def count_rows(
    first: int,
    indptr: NDArray[np.int64],
    indices: NDArray[np.int32],
    part: NDArray[np.int32],
    slot: NDArray[np.int64],
    table: NDArray[np.uint8],
) -> None:
    """Add some rows to the table; `FULL` means that many or more."""
    for row in range(indptr.shape[0] - 1):
        column = slot[part[first + row]]
        if column < 0:
            continue
        for edge in range(indptr[row], indptr[row + 1]):
            u = indices[edge]
            if u != first + row and table[u, column] < FULL:
                table[u, column] += 1


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _excess(nodes: int, edges: int, limits: tuple[int, int, int, int]) -> int:
    """What a partition weighs beyond its limits."""
    return max(nodes - limits[0], 0) * limits[2] + max(edges - limits[1], 0)


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _next(count: int, cost: int) -> int:
    """What one row more costs after so many."""
    shift = np.int64(count) << cost
    return int(UNIT >> (shift if shift < 31 else 31))


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _cost(count: int, cost: int) -> int:
    """What so many rows of one partition cost."""
    if cost == ROWS:
        return UNIT if count else 0
    return 2 * UNIT - (2 * UNIT >> min(count, 31))


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def move_nodes(
    first: int,
    indptr: NDArray[np.int64],
    indices: NDArray[np.int32],
    part: NDArray[np.int32],
    group: NDArray[np.int64],
    slot: NDArray[np.int64],
    table: NDArray[np.uint8],
    nodes: NDArray[np.int64],
    edges: NDArray[np.int64],
    limits: tuple[int, int, int, int],
) -> None:
    """One turn of some rows, each to the partition where it saves most.

    A move may not add to what is beyond limits, in sum over the partitions; one that
    takes from it may cost halo rows, any other must save some.

    Parameters
    ----------
    group, slot
        Partitions with a column in the table, shape (G,); column of each partition or
        -1, shape (P,).
    table
        Out-neighbours of each node in each partition of the group, (N, G), and columns
        of zeros up to a multiple of `WIDE`.
    nodes, edges
        Of each partition so far, shape (P,).
    limits
        Most nodes, most edges, what a node weighs in edges, `HALVING` or `ROWS`.
    """
    size = group.shape[0]
    cost = limits[3]
    width = table.shape[1]
    some = np.empty(width, np.int32)
    # The last one is of partitions that are not in the group.
    price = np.empty(width + 1, np.int64)
    last = indices.shape[0] - 1
    for row in range(indptr.shape[0] - 1):
        v = first + row
        old = part[v]
        at = slot[old]
        if at < 0 or nodes[old] <= 1:
            continue
        price[:] = 0
        here = np.int64(0)
        for begin in range(indptr[row], indptr[row + 1], RUN):
            some[:] = 0
            for edge in range(begin, min(begin + RUN, indptr[row + 1])):
                prefetch(table, indices[min(edge + AHEAD, last)], 0)
                u = indices[edge]
                if u == v:
                    continue
                add_prices(table, u, cost, some)
                # At home nobody is a halo row.
                own = slot[part[u]]
                home = own if own >= 0 else width
                price[home] -= _next(table[u, max(own, 0)], cost)
                here += _next(table[u, at] - 1, cost) * (own != at)
            for q in range(size):
                price[q] += some[q]
        # Readers of v itself stop costing a row where v goes, and start where it was.
        here -= _cost(table[v, at], cost)
        degree = indptr[row + 1] - indptr[row]
        before = _excess(nodes[old], edges[old], limits)
        eased = before - _excess(nodes[old] - 1, edges[old] - degree, limits)
        best, saved = -1, np.int64(0)
        for q in range(size):
            p = group[q]
            if p == old:
                continue
            more = _excess(nodes[p] + 1, edges[p] + degree, limits)
            more -= _excess(nodes[p], edges[p], limits)
            gain = here - price[q] + _cost(table[v, q], cost)
            allowed = more < eased or (more == eased and gain > 0)
            if allowed and (best < 0 or gain > saved):
                best, saved = q, gain
        if best < 0:
            continue
        new = group[best]
        part[v] = new
        nodes[old] -= 1
        nodes[new] += 1
        edges[old] -= degree
        edges[new] += degree
        for edge in range(indptr[row], indptr[row + 1]):
            u = indices[edge]
            if u != v:
                # A full counter has lost count: it stays full.
                if table[u, at] < FULL:
                    table[u, at] -= 1
                if table[u, best] < FULL:
                    table[u, best] += 1


def _deal(csr: Csr, part: NDArray[np.int32], partitions: int, limits: Limits) -> bool:
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


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def deal_out(
    degrees: NDArray[np.int64],
    nodes: NDArray[np.int64],
    edges: NDArray[np.int64],
    most_nodes: int,
    most_edges: int,
    to: NDArray[np.int64],
) -> bool:
    """Give each node to the partition with the fewest edges; whether the limits hold.

    Parameters
    ----------
    degrees
        Of the nodes, in their turn.
    nodes, edges
        What each partition has before and after, shape (P,).
    to
        The partition of each node is written here.
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
