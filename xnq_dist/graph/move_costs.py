"""Cost of one more halo row in each partition, for eight partitions per instruction.

This is the inner loop of refinement, over all edges and partitions. Numba does not
vectorise a loop over a few partitions; here the sums also stay in registers instead of
being written and read again for each edge.
"""

from __future__ import annotations

from typing import Any

import numba
from llvmlite import ir
from numba.core import cgutils
from numba.extending import intrinsic

__all__ = ["UNIT", "WIDE", "add_move_costs"]

UNIT = 1 << 14
"""The cost of a first row."""
WIDE = 8
"""Partitions per vector: the number of columns of a table is a multiple of it."""
AHEAD = 32
"""Prefetch distance in nodes."""

_BYTE, _WORD = ir.IntType(8), ir.IntType(32)
_VECTOR = ir.VectorType(_WORD, WIDE)
_LAST_SHIFT = 31


@intrinsic
def add_move_costs(
    typing: Any,
    table: Any,
    nodes: Any,
    begin: Any,
    end: Any,
    but: Any,
    cost: Any,
    sums: Any,
) -> Any:
    """``sums[q] += UNIT >> min(table[u, q] << cost, 31)`` for every q and some u.

    u runs over ``nodes[begin:end]`` except the node `but`. `table` is uint8, shape
    (N, Q), rows contiguous; `nodes` int32; `sums` int32, shape (Q,), Q a multiple of
    `WIDE`. The caller bounds the number of nodes so that int32 holds the sums.
    """
    place = numba.types.intp
    signature = numba.types.void(table, nodes, place, place, place, place, sums)

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
            kind = ir.VectorType(element, WIDE).as_pointer()
            return builder.bitcast(pointer(array, index), kind)

        def broadcast(value: Any) -> Any:
            empty = ir.Constant(_VECTOR, ir.Undefined)
            one = builder.insert_element(empty, value, _WORD(0))
            return builder.shuffle_vector(one, one, ir.Constant(_VECTOR, [0] * WIDE))

        _, _, begin, end, but, cost, _ = arguments
        kind = begin.type
        wide, ahead = ir.Constant(kind, WIDE), ir.Constant(kind, AHEAD)
        shift = broadcast(builder.trunc(cost, _WORD))
        unit = ir.Constant(_VECTOR, [UNIT] * WIDE)
        max_shift = ir.Constant(_VECTOR, [_LAST_SHIFT] * WIDE)
        size = cgutils.unpack_tuple(builder, made(6).shape)[0]
        there = cgutils.unpack_tuple(builder, made(1).shape)[0]
        last = builder.sub(there, ir.Constant(kind, 1))
        total = cgutils.alloca_once(builder, _VECTOR)
        signature_of_prefetch = ir.FunctionType(
            ir.VoidType(), [_BYTE.as_pointer(), _WORD, _WORD, _WORD]
        )
        prefetch = cgutils.get_or_insert_function(
            builder.module, signature_of_prefetch, "llvm.prefetch.p0i8"
        )
        # Hints of llvm.prefetch: for reading, moderate locality, data cache.
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
                by = builder.select(
                    builder.icmp_unsigned("<", by, max_shift), by, max_shift
                )
                # The maximum shift gives a cost of zero.
                by = builder.select(builder.icmp_signed("==", node, but), max_shift, by)
                added = builder.lshr(unit, by)
                builder.store(builder.add(builder.load(total), added), total)
            builder.store(builder.load(total), sums, align=4)
        return context.get_dummy_value()

    return signature, generate
