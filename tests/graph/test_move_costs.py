"""Move costs of eight partitions per instruction, compared with a scalar loop."""

from __future__ import annotations

import numpy as np
import pytest
from numba import njit

from xnq_dist.graph.move_costs import UNIT, WIDE, add_move_costs
from xnq_dist.graph.moves import HALVING, ROWS


@njit
def add_rows(table, nodes, begin, end, but, cost, sums):
    add_move_costs(table, nodes, begin, end, but, cost, sums)


@pytest.mark.parametrize("cost", [HALVING, ROWS])
@pytest.mark.parametrize("blocks", [1, 3])
@pytest.mark.parametrize("but", [-1, 3])
def test_costs_add_up_the_units_shifted_by_the_counters(cost, blocks, but):
    rng = np.random.default_rng(0)
    # Small counters, whose cost is not zero, and saturated ones.
    table = rng.choice([0, 1, 2, 3, 13, 14, 15, 31, 32, 254, 255], (9, blocks * WIDE))
    table = table.astype(np.uint8)
    nodes = np.array([7, 8, 0, 3, 3, 5], np.int32)
    sums = np.full(blocks * WIDE, 5, np.int32)
    add_rows(table, nodes, 1, 5, but, cost, sums)
    rows = [row for row in (8, 0, 3, 3) if row != but]
    expected = [
        5 + sum(UNIT >> min(int(table[row, q]) << cost, 31) for row in rows)
        for q in range(blocks * WIDE)
    ]
    assert sums.tolist() == expected
    add_rows(table, nodes, 3, 3, but, cost, sums)
    assert sums.tolist() == expected
