"""Canonical index of a node: the rank of its id among all node ids.

Integers rank by value, strings by their UTF-8 bytes, so the order of the rows of a node
table never matters. Memory is proportional to the nodes alone: look-ups use a hash
table.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt
from numpy.typing import NDArray

from xnq_dist.core.arrays import Bytes, Ints, Ints32
from xnq_dist.core.errors import DoesNotFitError, InputError
from xnq_dist.core.kernel import kernel
from xnq_dist.core.random_bits import mix
from xnq_dist.graph.keys import ids_of
from xnq_dist.graph.tables import Batch
from xnq_dist.graph.values import show

__all__ = ["NodeIds", "text_of"]

HASH_START = np.uint64(0xCBF29CE484222325)
"""State before the first byte of a text, in FNV-1a."""
MAX_NODES = 2**31 - 1
"""Canonical indices are kept as int32."""


class NodeIds:
    """All node ids in canonical order, with look-up of indices.

    `values` are sorted and unique; `from_column` takes ids in any order.
    """

    def __init__(self, values: pa.Array) -> None:
        if pt.is_large_string(values.type) and values.nbytes < 2**31:
            values = values.cast(pa.string())
        self.values = values
        self._keys = _keys(values)
        # A power of two, of which at most half is used.
        size = 1 << max(2, (2 * len(values) - 1).bit_length())
        self._slots = np.full(size, -1, np.int32)
        if not fill_integers(self._keys, self._slots):
            raise InputError(
                "two node ids have the same hash: use other ids, such as their row "
                "numbers"
            )

    @classmethod
    def from_column(
        cls, ids: pa.ChunkedArray, where: str = "the node table"
    ) -> tuple[NodeIds, Ints]:
        """The node ids from ids in any order, and the canonical index of each row.

        `ids` are int64 or string without nulls; messages call their table `where`.

        Raises
        ------
        InputError
            When an id occurs twice; the message names one.
        DoesNotFitError
            When there are more than 2^31 - 1 ids.
        """
        if len(ids) > MAX_NODES:
            raise DoesNotFitError(
                f"{where} has {len(ids):,} nodes and the maximum is {MAX_NODES:,}: "
                "split the graph into several runs"
            )
        if pt.is_string(ids.type):
            # Use 64-bit offsets: all ids together may exceed 2 GiB.
            ids = ids.cast(pa.large_string())
        order = pc.sort_indices(ids).to_numpy().astype(np.int64)
        values = ids.take(order).combine_chunks()
        equal = np.flatnonzero(pc.equal(values[1:], values[:-1]).to_numpy(False))
        if len(equal):
            raise InputError(
                f"node id {show(values, int(equal[0]))} occurs more than once in "
                f"{where} ({len(equal)} duplicate rows): keep one row for each node"
            )
        index = np.empty(len(order), np.int64)
        index[order] = np.arange(len(order))
        return cls(values), index

    def __len__(self) -> int:
        return len(self.values)

    def arrays(self) -> tuple[NDArray[Any], ...]:
        """The ids as NumPy arrays, for `of_arrays`."""
        return (
            text_of(self.values) if self.type == "string" else (self.values.to_numpy(),)
        )

    @classmethod
    def of_arrays(cls, *arrays: NDArray[Any]) -> NodeIds:
        """From `arrays`."""
        if len(arrays) == 1:
            return cls(pa.array(arrays[0]))
        offsets, data = (pa.py_buffer(array) for array in arrays)
        count = len(arrays[0]) - 1
        return cls(pa.LargeStringArray.from_buffers(count, offsets, data))

    @property
    def type(self) -> str:
        """``int64`` or ``string``."""
        return "int64" if pt.is_integer(self.values.type) else "string"

    def name(self, index: int) -> str:
        """Name, in messages, of the node with this canonical index."""
        return show(self.values, index)

    def find(
        self, batch: Batch, column: str, unknown: Literal["error", "drop"]
    ) -> Ints:
        """The canonical indices of the ids in a column, -1 if unknown.

        Raises
        ------
        InputError
            As `ids_of`, and for the first unknown one if that is an error.
        """
        ids = ids_of(batch, column)
        index = self.index_of(ids)
        if unknown == "error" and len(index) and index.min() < 0:
            at = int(np.argmax(index < 0))
            raise InputError(
                f"column {column!r} names node {show(ids, at)} in {batch.row(at)}, "
                f"which is not in the node table (its ids are such as {self.name(0)}): "
                "add the node, or set input.unknown_nodes = drop to leave such rows out"
            )
        return index

    def index_of(self, ids: pa.Array | pa.ChunkedArray) -> Ints:
        """Canonical index of each id, -1 if unknown.

        An integer and its text are the same id.
        """
        if isinstance(ids, pa.ChunkedArray):
            parts = [self.index_of(chunk) for chunk in ids.chunks]
            return np.concatenate([np.empty(0, np.int64), *parts])
        if self.type == "int64":
            return self._find(ids) if pt.is_integer(ids.type) else self._as_text(ids)
        ids = ids.cast(self.values.type)
        found = self._find(ids)
        there = self.values.take(pa.array(found, mask=found < 0))
        same = pc.equal(there, ids).fill_null(False)
        return np.where(same.to_numpy(zero_copy_only=False), found, -1)

    @cached_property
    def _as_text(self) -> Callable[[pa.Array], Ints]:
        """Look-up of integers by their text."""
        return NodeIds(self.values.cast(pa.large_string())).index_of

    def _find(self, ids: pa.Array) -> Ints:
        """Index of the id with the same key, -1 without one."""
        return find_integers(_keys(ids), self._keys, self._slots)


def _keys(ids: pa.Array) -> Ints:
    """Integers, or the hashes of text."""
    return ids.to_numpy() if pt.is_integer(ids.type) else text_hashes(*text_of(ids))


def text_of(values: pa.Array) -> tuple[Ints, Bytes]:
    """Offsets (int64, length n + 1) and UTF-8 bytes of a string array."""
    values = values.cast(pa.large_string())
    _, offsets, data = values.buffers()
    if not len(values):
        return np.zeros(1, np.int64), np.zeros(0, np.uint8)
    bounds = np.frombuffer(offsets, np.int64, len(values) + 1, values.offset * 8)
    # As an array, because text of empty strings may have no buffer.
    text = pa.Array.from_buffers(pa.uint8(), int(bounds[-1]), [None, data]).to_numpy()
    return bounds - bounds[0], text[bounds[0] :]


@kernel
def slot_of(key: int, numbers: Ints, slots: Ints32) -> np.uint64:
    """The slot of an integer in a hash table, or the empty one where it belongs.

    The first one tried has the integer's low bits, so that consecutive integers are
    next to each other in memory; others are from its hash on.
    """
    word, mask = np.uint64(key), np.uint64(slots.shape[0] - 1)
    at = word & mask
    if slots[at] >= 0 and numbers[slots[at]] != key:
        at = mix(word) & mask
        while slots[at] >= 0 and numbers[slots[at]] != key:
            at = (at + np.uint64(1)) & mask
    return at


@kernel
def fill_integers(numbers: Ints, slots: Ints32) -> bool:
    """Insert integers into an empty hash table; return whether they are distinct."""
    for i in range(numbers.shape[0]):
        at = slot_of(numbers[i], numbers, slots)
        if slots[at] >= 0:
            return False
        slots[at] = i
    return True


@kernel
def find_integers(keys: Ints, numbers: Ints, slots: Ints32) -> Ints:
    """Index of each key among `numbers`, -1 when absent."""
    found = np.empty(keys.shape[0], np.int64)
    for i in range(keys.shape[0]):
        found[i] = slots[slot_of(keys[i], numbers, slots)]
    return found


@kernel
def text_hashes(offsets: Ints, data: Bytes) -> Ints:
    """The hash of each string: FNV-1a of its bytes, mixed."""
    hashes = np.empty(offsets.shape[0] - 1, np.int64)
    for i in range(hashes.shape[0]):
        h = HASH_START
        for at in range(offsets[i], offsets[i + 1]):
            h = (h ^ np.uint64(data[at])) * np.uint64(0x100000001B3)
        hashes[i] = np.int64(mix(h))
    return hashes
