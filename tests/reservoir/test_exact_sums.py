"""Sums over nodes: accurate, with the same bits in any order."""

from __future__ import annotations

import numpy as np
import pytest

from xnq_dist.reservoir import exact_sums
from xnq_dist.reservoir.exact_sums import column_peaks, integer_products, restored


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("threads", [1, 3])
def test_sums_are_those_of_rounded_rows_in_plain_numpy(dtype, threads, monkeypatch):
    """So their bits are the same for rows in any order and parts; near the floats'."""
    monkeypatch.setattr(exact_sums, "BLOCK", 64)
    rng = np.random.default_rng(2)
    x = (rng.standard_normal((3000, 4)) * [1, 1e-5, 40, 0]).astype(dtype)
    y = rng.standard_normal((3000, 2)).astype(dtype)
    factors = rng.random(3000)
    rows, others = (each.astype(np.float64) * factors[:, None] for each in (x, y))
    peaks, tops = np.abs(rows).max(axis=0), np.abs(others).max(axis=0)
    np.testing.assert_array_equal(column_peaks(x, factors, threads), peaks)

    def rounded(values, largest):
        steps = [(1 << 17) / top if top else 0.0 for top in largest]
        return np.rint(values * steps).astype(np.int64)

    ours = rounded(rows, peaks)
    own = integer_products(x, peaks, factors=factors, threads=threads)
    np.testing.assert_array_equal(own, ours.T @ ours)
    found = integer_products(x, peaks, y, tops, factors, threads)
    np.testing.assert_array_equal(found, ours.T @ rounded(others, tops))
    error = np.abs(restored(found, peaks, tops) - rows.T @ others)
    assert (error <= 1e-4 * np.outer(peaks, tops) * np.sqrt(3000)).all()


def test_no_rows_have_no_peak():
    assert not column_peaks(np.empty((0, 3))).any()
    assert not integer_products(np.empty((0, 3)), np.zeros(3)).any()
