"""Prices of eight partitions at an instruction, beside one after the other."""

from __future__ import annotations

import numpy as np
import pytest
from numba import njit

from xnq_dist.graph.prices import UNIT, WIDE, add_prices
from xnq_dist.graph.refining import HALVING, ROWS


@njit
def add_rows(table, rows, cost, prices):
    for row in rows:
        add_prices(table, row, cost, prices)


@pytest.mark.parametrize("cost", [HALVING, ROWS])
@pytest.mark.parametrize("blocks", [1, 3])
def test_a_price_is_not_the_unit_shifted(cost, blocks):
    rng = np.random.default_rng(0)
    # Small counts, where prices are, and full counters.
    table = rng.choice([0, 1, 2, 3, 13, 14, 15, 31, 32, 254, 255], (9, blocks * WIDE))
    table = table.astype(np.uint8)
    rows = np.array([8, 0, 3, 3])
    prices = np.full(blocks * WIDE, 5, np.int32)
    add_rows(table, rows, cost, prices)
    expected = [
        5 + sum(UNIT >> min(int(table[row, q]) << cost, 31) for row in rows)
        for q in range(blocks * WIDE)
    ]
    assert prices.tolist() == expected
