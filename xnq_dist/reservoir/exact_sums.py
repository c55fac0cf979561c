"""Sums over all nodes that do not depend on the partitioning.

Values are rounded to 18-bit integers, scaled by column. All products and sums of a
block are then exact in float64, and blocks are added in int64, so the bits do not
depend on the order of rows, blocks or partitions.
"""

from __future__ import annotations

from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xnq_dist.core.arrays import Floats, Ints
from xnq_dist.core.kernel import kernel
from xnq_dist.core.threads import for_each_block, one_blas_thread

__all__ = ["column_peaks", "integer_products", "restored"]

STEPS = 1 << 17
"""Integers from 0 to a column's peak."""
BLOCK = 1 << 10
"""Rows of a block: few enough for a processor's cache, and for their products of 34
bits to stay below 2 ** 53 together."""


def column_peaks(
    values: NDArray[np.floating], factors: Floats | None = None, threads: int = 1
) -> Floats:
    """Largest absolute value of each column, 0 without rows, shape (w,).

    `factors`, shape (n,), multiply the rows; None: 1 each.
    """
    peaks, lock = np.zeros(values.shape[1]), Lock()
    scales = np.ones(len(values)) if factors is None else factors

    def work(first: int, last: int) -> None:
        found = np.zeros_like(peaks)
        _raise_peaks(values[first:last], scales[first:last], found)
        with lock:
            np.maximum(peaks, found, out=peaks)

    for_each_block(len(values), threads, work, BLOCK)
    return peaks


def integer_products(
    values: NDArray[np.floating],
    peaks: Floats,
    others: NDArray[np.floating] | None = None,
    other_peaks: Floats | None = None,
    factors: Floats | None = None,
    threads: int = 1,
) -> Ints:
    """``values.T @ others`` of the rounded values, shape (w, v).

    Shapes are (n, w) and (n, v); `others` is `values` if None. Peaks are `column_peaks`
    over all nodes, the same in every call. `factors`, shape (n,), multiply the rows of
    both; None: 1 each.
    """
    sides = [(values, peaks)]
    if others is not None:
        sides.append((others, peaks if other_peaks is None else other_peaks))
    sides = [(side, _steps(each)) for side, each in sides]
    scales = np.ones(len(values)) if factors is None else factors
    widths = values.shape[1], sides[-1][0].shape[1]
    total, lock = np.zeros(widths, np.int64), Lock()

    def work(first: int, last: int) -> None:
        factor = scales[first:last]
        rows = [_rounded(side[first:last], factor, steps) for side, steps in sides]
        products = (rows[0].T @ rows[-1]).astype(np.int64)
        with lock:
            np.add(total, products, out=total)

    with one_blas_thread():
        for_each_block(len(values), threads, work, BLOCK)
    return total


def restored(total: Ints, peaks: Floats, other_peaks: Floats | None = None) -> Floats:
    """Convert an integer sum to the sum of products."""
    right = peaks if other_peaks is None else other_peaks
    return total.astype(np.float64) * np.outer(peaks, right) / float(STEPS) ** 2


def _steps(peaks: Floats) -> Floats:
    """Integers a unit of each column; 0 for a column of zeros."""
    return np.divide(STEPS, peaks, out=np.zeros_like(peaks), where=peaks > 0)


@kernel
def _raise_peaks(values: NDArray[Any], factors: Floats, peaks: Floats) -> None:
    """Raise `peaks`, shape (w,), to the largest absolute values of the scaled rows."""
    for row in range(len(values)):
        for column in range(len(peaks)):
            size = abs(values[row, column] * factors[row])
            if size > peaks[column]:
                peaks[column] = size


@kernel
def _rounded(values: NDArray[Any], factors: Floats, steps: Floats) -> Floats:
    """Rows times their factors and columns times their steps, rounded."""
    out = np.empty(values.shape)
    for row in range(len(values)):
        for at in range(len(steps)):
            out[row, at] = np.rint(values[row, at] * factors[row] * steps[at])
    return out
