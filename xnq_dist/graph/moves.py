"""Moves of nodes between partitions: what each would save, and making them.

A table counts, for every node, its out-neighbours in each partition. At home nobody is
a halo row, whatever the count: there the table says `FULL`, of which one row more costs
nothing, and the count is kept next to it. So what a move changes is read from one short
row of the table for each edge.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from xnq_dist.graph.arrays import Bools, Bytes, Ints, Ints32
from xnq_dist.graph.move_costs import UNIT, WIDE, add_prices

__all__ = [
    "HALVING",
    "ROWS",
    "cost_rows",
    "count_moves",
    "count_rows",
    "empty_table",
    "hide_homes",
    "take_moves",
    "weigh_moves",
]

HALVING, ROWS = 0, 5
"""The two costs: a row after c others costs ``UNIT >> (c << cost)``."""
FULL = 255
"""A counter that has lost count, or that of a node's home."""
RUN = 1 << 16
"""Edges whose prices are summed in int32."""
Rows = tuple[int, Ints, Ints32]
"""First row, row pointers as places in the indices, and indices."""
State = tuple[Ints, Bytes, Bytes]
"""Column in the table of each partition, -1 without, shape (P,); the table, (N, G), G a
multiple of `WIDE`, and the counts at home, (N,), as `hide_homes` leaves them."""


