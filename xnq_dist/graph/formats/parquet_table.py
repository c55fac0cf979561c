"""Parquet."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

__all__ = ["batches", "chunks", "group_rows", "schema"]


COMPRESSED_PAGES = 1 << 20
"""Bytes read ahead per column: a huge row group is never loaded completely."""


@contextmanager
def _opened(filesystem: Any, file: str) -> Iterator[pq.ParquetFile]:
    with filesystem.open_input_file(file) as stream:
        # Pre-buffering, Arrow's default, would keep everything read in memory.
        yield pq.ParquetFile(
            stream,
            pre_buffer=False,
            buffer_size=COMPRESSED_PAGES,
            page_checksum_verification=True,
        )


def schema(filesystem: Any, file: str) -> pa.Schema:
    """Names and types of the columns."""
    with _opened(filesystem, file) as parquet:
        return parquet.schema_arrow


def group_rows(filesystem: Any, file: str) -> list[int]:
    """Number of rows of each row group."""
    with _opened(filesystem, file) as parquet:
        footer = parquet.metadata
        return [footer.row_group(at).num_rows for at in range(footer.num_row_groups)]


def chunks(filesystem: Any, file: str) -> Iterator[Any]:
    """Yield the footer's metadata of every chunk of every column."""
    with _opened(filesystem, file) as parquet:
        footer = parquet.metadata
        for group in range(footer.num_row_groups):
            for at in range(footer.num_columns):
                yield footer.row_group(group).column(at)


def batches(
    filesystem: Any,
    file: str,
    columns: list[str],
    rows: int,
    schema: pa.Schema,
    groups: range | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the columns, of some row groups or all, at most `rows` rows at a time."""
    with _opened(filesystem, file) as parquet:
        yield from parquet.iter_batches(rows, groups, columns)
