"""Feather version 2, which is Arrow's IPC file format."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.ipc

__all__ = ["batches", "chunks", "rows", "schema"]


@contextmanager
def _opened(
    filesystem: Any, file: str, columns: list[str] | None = None
) -> Iterator[pa.ipc.RecordBatchFileReader]:
    with filesystem.open_input_file(file) as stream:
        reader = pa.ipc.open_file(stream)
        if columns is not None:
            fields = [reader.schema.get_field_index(name) for name in columns]
            options = pa.ipc.IpcReadOptions(included_fields=fields)
            reader = pa.ipc.open_file(stream, options=options)
        yield reader


def schema(filesystem: Any, file: str) -> pa.Schema:
    """Names and types of the columns."""
    with _opened(filesystem, file) as reader:
        return reader.schema


def rows(filesystem: Any, file: str) -> int:
    """Number of rows."""
    with _opened(filesystem, file) as reader:
        return int(reader.count_rows())


def chunks(filesystem: Any, file: str) -> Iterator[Any]:
    """Bytes and nulls of columns, as in Parquet: a file does not store them."""
    return iter(())


def batches(
    filesystem: Any, file: str, columns: list[str], rows: int, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Yield the columns, at most `rows` rows at a time."""
    with _opened(filesystem, file, columns) as reader:
        for number in range(reader.num_record_batches):
            batch = reader.get_batch(number).select(columns)
            batch.validate(full=True)
            for first in range(0, batch.num_rows, rows):
                yield batch.slice(first, rows)
