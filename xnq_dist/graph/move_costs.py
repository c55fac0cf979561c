"""What one row more costs in each partition, for eight partitions at an instruction.

Refinement asks it of every edge and every partition, more often than anything else;
numba's own loop over a few partitions does not become vectors, and sums that stay in
registers are not written and read again for each edge.
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
AHEAD = 32
"""Nodes whose rows of the table are on their way from memory."""

_BYTE, _WORD = ir.IntType(8), ir.IntType(32)
_VECTOR = ir.VectorType(_WORD, WIDE)
_LAST_SHIFT = 31


@intrinsic
def add_prices(
    typing: Any,
    table: Any,
    nodes: Any,
    begin: Any,
    end: Any,
    but: Any,
    cost: Any,
    prices: Any,
) -> Any:
    """``prices[q] += UNIT >> min(table[u, q] << cost, 31)`` for every q and some u.

    For each u of ``nodes[begin:end]`` but the node `but`. `table` is uint8, shape
    (N, Q), rows contiguous; `nodes` int32; `prices` int32, shape (Q,), Q a multiple of
    `WIDE`; so few nodes are added that int32 holds their sum.
    """
    place = numba.types.intp
    signature = numba.types.void(table, nodes, place, place, place, place, prices)

    def generate(context: Any, builder: Any, types: Any, arguments: Any) -> Any:
        def made(array: int) -> Any:
            return context.make_array(types.args[array])(
                context, builder, arguments[array]
            )

        def pointer(array: int, index: list[Any]) -> Any:
            return cgutils.get_item_pointer(
                context,
                builder,
                types.args[array],
                made(array),
                index,
                wraparound=False,
            )

        def vector(array: int, index: list[Any], element: Any) -> Any:
            whole = ir.VectorType(element, WIDE).as_pointer()
            return builder.bitcast(pointer(array, index), whole)

        def everywhere(value: Any) -> Any:
            empty = ir.Constant(_VECTOR, ir.Undefined)
            one = builder.insert_element(empty, value, _WORD(0))
            return builder.shuffle_vector(one, one, ir.Constant(_VECTOR, [0] * WIDE))

        _, _, begin, end, but, cost, _ = arguments
        kind = begin.type
        wide, ahead = ir.Constant(kind, WIDE), ir.Constant(kind, AHEAD)
        shift = everywhere(builder.trunc(cost, _WORD))
        unit = ir.Constant(_VECTOR, [UNIT] * WIDE)
        most = ir.Constant(_VECTOR, [_LAST_SHIFT] * WIDE)
        size = cgutils.unpack_tuple(builder, made(6).shape)[0]
        there = cgutils.unpack_tuple(builder, made(1).shape)[0]
        last = builder.sub(there, ir.Constant(kind, 1))
        total = cgutils.alloca_once(builder, _VECTOR)
        asks = ir.FunctionType(ir.VoidType(), [_BYTE.as_pointer(), _WORD, _WORD, _WORD])
        prefetch = cgutils.get_or_insert_function(
            builder.module, asks, "llvm.prefetch.p0i8"
        )
        # To read, soon and more than once, data.
        hints = (_WORD(0), _WORD(2), _WORD(1))
        with cgutils.for_range(builder, builder.udiv(size, wide)) as block:
            first = builder.mul(block.index, wide)
            sums = vector(6, [first], _WORD)
            builder.store(builder.load(sums, align=4), total)
            with cgutils.for_range(builder, builder.sub(end, begin)) as loop:
                at = builder.add(begin, loop.index)
                far = builder.add(at, ahead)
                far = builder.select(builder.icmp_signed("<", far, last), far, last)
                coming = builder.sext(builder.load(pointer(1, [far])), kind)
                builder.call(prefetch, [pointer(0, [coming, first]), *hints])
                node = builder.sext(builder.load(pointer(1, [at])), kind)
                counts = builder.load(vector(0, [node, first], _BYTE), align=1)
                by = builder.shl(builder.zext(counts, _VECTOR), shift)
                by = builder.select(builder.icmp_unsigned("<", by, most), by, most)
                # The last shift leaves nothing of the unit.
                by = builder.select(builder.icmp_signed("==", node, but), most, by)
                added = builder.lshr(unit, by)
                builder.store(builder.add(builder.load(total), added), total)
            builder.store(builder.load(total), sums, align=4)
        return context.get_dummy_value()

    return signature, generate
