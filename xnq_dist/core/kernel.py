"""How kernels are compiled, and vector instructions that Numba does not generate.

Numba vectorises loops over neighbouring elements, but it does not transpose in
registers, keep a vector in a register over a loop, or add to neighbouring elements at
once outside of one. These are written here with LLVM vectors of eight float32 or four
float64, which every processor supports in some form. Products and sums are rounded one
by one in program order, with the same bits as simple loops. Also here: prefetching,
which hides the latency of short rows at random addresses.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numba
from llvmlite import ir
from numba import njit
from numba.core import cgutils
from numba.extending import intrinsic

__all__ = [
    "LANES",
    "WIDTH",
    "add_to_row",
    "copy_row",
    "inlined",
    "kernel",
    "pointer",
    "prefetch",
    "sum_nonzeros",
    "transpose_block",
]

kernel = njit(cache=True, nogil=True, error_model="numpy")
"""Compiles a function at its first call, for the types of its arguments. The result is
kept on disk, runs without Python's global interpreter lock, and divides by 0 as NumPy
does."""
inlined = njit(cache=True, nogil=True, error_model="numpy", inline="always")
"""The same, of a function that becomes part of the kernels that call it."""

WIDTH = 8
"""Elements of a vector."""
VECTORS = 4
"""Vectors of the sums that stay in registers."""
LANES = WIDTH * VECTORS
"""Rows whose sums stay in registers; with fewer rows, reading W dominates."""

_VECTOR = ir.VectorType(ir.FloatType(), WIDTH)
_FOUR = ir.VectorType(ir.DoubleType(), 4)
_WORD = ir.IntType(32)


@inlined
def copy_row(source: Any, target: Any) -> None:
    """``target[:] = source``, by a loop.

    Numba would compile the message of a failed assignment of slices, which takes
    seconds.
    """
    for i in range(len(target)):
        target[i] = source[i]


def pointer(call: Sequence[Any], which: int, row: Any, column: Any, kind: Any) -> Any:
    """Pointer to what starts at an element of an argument, of this LLVM type.

    `call` has the arguments of `generate`.
    """
    context, builder, types, arguments = call
    array = context.make_array(types.args[which])(context, builder, arguments[which])
    place = cgutils.get_item_pointer(
        context, builder, types.args[which], array, [row, column], wraparound=False
    )
    return builder.bitcast(place, kind.as_pointer())


def _shuffle(builder: Any, first: Any, second: Any, order: Sequence[int]) -> Any:
    mask = ir.Constant(ir.VectorType(_WORD, WIDTH), list(order))
    return builder.shuffle_vector(first, second, mask)


@intrinsic
def transpose_block(
    typing: Any, source: Any, row: Any, column: Any, target: Any, to: Any, at: Any
) -> Any:
    """``target[to + j, at + i] = source[row + i, column + j]`` for i, j below `WIDTH`.

    Rows of both arrays are contiguous float32.
    """
    place = numba.types.intp
    signature = numba.types.void(source, place, place, target, place, place)

    def generate(*call: Any) -> Any:
        def vector(which: int, row: Any, column: Any, more: int) -> Any:
            below = builder.add(row, ir.Constant(row.type, more))
            return pointer(call, which, below, column, _VECTOR)

        context, builder, _, arguments = call
        _, row, column, _, to, at = arguments
        rows = [builder.load(vector(0, row, column, i), align=4) for i in range(WIDTH)]
        # Swap neighbouring elements of two rows, then pairs, then quadruples.
        for apart in (1, 2, 4):
            orders = {
                shift: [
                    (k & ~apart) + shift + (WIDTH if k & apart else 0)
                    for k in range(WIDTH)
                ]
                for shift in (0, apart)
            }
            rows = [
                _shuffle(builder, rows[i & ~apart], rows[i | apart], orders[i & apart])
                for i in range(WIDTH)
            ]
        for j, values in enumerate(rows):
            builder.store(values, vector(3, to, at, j), align=4)
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def sum_nonzeros(
    typing: Any, columns: Any, values: Any, unit: Any, tile: Any, sums: Any, at: Any
) -> Any:
    """``sums[at, :] = sum over k of values[unit, k] * tile[columns[unit, k], :]``.

    Sums run from the first non-zero to the last, for `LANES` nodes at a time, the width
    of `tile` and `sums`, whose rows are contiguous float32.
    """
    place = numba.types.intp
    signature = numba.types.void(columns, values, place, tile, sums, place)

    def generate(*call: Any) -> Any:
        def vectors(which: int, row: Any) -> list[Any]:
            first = pointer(call, which, row, ir.Constant(row.type, 0), _VECTOR)
            return [builder.gep(first, [_WORD(m)]) for m in range(VECTORS)]

        context, builder, types, arguments = call
        unit, at = arguments[2], arguments[5]
        nothing = ir.Constant(_VECTOR, [0.0] * WIDTH)
        totals = [cgutils.alloca_once_value(builder, nothing) for _ in range(VECTORS)]
        for total in totals:
            builder.store(nothing, total)
        w = context.make_array(types.args[0])(context, builder, arguments[0])
        nonzeros = cgutils.unpack_tuple(builder, w.shape)[1]
        with cgutils.for_range(builder, nonzeros) as loop:
            nonzero = unit, loop.index
            source = builder.load(pointer(call, 0, *nonzero, _WORD))
            source = builder.sext(source, unit.type)
            weight = builder.load(pointer(call, 1, *nonzero, ir.FloatType()))
            weight = builder.insert_element(
                ir.Constant(_VECTOR, ir.Undefined), weight, _WORD(0)
            )
            weight = _shuffle(builder, weight, weight, [0] * WIDTH)
            for total, state in zip(totals, vectors(3, source), strict=True):
                product = builder.fmul(weight, builder.load(state, align=4))
                builder.store(builder.fadd(builder.load(total), product), total)
        for total, after in zip(totals, vectors(4, at), strict=True):
            builder.store(builder.load(total), after, align=4)
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def add_to_row(typing: Any, table: Any, row: Any, first: Any, second: Any) -> Any:
    """``table[row] += (first, second, 1, 0)``; rows are four contiguous float64."""
    number = numba.types.float64
    signature = numba.types.void(table, numba.types.intp, number, number)

    def generate(*call: Any) -> Any:
        context, builder, _, arguments = call
        _, row, *values = arguments
        at = pointer(call, 0, row, ir.Constant(row.type, 0), _FOUR)
        more = ir.Constant(_FOUR, [0.0, 0.0, 1.0, 0.0])
        for place, value in enumerate(values):
            more = builder.insert_element(more, value, _WORD(place))
        total = builder.fadd(builder.load(at, align=8), more)
        builder.store(total, at, align=8)
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def prefetch(typing: Any, rows: Any, row: Any, at: Any) -> Any:
    """Prefetch the cache line of an element of a matrix; has no other effect."""
    signature = numba.types.void(rows, numba.types.intp, numba.types.intp)

    def generate(*call: Any) -> Any:
        byte = ir.IntType(8)
        context, builder, _, arguments = call
        place = pointer(call, 0, arguments[1], arguments[2], byte)
        takes = ir.FunctionType(ir.VoidType(), [byte.as_pointer(), _WORD, _WORD, _WORD])
        function = cgutils.get_or_insert_function(
            builder.module, takes, "llvm.prefetch.p0i8"
        )
        # Hints of llvm.prefetch: for reading, moderate locality, data cache.
        hints = (_WORD(0), _WORD(2), _WORD(1))
        builder.call(function, [place, *hints])
        return context.get_dummy_value()

    return signature, generate
