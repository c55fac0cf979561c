"""Canonical index of a node: the rank of its id among all node ids.

Integers rank by value, strings by their UTF-8 bytes, so the order of the rows of a node
table never matters. Memory is proportional to the nodes alone: look-ups use a
table (dense integers) or a hash table.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt
from numba import njit
from numpy.typing import NDArray

from xnq_dist.core.arrays import Bytes, Ints, Ints32
from xnq_dist.core.errors import DoesNotFitError, InputError
from xnq_dist.core.random_bits import mix
from xnq_dist.graph.formats import format_of
from xnq_dist.graph.tables import Batch, ids_of
from xnq_dist.graph.values import is_wide, show

__all__ = ["NodeIds", "text_of"]

_DENSE = 4
"""Integer ids use a look-up table if their range is at most this many times N."""
DIGITS = 18
"""Digits that int64 holds for any number."""
MAX_NODES = 2**31 - 1
"""Canonical indices are kept as int32."""


class NodeIds:
    """All node ids in canonical order, with look-up of indices.

    `values` are sorted and unique; `from_column` takes ids in any order.
    """

    def __init__(self, values: pa.Array) -> None:
        self.values = values
        self._lookup: _Dense | _HashedIntegers | _HashedStrings
        if not pt.is_integer(values.type):
            self._lookup = _HashedStrings(values)
            return
        numbers = values.to_numpy()
        span = int(numbers[-1]) - int(numbers[0]) + 1 if len(numbers) else 0
        if 0 < span <= _DENSE * len(numbers):
            self._lookup = _Dense(numbers, span)
        else:
            self._lookup = _HashedIntegers(numbers)

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
        if pt.is_integer(ids.type):
            numbers = np.concatenate(
                [np.empty(0, np.int64), *(chunk.to_numpy() for chunk in ids.chunks)]
            )
            order = np.argsort(numbers, kind="stable")
            ordered = numbers[order]
            equal = np.flatnonzero(ordered[1:] == ordered[:-1])
            values = pa.array(ordered)
        else:
            # Use 64-bit offsets: all ids together may exceed 2 GiB.
            ids = ids.cast(pa.large_string())
            order = pc.sort_indices(ids).to_numpy().astype(np.int64)
            taken = ids.take(pa.array(order))
            values = taken.combine_chunks()
            if isinstance(values, pa.ChunkedArray):
                values = pa.concat_arrays(values.chunks)
            equal = np.flatnonzero(pc.equal(values[1:], values[:-1]).to_numpy(False))
            if values.nbytes < 2**31:
                values = values.cast(pa.string())
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
        values = pa.LargeStringArray.from_buffers(len(arrays[0]) - 1, offsets, data)
        return cls(values.cast(pa.string()) if values.nbytes < 2**31 else values)

    @property
    def type(self) -> str:
        """``int64`` or ``string``."""
        return "int64" if pt.is_integer(self.values.type) else "string"

    @cached_property
    def wide(self) -> bool:
        """Whether ids are text because one of them, an integer, exceeds int64."""
        if self.type == "int64":
            return False
        size = pc.max(pc.binary_length(self.values)).as_py() or 0
        whole = pc.match_substring_regex(self.values, r"^(0|-?[1-9]\d*)$")
        return size > DIGITS and bool(pc.all(whole).as_py())

    def takes(self, ids: pa.Array, stored: pa.DataType) -> bool:
        """Whether ids, of a column of type `stored`, can be those of nodes."""
        if pt.is_integer(ids.type):
            return self.type == "int64" or self.wide
        return self.type == "string" or is_wide(stored)

    def name(self, index: int) -> str:
        """Name, in messages, of the node with this canonical index."""
        return show(self.values, index)

    def find(self, batch: Batch, column: str) -> tuple[pa.Array, Ints]:
        """The ids in a column and their canonical indices, -1 if unknown.

        Raises
        ------
        InputError
            As `ids_of`, and for ids of another type, except text in a file without
            types: of it, only the text of integers can be known.
        """
        ids = ids_of(batch, column)
        untyped = pt.is_string(ids.type) and format_of(batch.file).untyped
        if not untyped and not self.takes(ids, batch.rows.column(column).type):
            raise InputError(
                f"column {column!r} of {batch.file} holds {ids.type} ids such as "
                f"{show(ids, 0)} but the node table has {self.type} ids such as "
                f"{self.name(0)}: write both as the same type"
            )
        return ids, self.index_of_numbers(ids)

    def index_of_numbers(self, ids: pa.Array) -> Ints:
        """As `index_of`; text and integers of the same number are the same id."""
        if pt.is_integer(ids.type) or self.type == "string":
            return self.index_of(ids)
        plain = pc.match_substring_regex(ids, r"^(0|-?[1-9]\d{0,17})$")
        numbers = pc.if_else(plain, ids, None).cast(pa.int64())
        index = self.index_of(numbers.fill_null(0))
        return np.where(numbers.is_valid().to_numpy(False), index, -1)

    def index_of(self, ids: pa.Array | pa.ChunkedArray) -> Ints:
        """Canonical index of each id, -1 if unknown; raises for ids of another type."""
        if isinstance(ids, pa.ChunkedArray):
            parts = [self.index_of(chunk) for chunk in ids.chunks]
            return np.concatenate([np.empty(0, np.int64), *parts])
        if pt.is_integer(ids.type) and self.wide:
            ids = ids.cast(pa.string())
        if pt.is_integer(ids.type) != pt.is_integer(self.values.type):
            kind = "int64" if pt.is_integer(ids.type) else "string"
            raise InputError(
                f"ids are {kind} but the node table has {self.type} ids: write both as "
                "the same type"
            )
        return self._lookup.find(ids)


class _Dense:
    def __init__(self, numbers: Ints, span: int) -> None:
        self._first, self._last = (int(n) for n in numbers[[0, -1]])
        self._table = np.full(span, -1, np.int32)
        self._table[numbers - self._first] = np.arange(len(numbers), dtype=np.int32)

    def find(self, ids: pa.Array) -> Ints:
        keys = ids.to_numpy()
        out = np.full(len(keys), -1, np.int64)
        known = (keys >= self._first) & (keys <= self._last)
        out[known] = self._table[keys[known] - self._first]
        return out


class _HashedIntegers:
    def __init__(self, numbers: Ints) -> None:
        self._numbers = numbers
        self._slots = np.full(_table_size(len(numbers)), -1, np.int32)
        fill_integers(numbers, self._slots)

    def find(self, ids: pa.Array) -> Ints:
        out = np.empty(len(ids), np.int64)
        find_integers(ids.to_numpy(), self._numbers, self._slots, out)
        return out


class _HashedStrings:
    def __init__(self, values: pa.Array) -> None:
        self._known = text_of(values)
        self._hashes = text_hashes(*self._known)
        self._slots = np.full(_table_size(len(values)), -1, np.int32)
        fill_integers(self._hashes, self._slots)

    def find(self, ids: pa.Array) -> Ints:
        asked, out = text_of(ids), np.empty(len(ids), np.int64)
        hashes = text_hashes(*asked)
        find_integers(hashes, self._hashes, self._slots, out)
        check_strings(*asked, hashes, *self._known, self._slots, out)
        return out


def _table_size(n: int) -> int:
    """Number of slots, a power of two, of a hash table that is at most half full."""
    return 1 << max(2, (2 * n - 1).bit_length())


def text_of(values: pa.Array) -> tuple[Ints, Bytes]:
    """Offsets (int64, length n + 1) and UTF-8 bytes of a string array."""
    if pt.is_string(values.type):
        width: np.dtype[Any] = np.dtype(np.int32)
    else:
        values = values.cast(pa.large_string())
        width = np.dtype(np.int64)
    _, offsets, data = values.buffers()
    if not len(values):
        return np.zeros(1, np.int64), np.zeros(0, np.uint8)
    counted = np.frombuffer(
        offsets, width, len(values) + 1, values.offset * width.itemsize
    )
    start, stop = int(counted[0]), int(counted[-1])
    # Arrays of empty strings have no data buffer. Arrow's buffer is read-only.
    raw = np.frombuffer(data, np.uint8, stop - start, start) if stop > start else None
    text = np.zeros(0, np.uint8) if raw is None else raw
    text.flags.writeable = False
    return counted.astype(np.int64) - start, text


@njit(cache=True, nogil=True)
def fill_integers(numbers: Ints, slots: Ints32) -> None:
    """Insert distinct integers into an empty open-addressing table."""
    mask = np.uint64(slots.shape[0] - 1)
    for i in range(numbers.shape[0]):
        at = mix(np.uint64(numbers[i])) & mask
        while slots[at] >= 0:
            at = (at + np.uint64(1)) & mask
        slots[at] = i


@njit(cache=True, nogil=True)
def find_integers(keys: Ints, numbers: Ints, slots: Ints32, out: Ints) -> None:
    """Index of each key among `numbers`, -1 when absent."""
    mask = np.uint64(slots.shape[0] - 1)
    for i in range(keys.shape[0]):
        at = mix(np.uint64(keys[i])) & mask
        found = -1
        while slots[at] >= 0:
            if numbers[slots[at]] == keys[i]:
                found = slots[at]
                break
            at = (at + np.uint64(1)) & mask
        out[i] = found


@njit(cache=True, nogil=True)
def hash_text(data: Bytes, first: int, last: int) -> np.uint64:
    """FNV-1a of some bytes, mixed."""
    h = np.uint64(0xCBF29CE484222325)
    for i in range(first, last):
        h = (h ^ np.uint64(data[i])) * np.uint64(0x100000001B3)
    spread: np.uint64 = mix(h)
    return spread


@njit(cache=True, nogil=True)
def text_hashes(offsets: Ints, data: Bytes) -> Ints:
    """The hash of each string."""
    hashes = np.empty(offsets.shape[0] - 1, np.int64)
    for i in range(hashes.shape[0]):
        hashes[i] = np.int64(hash_text(data, offsets[i], offsets[i + 1]))
    return hashes


@njit(cache=True, nogil=True)
def same_text(a: Bytes, at: int, b: Bytes, first: int, size: int) -> bool:
    """Whether `size` bytes from two places agree."""
    differ = np.uint8(0)
    # With unsigned indices Numba omits the check for negative ones.
    for j in range(size):
        differ |= a[np.uint64(at + j)] ^ b[np.uint64(first + j)]
    return bool(differ == 0)


@njit(cache=True, nogil=True)
def check_strings(
    offsets: Ints,
    data: Bytes,
    hashes: Ints,
    known_offsets: Ints,
    known_data: Bytes,
    slots: Ints32,
    out: Ints,
) -> None:
    """Replace the index of a string that has the hash of another one, -1 when absent.

    `out`: what `find_integers` found for the hashes. Hashes and bytes are compared in
    separate loops, so that the cache misses of many strings overlap.
    """
    n, mask = hashes.shape[0], np.uint64(slots.shape[0] - 1)
    starts = np.empty((n, 2), np.int64)
    for i in range(n):
        if out[i] >= 0:
            starts[i, 0] = known_offsets[out[i]]
            starts[i, 1] = known_offsets[out[i] + 1]
    for i in range(n):
        at, found = mix(np.uint64(hashes[i])) & mask, out[i]
        first, size = offsets[i], offsets[i + 1] - offsets[i]
        start, end = starts[i]
        while found >= 0 and not (
            end - start == size and same_text(known_data, start, data, first, size)
        ):
            # Another string with the same hash: rare, look at all from the first.
            found = slots[at]
            at = (at + np.uint64(1)) & mask
            if found >= 0:
                start, end = known_offsets[found], known_offsets[found + 1]
        out[i] = found
