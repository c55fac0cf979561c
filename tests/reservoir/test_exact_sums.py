"""Sums over nodes: accurate, with the same bits in any order."""

from __future__ import annotations

import numpy as np

from xnq_dist.reservoir import exact_sums
from xnq_dist.reservoir.exact_sums import column_peaks, integer_products, restored


def test_products_are_near_those_of_floats_and_the_same_however_rows_are_cut():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((1000, 5)).astype(np.float32) * [1, 1e-6, 1e6, 3, 0]
    y = rng.standard_normal((1000, 2))
    peaks, others = column_peaks(x), column_peaks(y)
    whole = integer_products(x, peaks, y, others)
    expected = x.T @ y
    error = np.abs(restored(whole, peaks, others) - expected)
    assert (error <= 1e-4 * np.outer(peaks, others) * np.sqrt(1000)).all()
    order = rng.permutation(1000)
    parts = [
        integer_products(x[rows], peaks, y[rows], others)
        for rows in np.split(order, [1, 400, 400, 950])
    ]
    np.testing.assert_array_equal(sum(parts), whole)
    own = restored(integer_products(x, peaks), peaks)
    np.testing.assert_allclose(np.diag(own), (x**2).sum(axis=0), rtol=1e-4)


def test_factors_and_threads_give_the_bits_of_scaled_rows(monkeypatch):
    rng = np.random.default_rng(1)
    x, y = rng.standard_normal((2, 500, 4)).astype(np.float32)
    factors = rng.random(500)
    left, right = (part.astype(np.float64) * factors[:, None] for part in (x, y))
    peaks, others = column_peaks(left), column_peaks(right)
    expected = integer_products(left, peaks, right, others)
    own = integer_products(left, peaks)
    monkeypatch.setattr(exact_sums, "BLOCK", 64)
    for threads in (1, 3):
        np.testing.assert_array_equal(column_peaks(x, factors, threads), peaks)
        found = integer_products(x, peaks, y, others, factors, threads)
        np.testing.assert_array_equal(found, expected)
        found = integer_products(x, peaks, factors=factors, threads=threads)
        np.testing.assert_array_equal(found, own)


def test_sums_are_those_of_rounded_rows_in_plain_numpy():
    rng = np.random.default_rng(2)
    for dtype in (np.float32, np.float64):
        x = (rng.standard_normal((3000, 4)) * [1, 1e-5, 40, 0]).astype(dtype)
        factors = rng.random(3000)
        rows = x.astype(np.float64) * factors[:, None]
        peaks = np.abs(rows).max(axis=0)
        np.testing.assert_array_equal(column_peaks(x, factors), peaks)
        steps = np.divide(1 << 17, peaks, out=np.zeros(4), where=peaks > 0)
        rounded = np.rint(rows * steps).astype(np.int64)
        sums = integer_products(x, peaks, factors=factors)
        np.testing.assert_array_equal(sums, rounded.T @ rounded)


def test_no_rows_have_no_peak():
    assert not column_peaks(np.empty((0, 3))).any()
    assert not integer_products(np.empty((0, 3)), np.zeros(3)).any()
