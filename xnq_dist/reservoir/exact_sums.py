"""Sums over all nodes that do not depend on the partitioning.

Values are rounded to 18-bit integers, scaled by column. All products and sums of a
block are then exact in float64, and blocks are added in int64, so the bits do not
depend on the order of rows, blocks or partitions.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from xnq_dist.core.arrays import Floats, Ints
from xnq_dist.core.blocks import Spare, for_each_block, one_blas_thread

__all__ = ["column_peaks", "integer_products", "restored"]


STEPS = 1 << 17
"""Integers from 0 to a column's peak."""
BLOCK = 1 << 11
"""Rows of a block: few enough for a processor's cache, and for their products of 34
bits to stay below 2 ** 53 together."""


def column_peaks(
    values: NDArray[np.floating], factors: Floats | None = None, threads: int = 1
) -> Floats:
    """Largest absolute value of each column, 0 without rows, shape (w,).

    `factors`, shape (n,), multiply the rows; None: 1 each.
    """
    peaks, lock = np.zeros(values.shape[1]), Lock()
    blocks = _Blocks(values, factors)

    def work(first: int, last: int) -> None:
        with blocks.rows(first, last) as block:
            found = np.abs(block, out=block).max(axis=0)
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
    left = _Blocks(values, factors, peaks)
    right = None
    if others is not None:
        right = _Blocks(others, factors, peaks if other_peaks is None else other_peaks)
    width = values.shape[1] if others is None else others.shape[1]
    total, lock = np.zeros((values.shape[1], width), np.int64), Lock()

    def work(first: int, last: int) -> None:
        with ExitStack() as held:
            rows = held.enter_context(left.rows(first, last))
            other = held.enter_context(right.rows(first, last)) if right else rows
            products = (rows.T @ other).astype(np.int64)
        with lock:
            np.add(total, products, out=total)

    with one_blas_thread():
        for_each_block(len(values), threads, work, BLOCK)
    return total


def restored(total: Ints, peaks: Floats, other_peaks: Floats | None = None) -> Floats:
    """Convert an integer sum to the sum of products."""
    right = peaks if other_peaks is None else other_peaks
    return total.astype(np.float64) * np.outer(peaks, right) / float(STEPS) ** 2


class _Blocks:
    """Rows in float64, a block at a time, so that no copy of all of them is made."""

    def __init__(
        self,
        values: NDArray[np.floating],
        factors: Floats | None,
        peaks: Floats | None = None,
    ) -> None:
        self._values, self._factors, self._scale = values, factors, None
        if peaks is not None:
            found = peaks > 0
            self._scale = np.where(found, STEPS / np.where(found, peaks, 1.0), 0.0)
        self._spare = Spare((BLOCK, values.shape[1]), np.float64)

    @contextmanager
    def rows(self, first: int, last: int) -> Iterator[Floats]:
        """Rows times their factors; rounded to integers if there are peaks."""
        with self._spare.borrow() as array:
            block: Floats = array[: last - first]
            block[...] = self._values[first:last]
            if self._factors is not None:
                block *= self._factors[first:last, None]
            if self._scale is not None:
                block *= self._scale
                np.rint(block, out=block)
            yield block