def empty_table(nodes: int, partitions: int) -> Bytes:
    """Zeros for so many partitions, and columns up to a multiple of `WIDE`."""
    return np.zeros((nodes, -(-partitions // WIDE) * WIDE), np.uint8)


@njit(cache=True, nogil=True)
def count_rows(
    rows: Rows, part: Ints32, slot: Ints, table: Bytes, low: int, high: int
) -> None:
    """Add some rows to columns low to high - 1; `FULL` means so many or more."""
    first, indptr, indices = rows
    for row in range(indptr.shape[0] - 1):
        column = slot[part[first + row]]
        if column < low or column >= high:
            continue
        for edge in range(indptr[row], indptr[row + 1]):
            u = indices[edge]
            if u != first + row and table[u, column] < FULL:
                table[u, column] += 1


@njit(cache=True, nogil=True)
def hide_homes(part: Ints32, slot: Ints, table: Bytes, home: Bytes) -> None:
    """Keep each node's count at its home in `home`, shape (N,), and put `FULL` there.

    Nodes whose home has no column have nothing to hide.
    """
    for v in range(part.shape[0]):
        at = slot[part[v]]
        if at >= 0:
            home[v] = table[v, at]
            table[v, at] = FULL


@njit(cache=True, nogil=True)
def _excess(nodes: int, edges: int, limits: tuple[int, int, int]) -> int:
    """What a partition weighs beyond its limits."""
    return max(nodes - limits[0], 0) * limits[2] + max(edges - limits[1], 0)


@njit(cache=True, nogil=True)
def _next(count: int, cost: int) -> int:
    """What one row more costs after so many."""
    shift = np.int64(count) << cost
    return int(UNIT >> (shift if shift < 31 else 31))


@njit(cache=True, nogil=True)
def _cost(count: int, cost: int) -> int:
    """What so many rows of one partition cost."""
    if cost == ROWS:
        return UNIT if count else 0
    return 2 * UNIT - (2 * UNIT >> min(count, 31))


@njit(cache=True, nogil=True)
def cost_rows(part: Ints32, slot: Ints, table: Bytes, cost: int) -> int:
    """What all nodes cost in the partitions with a column, but at home."""
    total = np.int64(0)
    for v in range(part.shape[0]):
        at = slot[part[v]]
        for q in range(table.shape[1]):
            if table[v, q] and q != at:
                total += _cost(table[v, q], cost)
    return int(total)


@njit(cache=True, nogil=True)
def weigh_moves(
    rows: Rows,
    part: Ints32,
    state: State,
    over: Bools,
    cost: int,
    gains: Ints,
    considered: Bools,
) -> None:
    """What some nodes would save in each partition of a group, nobody else moving.

    Nodes of the partitions that are `over` their limits may move at a loss. Written for
    each row: `gains`, what it saves by each column, and `considered`, whether it may
    move; gains of other rows mean nothing.
    """
    first, indptr, indices = rows
    slot, table, home = state
    width = table.shape[1]
    some = np.empty(width, np.int32)
    for row in range(indptr.shape[0] - 1):
        v = first + row
        at = slot[part[v]]
        considered[row] = False
        if at < 0:
            continue
        gain = gains[row]
        gain[:] = 0
        here = np.int64(0)
        for begin in range(indptr[row], indptr[row + 1], RUN):
            end = min(begin + RUN, indptr[row + 1])
            some[:] = 0
            add_prices(table, indices, begin, end, v, cost, some)
            for edge in range(begin, end):
                u = indices[edge]
                if u != v:
                    here += _next(table[u, at] - 1, cost)
            for q in range(width):
                gain[q] -= some[q]
        # Readers of v itself stop costing a row where v goes, and start where it was.
        here -= _cost(home[v], cost)
        wanted = over[part[v]]
        for q in range(width):
            gain[q] += here + _cost(table[v, q], cost)
            wanted |= gain[q] > 0 and q != at
        considered[row] = wanted


@njit(cache=True, nogil=True)
def take_moves(
    first: int,
    weighed: tuple[Ints, Bools],
    degrees: Ints,
    part: Ints32,
    group: Ints,
    state: State,
    loads: tuple[Ints, Ints],
    limits: tuple[int, int, int],
    done: tuple[Ints, Ints32],
) -> tuple[int, int]:
    """Move nodes one after the other, each where it saves most within the limits.

    A move may not add to what is beyond limits, in sum over the partitions; one that
    takes from it may cost halo rows, any other must save some.

    `weighed`: from `weigh_moves`. `degrees`: edges of each row. `group`: partition of
    each column, (G,). `loads`: nodes and edges of each partition so far, (P,).
    `limits`: most nodes, most edges, what a node weighs in edges. `done`: written here,
    the rows that moved and their columns before and after, (rows,) and (rows, 2).
    Returns how many moved, and what they saved.
    """
    gains, considered = weighed
    slot, table, home = state
    nodes, edges = loads
    moved, ends = done
    count, total = 0, np.int64(0)
    for row in range(degrees.shape[0]):
        v = first + row
        old = part[v]
        if not considered[row] or nodes[old] <= 1:
            continue
        at, degree = slot[old], degrees[row]
        before = _excess(nodes[old], edges[old], limits)
        eased = before - _excess(nodes[old] - 1, edges[old] - degree, limits)
        best, saved = -1, np.int64(0)
        for q in range(group.shape[0]):
            p = group[q]
            gain = gains[row, q]
            if p == old or (best >= 0 and gain <= saved):
                continue
            more = _excess(nodes[p] + 1, edges[p] + degree, limits)
            more -= _excess(nodes[p], edges[p], limits)
            if more < eased or (more == eased and gain > 0):
                best, saved = q, gain
        if best < 0:
            continue
        new = group[best]
        part[v] = new
        nodes[old] -= 1
        nodes[new] += 1
        edges[old] -= degree
        edges[new] += degree
        table[v, at] = home[v]
        home[v] = table[v, best]
        table[v, best] = FULL
        moved[count] = row
        ends[count, 0] = at
        ends[count, 1] = best
        count += 1
        total += saved
    return count, int(total)


@njit(cache=True, nogil=True)
def count_moves(
    rows: Rows,
    done: tuple[Ints, Ints32],
    part: Ints32,
    state: State,
    low: int,
    high: int,
) -> None:
    """Bring columns low to high - 1 up to date after `take_moves`, and their homes.

    A counter that is full has lost count and stays full.
    """
    first, indptr, indices = rows
    moved, ends = done
    slot, table, home = state
    for i in range(moved.shape[0]):
        row = moved[i]
        for way in range(2):
            at = ends[i, way]
            if at < low or at >= high:
                continue
            for edge in range(indptr[row], indptr[row + 1]):
                u = indices[edge]
                if u == first + row:
                    continue
                count = table[u, at]
                if count < FULL:
                    table[u, at] = count + 1 if way else count - 1
                elif slot[part[u]] == at and home[u] < FULL:
                    home[u] = home[u] + 1 if way else home[u] - 1
