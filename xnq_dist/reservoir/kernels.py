"""Superstep kernels for the CPU, in Numba: gather-add, sparse product, tanh.

Every sum runs in one fixed order in float32, without fused multiply-add and without
atomics, so that a row's bits depend on its neighbours' values alone.
`tests.reservoir.reference` defines the same in plain NumPy.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numba import types
from numba.extending import overload
from numpy.typing import NDArray

from xnq_dist.core.arrays import Floats32, Ints, Ints32
from xnq_dist.core.kernel import (
    LANES,
    WIDTH,
    inlined,
    kernel,
    prefetch,
    sum_nonzeros,
    transpose_block,
)

__all__ = [
    "LANES",
    "TANH_DENOMINATOR",
    "TANH_NUMERATOR",
    "WIDTH",
    "gather_add",
    "narrow",
    "sparse_superstep",
    "sparse_update",
    "tanh_add",
]

# tanh(x) ~ x P(x^2) / Q(x^2) on [-9, 9], a minimax fit of the relative error by
# iteratively reweighted least squares; maximum error in float32 3.4e-7 (tested).
# Numba has no vectorised tanh since it dropped SVML (0.62).
TANH_CLIP = np.float32(9.0)
TANH_NUMERATOR = np.array(
    [
        1.0,
        0.13381023705005646,
        0.0034955863375216722,
        2.060905535472557e-05,
        1.335462762597217e-08,
    ],
    dtype=np.float32,
)
TANH_DENOMINATOR = np.array(
    [
        1.0,
        0.46714338660240173,
        0.025876974686980247,
        0.0003285632119514048,
        7.776543498039246e-07,
    ],
    dtype=np.float32,
)
_P0, _P1, _P2, _P3, _P4 = (np.float32(c) for c in TANH_NUMERATOR)
_Q0, _Q1, _Q2, _Q3, _Q4 = (np.float32(c) for c in TANH_DENOMINATOR)
_HIGH, _LOW = TANH_CLIP, -TANH_CLIP
_SCALE = np.float32(2.0**112)
_ONE, _MINUS_ONE = np.float32(1.0), np.float32(-1.0)


AHEAD = 8
"""Prefetch distance in edges."""
LINES = 4
"""Cache lines that are prefetched; the hardware prefetches the following ones."""


# Division must not check for zero (error_model) and min and max must not check for NaN:
# the calling loops would not vectorise (four times slower).
@inlined
def _tanh(x: np.float32) -> np.float32:
    x = _HIGH if x > _HIGH else x
    x = _LOW if x < _LOW else x
    t = x * x
    p = (((_P4 * t + _P3) * t + _P2) * t + _P1) * t + _P0
    q = (((_Q4 * t + _Q3) * t + _Q2) * t + _Q1) * t + _Q0
    y = x * p / q
    y = _ONE if y > _ONE else y
    return _MINUS_ONE if y < _MINUS_ONE else y


# Numba does not support float16 on the CPU: its bits are passed as uint16. Conversions
# agree with NumPy's for all values of tanh, and NaN stays NaN.
@kernel
def _widen(half: np.uint16) -> np.float32:
    bits = np.uint32(half)
    sign = np.uint32((bits & np.uint32(0x8000)) << np.uint32(16))
    shifted = np.uint32((bits & np.uint32(0x7FFF)) << np.uint32(13))
    # The exponents' biases differ by 112; subnormal halves come out right too.
    value = np.float32(np.uint32(sign | shifted).view(np.float32) * _SCALE)
    beyond = np.uint32(0x7F800000 if shifted >= np.uint32(0x0F800000) else 0)
    return np.uint32(value.view(np.uint32) | beyond).view(np.float32)


def _value(x: np.float32 | np.uint16) -> np.float32:
    """A state in float32, from float32 or the bits of a float16."""
    return _widen.py_func(x) if isinstance(x, np.uint16) else x


@overload(_value, strict=False)
def _value_of_type(x: types.Type) -> Callable[..., np.float32]:
    if x == types.uint16:
        return lambda x: _widen(x)
    return lambda x: x


@kernel
def narrow(values: Floats32, out: NDArray[np.uint16]) -> None:
    """Write the bits of values in -1..1 rounded to float16, ties to even, to `out`."""
    for row in range(values.shape[0]):
        for j in range(values.shape[1]):
            bits = np.float32(values[row, j]).view(np.uint32)
            sign = np.uint32((bits >> np.uint32(16)) & np.uint32(0x8000))
            size = np.uint32(bits & np.uint32(0x7FFFFFFF))
            if size < np.uint32(0x38800000):
                # Below 2^-14: float32 values near 0.5 have the spacing of these halves.
                moved = np.float32(np.uint32(size).view(np.float32) + np.float32(0.5))
                half = np.uint32(moved.view(np.uint32) - np.uint32(0x3F000000))
            else:
                odd = np.uint32((size >> np.uint32(13)) & np.uint32(1))
                even = np.uint32(size - np.uint32(0x38000000) + np.uint32(0xFFF) + odd)
                half = np.uint32(even >> np.uint32(13))
            if size > np.uint32(0x7F800000):
                half = np.uint32(0x7E00)
            out[row, j] = np.uint16(sign | half)


@inlined
def _state(owned: Floats32, halo: Floats32, n_owned: int, row: int) -> Floats32:
    return owned[row] if row < n_owned else halo[row - n_owned]  # type: ignore[no-any-return]


@kernel
def gather_add(
    indptr: Ints,
    indices: Ints32,
    weights: Floats32,
    owned: Floats32,
    halo: Floats32,
    first: int,
    last: int,
    out: Floats32,
) -> None:
    """Weighted sums of in-neighbours' states for owned rows first:last.

    `indptr`, `indices`: in-neighbours of each owned row; a local index below the number
    of owned rows is a row of `owned`, the rest are rows of `halo`. `weights`: of the
    edges; empty: all 1. `owned`, `halo`: shapes (n_owned, w) and (n_halo, w), both
    float32 or both the bits of float16 as uint16. `out`, shape (last - first, w), is
    overwritten.
    """
    width = owned.shape[1]
    n_owned = owned.shape[0]
    weighted = weights.shape[0] > 0
    one = np.float32(1.0)
    line = 64 // owned.itemsize
    soon = min(width, LINES * line)
    for row in range(first, last):
        target = out[row - first]
        for j in range(width):
            target[j] = np.float32(0.0)
        edge, end = indptr[row], indptr[row + 1]
        for later in range(edge + AHEAD, min(end + AHEAD, indptr[last])):
            source = indices[later]
            for j in range(0, soon, line):
                if source < n_owned:
                    prefetch(owned, source, j)
                else:
                    prefetch(halo, source - n_owned, j)
        # Load four rows of states at a time; the sum keeps the order of the edges.
        while edge + 4 <= end:
            s0 = _state(owned, halo, n_owned, indices[edge])
            s1 = _state(owned, halo, n_owned, indices[edge + 1])
            s2 = _state(owned, halo, n_owned, indices[edge + 2])
            s3 = _state(owned, halo, n_owned, indices[edge + 3])
            if weighted:
                w0, w1 = weights[edge], weights[edge + 1]
                w2, w3 = weights[edge + 2], weights[edge + 3]
                for j in range(width):
                    total = target[j] + w0 * _value(s0[j]) + w1 * _value(s1[j])
                    target[j] = total + w2 * _value(s2[j]) + w3 * _value(s3[j])
            else:
                for j in range(width):
                    total = target[j] + _value(s0[j]) + _value(s1[j])
                    target[j] = total + _value(s2[j]) + _value(s3[j])
            edge += 4
        if edge + 2 <= end:
            s0 = _state(owned, halo, n_owned, indices[edge])
            s1 = _state(owned, halo, n_owned, indices[edge + 1])
            w0 = weights[edge] if weighted else one
            w1 = weights[edge + 1] if weighted else one
            for j in range(width):
                target[j] = target[j] + w0 * _value(s0[j]) + w1 * _value(s1[j])
            edge += 2
        if edge < end:
            s0 = _state(owned, halo, n_owned, indices[edge])
            w0 = weights[edge] if weighted else one
            for j in range(width):
                target[j] += w0 * _value(s0[j])


@kernel
def tanh_add(product: Floats32, drive: Floats32) -> None:
    """``product = tanh(product + drive)`` in place; shapes (rows, d')."""
    for row in range(product.shape[0]):
        for j in range(product.shape[1]):
            product[row, j] = _tanh(product[row, j] + drive[row, j])


@kernel
def sparse_update(
    gathered: Floats32,
    columns: Ints32,
    values: Floats32,
    drive: Floats32,
    tile: Floats32,
    sums: Floats32,
) -> None:
    """``gathered = tanh(gathered W^T + drive)`` in place for a sparse W.

    `LANES` rows at a time are transposed first, so that each non-zero multiplies a
    vector of nodes: gathers along a row do not vectorise. `gathered` and `drive` have
    shape (rows, d'), rows contiguous; `columns` and `values`, the non-zeros of W, have
    shape (d', k); `tile` and `sums` are work arrays of shapes (d', LANES) and (WIDTH,
    LANES) with finite values.
    """
    rows, dim = gathered.shape
    for start in range(0, rows, LANES):
        lanes = min(LANES, rows - start)
        for block in range(0, dim, WIDTH):
            _to_tile(gathered, start, lanes, tile, block)
        for block in range(0, dim, WIDTH):
            units = min(WIDTH, dim - block)
            for i in range(units):
                sum_nonzeros(columns, values, block + i, tile, sums, i)
            _from_sums(sums, lanes, gathered, start, block)
        for row in range(start, start + lanes):
            for j in range(dim):
                gathered[row, j] = _tanh(gathered[row, j] + drive[row, j])


@kernel
def sparse_superstep(
    indptr: Ints,
    indices: Ints32,
    weights: Floats32,
    owned: Floats32,
    halo: Floats32,
    first: int,
    last: int,
    columns: Ints32,
    values: Floats32,
    drive: Floats32,
    tile: Floats32,
    sums: Floats32,
    out: Floats32,
) -> None:
    """`gather_add`, then `sparse_update`, for `LANES` rows at a time.

    Sums are still in the core's cache when they are updated. Parameters are those of
    the two functions; `drive` and `out` have shape (last - first, d').
    """
    for start in range(0, last - first, LANES):
        end = min(start + LANES, last - first)
        rows = out[start:end]
        gather_add(
            indptr, indices, weights, owned, halo, first + start, first + end, rows
        )
        sparse_update(rows, columns, values, drive[start:end], tile, sums)


@inlined
def _to_tile(
    gathered: Floats32, start: int, lanes: int, tile: Floats32, block: int
) -> None:
    """Copy columns of `lanes` rows, from `block` on, to rows of the tile."""
    above = min(block + WIDTH, gathered.shape[1])
    full = lanes - lanes % WIDTH if block + WIDTH <= gathered.shape[1] else 0
    for lane in range(0, full, WIDTH):
        transpose_block(gathered, start + lane, block, tile, block, lane)
    for lane in range(full, lanes):
        for j in range(block, above):
            tile[j, lane] = gathered[start + lane, j]


@inlined
def _from_sums(
    sums: Floats32, lanes: int, gathered: Floats32, start: int, block: int
) -> None:
    """Copy the sums of units from `block` on back to the rows' columns."""
    above = min(block + WIDTH, gathered.shape[1])
    full = lanes - lanes % WIDTH if block + WIDTH <= gathered.shape[1] else 0
    for lane in range(0, full, WIDTH):
        transpose_block(sums, 0, lane, gathered, start + lane, block)
    for lane in range(full, lanes):
        for j in range(block, above):
            gathered[start + lane, j] = sums[j - block, lane]
