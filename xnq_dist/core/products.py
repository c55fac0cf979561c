"""Dense products in which the bits of a row do not depend on its position.

A BLAS chooses its instructions by shape, position and processor: OpenBLAS's float32
kernel for AVX2 gives equal rows of one product different last bits, and chaotic states
amplify them. The kernel here computes each element as one chain of fused multiply-adds,
from the first column of `x` to the last, for any tile, vector width, number of threads
and processor. Each fused multiply-add is rounded once (IEEE 754), so the bits are those
of the simple loop with ``fma``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba import config
from numba.core import cgutils
from numba.core.codegen import get_host_cpu_features
from numba.extending import intrinsic
from numpy.typing import NDArray

from xnq_dist.core.kernel import copy_row, kernel, pointer
from xnq_dist.core.threads import for_each_block

__all__ = [
    "FORM",
    "VECTOR_BYTES",
    "multiply",
    "pack",
    "product",
]

FORM = "fma-in-order"
"""Name of the arithmetic, for manifests: equal names mean equal bits."""

_FEATURES: str = config.CPU_FEATURES or get_host_cpu_features()
_WIDE = "+avx512f" in _FEATURES
VECTOR_BYTES = 64 if _WIDE else 32
"""Bytes of a vector register that the kernel is compiled for."""

# As many sums as fit in the registers next to vectors of the panel: 16 of 32 registers,
# or 12 of 16. The bits do not depend on these numbers.
TILE_ROWS, VECTORS = (8, 2) if _WIDE else (4, 3)
DEPTH = 256
"""Columns of `x` processed at a time, so that a panel stays in the L1 cache."""


def _make_tile(rows: int) -> Any:
    """An intrinsic that multiplies `rows` rows with a panel."""

    @intrinsic
    def tile(
        typing: Any,
        x: Any,
        row: Any,
        first: Any,
        last: Any,
        panel: Any,
        out: Any,
        at: Any,
    ) -> Any:
        place = numba.types.intp
        signature = numba.types.void(x, place, place, place, panel, out, place)

        def generate(*call: Any) -> Any:
            return _tile_code(call, rows)

        return signature, generate

    return tile


def _tile_code(call: Sequence[Any], rows: int) -> Any:
    """Add ``x[row:row + rows, first:last] @ panel[first:last]`` to ``out[:rows, at:]``.

    The sums start at zero where `first` is 0. Rows of `panel` and `out` are contiguous,
    and rows or columns of `x`; rows of `panel` are `VECTORS` vectors.
    """
    context, builder, types, arguments = call
    x, row, first, last, _, _, at = arguments
    kind = types.args[0]
    element = context.get_value_type(kind.dtype)
    lanes = VECTOR_BYTES * 8 // kind.dtype.bitwidth
    vector, word = ir.VectorType(element, lanes), ir.IntType(32)
    zero, one = ir.Constant(first.type, 0), ir.Constant(first.type, 1)

    def plus(value: Any, more: int) -> Any:
        return builder.add(value, ir.Constant(value.type, more))

    scalars = [pointer(call, 0, plus(row, i), zero, element) for i in range(rows)]
    apart = one
    if kind.layout == "F":
        array = context.make_array(kind)(context, builder, x)
        apart = builder.extract_value(array.shape, 0)
    pieces = pointer(call, 4, zero, zero, vector)
    places = [
        builder.gep(pointer(call, 5, ir.Constant(first.type, i), at, vector), [word(v)])
        for i in range(rows)
        for v in range(VECTORS)
    ]
    sums = [cgutils.alloca_once(builder, vector) for _ in places]
    nothing = ir.Constant(vector, [0.0] * lanes)
    with builder.if_else(builder.icmp_signed("==", first, zero)) as (begin, go_on):
        with begin:
            for total in sums:
                builder.store(nothing, total)
        with go_on:
            for total, before in zip(sums, places, strict=True):
                builder.store(builder.load(before, align=4), total)
    takes = ir.FunctionType(vector, [vector] * 3)
    name = f"llvm.fma.v{lanes}f{kind.dtype.bitwidth}"
    fma = cgutils.get_or_insert_function(builder.module, takes, name)
    everywhere = ir.Constant(ir.VectorType(word, lanes), [0] * lanes)
    with cgutils.for_range_slice(builder, first, last, one) as (k, _):
        at_k = builder.mul(k, apart)
        base = builder.mul(k, ir.Constant(k.type, VECTORS))
        of_panel = [
            builder.load(builder.gep(pieces, [plus(base, v)]), align=4)
            for v in range(VECTORS)
        ]
        for i, scalar in enumerate(scalars):
            value = builder.insert_element(
                ir.Constant(vector, ir.Undefined),
                builder.load(builder.gep(scalar, [at_k])),
                word(0),
            )
            value = builder.shuffle_vector(value, value, everywhere)
            for v in range(VECTORS):
                total = sums[i * VECTORS + v]
                step = builder.call(fma, [value, of_panel[v], builder.load(total)])
                builder.store(step, total)
    for total, after in zip(sums, places, strict=True):
        builder.store(builder.load(total), after, align=4)
    return context.get_dummy_value()


_many, _single = _make_tile(TILE_ROWS), _make_tile(1)


@kernel
def multiply(x: NDArray[Any], panels: NDArray[Any], out: NDArray[Any]) -> None:
    """``out = x @ matrix`` for a packed matrix.

    Parameters
    ----------
    x
        Float32 or float64, shape (n, k), rows contiguous, or columns.
    panels
        `pack` of a matrix of shape (k, m), of the type of `x`.
    out
        Shape (n, m), of the type of `x`, rows contiguous; overwritten.
    """
    n, depth = x.shape
    width, columns = panels.shape[2], out.shape[1]
    tiled = n - n % TILE_ROWS
    edge = np.empty((TILE_ROWS, width), x.dtype)
    if not depth:
        out[:] = 0
    for first in range(0, depth, DEPTH):
        for number in range(panels.shape[0]):
            panel, at = panels[number], number * width
            left = columns - at
            last, place = min(first + DEPTH, depth), at
            if left < width:
                # The last panel is not full: its sums go through a separate tile.
                if first:
                    continue
                last, place = depth, 0
            # Each intrinsic and loop is named once: each mention is compiled again.
            for row in range(0, tiled, TILE_ROWS):
                into = out[row:] if left >= width else edge
                _many(x, row, first, last, panel, into, place)
                if left < width:
                    _copy(edge, out, row, min(TILE_ROWS, n - row), at)
            for row in range(tiled, n):
                into = out[row:] if left >= width else edge
                _single(x, row, first, last, panel, into, place)
                if left < width:
                    _copy(edge, out, row, min(1, n - row), at)


@kernel
def _copy(edge: NDArray[Any], out: NDArray[Any], row: int, rows: int, at: int) -> None:
    """Copy rows of `edge` to the columns of `out` from `at` on."""
    for i in range(rows):
        copy_row(edge[i], out[row + i, at:])


def pack(matrix: NDArray[Any]) -> NDArray[Any]:
    """A matrix as `multiply` reads it: panels of a few columns, each row contiguous.

    Parameters
    ----------
    matrix
        Float32 or float64, shape (k, m).

    Returns
    -------
    ndarray
        Shape (panels, k, columns of a panel), of the same type; the last panel is
        padded with zeros.
    """
    depth, columns = matrix.shape
    width = VECTORS * VECTOR_BYTES // matrix.dtype.itemsize
    panels = np.zeros((-(-columns // width), depth, width), matrix.dtype)
    for number, panel in enumerate(panels):
        part = matrix[:, number * width : (number + 1) * width]
        panel[:, : part.shape[1]] = part
    return panels


def product(x: NDArray[Any], matrix: NDArray[Any], threads: int = 1) -> NDArray[Any]:
    """``x @ matrix``, in which the bits of a row do not depend on its position.

    Parameters
    ----------
    x
        Any float type, shape (n, k).
    matrix
        Float32 or float64, shape (k, m).
    threads
        Number of threads; each computes blocks of rows.
    """
    kind = np.result_type(x, matrix)
    panels = pack(matrix.astype(kind, copy=False))
    out = np.empty((x.shape[0], matrix.shape[1]), kind)

    def work(first: int, last: int) -> None:
        # "W": for read-only arrays the kernel would be compiled once more.
        rows = np.require(x[first:last], kind, ["C", "W"])
        multiply(rows, panels, out[first:last])

    for_each_block(x.shape[0], threads, work)
    return out
