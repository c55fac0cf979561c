"""Compares the sizes in Parquet's page headers with the footer, before Arrow reads.

Arrow allocates what a page header names. In a damaged file that can be 2 GiB, and a
compressed size of that order ends the process.
"""

from __future__ import annotations

import io
from collections.abc import Collection
from contextlib import suppress
from typing import Any

import pyarrow as pa

__all__ = ["check_pages"]

HEADS = (1 << 10, 1 << 24)
"""Bytes in which most page headers are, and the maximum."""


def check_pages(
    stream: Any, footer: Any, columns: Collection[str], groups: range | None = None
) -> None:
    """Check all pages of some columns and row groups (None: all); 20 us a page.

    Raises
    ------
    pa.ArrowInvalid
        When a page is larger than the footer says, or has no valid header.
    """
    numbers = range(footer.num_row_groups) if groups is None else groups
    for group in map(footer.row_group, numbers):
        for chunk in map(group.column, range(footer.num_columns)):
            if chunk.path_in_schema.split(".")[0] in columns:
                _check_chunk(stream, chunk)


def _check_chunk(stream: Any, chunk: Any) -> None:
    offsets = chunk.dictionary_page_offset, chunk.data_page_offset
    at = min(filter(None, offsets), default=0)
    end = at + chunk.total_compressed_size
    if end > stream.size():
        raise pa.ArrowInvalid(f"column {chunk.path_in_schema} ends after the file")
    while at < end:
        unpacked, packed, length = _sizes(stream, at, end)
        at += length + packed
        if not (0 <= unpacked <= chunk.total_uncompressed_size and at <= end):
            raise pa.ArrowInvalid(
                f"a page of column {chunk.path_in_schema} has a damaged size"
            )


def _sizes(stream: Any, at: int, end: int) -> tuple[int, int, int]:
    """Bytes of a page without and with compression, and of its header."""
    for size in HEADS:
        stream.seek(at)
        header = io.BytesIO(stream.read(min(size, end - at)))
        with suppress(IndexError, OverflowError, RecursionError, ValueError):
            _, unpacked, packed, *_ = _struct(header)
            return unpacked, packed, header.tell()
    raise pa.ArrowInvalid("a page has a damaged header")


def _struct(data: io.BytesIO) -> list[int]:
    """Fields of a struct in Thrift's compact protocol; 0 for all but integers."""
    fields = []
    while kind := data.read(1)[0]:
        if kind < 16:  # the field's number follows
            _varint(data)
        kind &= 15
        value = 0
        if kind in (4, 5, 6):
            value = _varint(data)
            value = value >> 1 ^ -(value & 1)
        elif kind == 8:
            data.seek(_varint(data), io.SEEK_CUR)
        elif kind == 12:
            _struct(data)
        elif kind > 2:
            raise IndexError  # page headers have no values of other types
        fields.append(value)
    return fields


def _varint(data: io.BytesIO) -> int:
    value = shift = 0
    while (byte := data.read(1)[0]) > 127:
        value |= (byte & 127) << shift
        shift += 7
    return value | byte << shift
