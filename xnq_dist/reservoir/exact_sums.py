"""Sums over all nodes that do not depend on the partitioning.

Values are rounded to 18-bit integers, scaled by column. All products and sums of a
block are then exact in float64, and blocks are added in int64, so the bits do not
depend on the order of rows, blocks or partitions.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from xnq_dist.core.arrays import Floats, Ints
from xnq_dist.core.blocks import one_blas_thread

__all__ = ["column_peaks", "integer_products", "restored"]


STEPS = 1 << 17
"""Integers from 0 to a column's peak."""
BLOCK = 1 << 17
"""Rows of a block: their products of 34 bits stay below 2 ** 53 together."""


def column_peaks(values: NDArray[np.floating]) -> Floats:
    """Largest absolute value of each column, 0 without rows, shape (w,)."""
    if not len(values):
        return np.zeros(values.shape[1])
    return np.asarray(np.abs(values).max(axis=0), np.float64)


def integer_products(
    values: NDArray[np.floating],
    peaks: Floats,
    others: NDArray[np.floating] | None = None,
    other_peaks: Floats | None = None,
) -> Ints:
    """``values.T @ others`` of the rounded values, shape (w, v).

    Shapes are (n, w) and (n, v); `others` is `values` if None. Peaks are `column_peaks`
    over all nodes, the same in every call.
    """
    width = values.shape[1]
    right = values if others is None else others
    right_peaks = peaks if other_peaks is None else other_peaks
    total = np.zeros((width, right.shape[1]), np.int64)
    with one_blas_thread():
        for first in range(0, len(values), BLOCK):
            rows = slice(first, first + BLOCK)
            left = _rounded(values[rows], peaks)
            same = left if others is None else _rounded(right[rows], right_peaks)
            total += (left.T @ same).astype(np.int64)
    return total


def restored(total: Ints, peaks: Floats, other_peaks: Floats | None = None) -> Floats:
    """Convert an integer sum to the sum of products."""
    right = peaks if other_peaks is None else other_peaks
    return total.astype(np.float64) * np.outer(peaks, right) / float(STEPS) ** 2


def _rounded(values: NDArray[np.floating], peaks: Floats) -> Floats:
    scale = np.where(peaks > 0, STEPS / np.where(peaks > 0, peaks, 1.0), 0.0)
    return np.rint(values.astype(np.float64) * scale)
