"""Moves of nodes between partitions: computing their gains, and making them.

A table counts, for every node, its out-neighbours in each partition. A node is never a
halo row of its home, the partition that owns it: there the table holds `FULL`, for
which one more row costs nothing, and the count is kept in a separate array. The gain of
a move is then computed from one short row of the table for each edge.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from xnq_dist.core.arrays import Bools, Bytes, Ints, Ints32
from xnq_dist.graph.move_costs import UNIT, WIDE, add_move_costs

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
"""Value of a saturated counter, and of the counter of a node's home."""
RUN = 1 << 16
"""Edges whose costs are summed in int32."""
Rows = tuple[int, Ints, Ints32]
"""First row, row pointers as offsets in the indices, and indices."""
State = tuple[Ints, Bytes, Bytes]
"""Table column of each partition, -1 without, shape (P,); the table, (N, G), G a
multiple of `WIDE`; and the counts at home, (N,). See `hide_homes`."""


def empty_table(nodes: int, partitions: int) -> Bytes:
    """A table of zeros, its columns rounded up to a multiple of `WIDE`."""
    return np.zeros((nodes, -(-partitions // WIDE) * WIDE), np.uint8)


@njit(cache=True, nogil=True)
def count_rows(
    rows: Rows, part: Ints32, slot: Ints, table: Bytes, low: int, high: int
) -> None:
    """Count some rows in columns low to high - 1; counters saturate at `FULL`."""
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
    """Move each node's count at its home to `home`, shape (N,); leave `FULL` instead.

    Nodes whose home has no column are skipped.
    """
    for v in range(part.shape[0]):
        at = slot[part[v]]
        if at >= 0:
            home[v] = table[v, at]
            table[v, at] = FULL


@njit(cache=True, nogil=True)
def _excess(nodes: int, edges: int, limits: tuple[int, int, int]) -> int:
    """By how much a partition exceeds its limits, as a weight in edges."""
    return max(nodes - limits[0], 0) * limits[2] + max(edges - limits[1], 0)


@njit(cache=True, nogil=True)
def _next(count: int, cost: int) -> int:
    """Cost of one more row after `count` rows."""
    shift = np.int64(count) << cost
    return int(UNIT >> (shift if shift < 31 else 31))


@njit(cache=True, nogil=True)
def _cost(count: int, cost: int) -> int:
    """Cost of `count` rows of one partition."""
    if cost == ROWS:
        return UNIT if count else 0
    return 2 * UNIT - (2 * UNIT >> min(count, 31))


@njit(cache=True, nogil=True)
def cost_rows(part: Ints32, slot: Ints, table: Bytes, cost: int) -> int:
    """Cost of all nodes in the partitions with a column, except at home."""
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
    """Gains of moving each row to each partition of a group, if no other node moves.

    Nodes of the partitions that are `over` their limits may move at a loss. Results for
    each row: `gains`, the saved cost by column, and `considered`, whether the row may
    move; gains of other rows are undefined.
    """
    first, indptr, indices = rows
    slot, table, home = state
    width = table.shape[1]
    sums = np.empty(width, np.int32)
    for row in range(indptr.shape[0] - 1):
        v = first + row
        at = slot[part[v]]
        considered[row] = False
        if at < 0:
            continue
        gain = gains[row]
        gain[:] = 0
        at_home = np.int64(0)
        for begin in range(indptr[row], indptr[row + 1], RUN):
            end = min(begin + RUN, indptr[row + 1])
            sums[:] = 0
            add_move_costs(table, indices, begin, end, v, cost, sums)
            for edge in range(begin, end):
                u = indices[edge]
                if u != v:
                    at_home += _next(table[u, at] - 1, cost)
            for q in range(width):
                gain[q] -= sums[q]
        # After the move v is no halo row at its new home, but one at its old home.
        at_home -= _cost(home[v], cost)
        useful = over[part[v]]
        for q in range(width):
            gain[q] += at_home + _cost(table[v, q], cost)
            useful |= gain[q] > 0 and q != at
        considered[row] = useful


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
    """Move nodes one by one, each to the partition with the largest gain.

    A move may not increase the total excess over the limits. A move that reduces the
    excess may cost halo rows; any other must save some.

    `weighed`: from `weigh_moves`. `degrees`: edges of each row. `group`: partition of
    each column, (G,). `loads`: current nodes and edges of each partition, (P,).
    `limits`: maximum nodes, maximum edges, weight of a node in edges. `done`: output,
    the rows that moved and their columns before and after, (rows,) and (rows, 2).
    Returns how many moved, and the cost saved.
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
    """Update columns low to high - 1, and the counts at home, after `take_moves`.

    A saturated counter stays saturated.
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
