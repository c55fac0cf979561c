"""What one row more costs in each partition, for eight partitions at an instruction.

Refinement asks it of every edge and every partition, more often than anything else;
numba's own loop over a few partitions does not become vectors.
"""

from __future__ import annotations

from typing import Any

import numba
from llvmlite import ir
from numba.core import cgutils
from numba.extending import intrinsic

__all__ = ["UNIT", "WIDE", "add_prices"]

UNIT = 1 << 14
"""The price of a first row."""
WIDE = 8
"""Partitions at a time: tables have a multiple of as many columns."""

_WORD = ir.IntType(32)
_VECTOR = ir.VectorType(_WORD, WIDE)
_LAST_SHIFT = 31


@intrinsic
def add_prices(typing: Any, table: Any, row: Any, cost: Any, prices: Any) -> Any:
    """``prices[q] += UNIT >> min(table[row, q] << cost, 31)`` for every q.

    `table` is uint8, shape (N, Q), rows contiguous; `prices` int32, shape (Q,), Q a
    multiple of `WIDE`; so few rows are added that int32 holds their sum.
    """
    place = numba.types.intp
    signature = numba.types.void(table, place, place, prices)

    def generate(context: Any, builder: Any, types: Any, arguments: Any) -> Any:
        def vectors(array: int, index: list[Any], element: Any) -> Any:
            kind = types.args[array]
            made = context.make_array(kind)(context, builder, arguments[array])
            at = cgutils.get_item_pointer(
                context, builder, kind, made, index, wraparound=False
            )
            return builder.bitcast(at, ir.VectorType(element, WIDE).as_pointer())

        def everywhere(value: Any) -> Any:
            empty = ir.Constant(_VECTOR, ir.Undefined)
            one = builder.insert_element(empty, value, _WORD(0))
            return builder.shuffle_vector(one, one, ir.Constant(_VECTOR, [0] * WIDE))

        _, row, cost, _ = arguments
        start = ir.Constant(row.type, 0)
        counts = vectors(0, [row, start], ir.IntType(8))
        sums = vectors(3, [start], _WORD)
        shift = everywhere(builder.trunc(cost, _WORD))
        unit = ir.Constant(_VECTOR, [UNIT] * WIDE)
        most = ir.Constant(_VECTOR, [_LAST_SHIFT] * WIDE)
        made = context.make_array(types.args[3])(context, builder, arguments[3])
        size = cgutils.unpack_tuple(builder, made.shape)[0]
        blocks = builder.udiv(size, ir.Constant(size.type, WIDE))
        with cgutils.for_range(builder, blocks) as loop:
            count = builder.load(builder.gep(counts, [loop.index]), align=1)
            by = builder.shl(builder.zext(count, _VECTOR), shift)
            by = builder.select(builder.icmp_unsigned("<", by, most), by, most)
            total = builder.gep(sums, [loop.index])
            added = builder.add(builder.load(total, align=4), builder.lshr(unit, by))
            builder.store(added, total, align=4)
        return context.get_dummy_value()

    return signature, generate
