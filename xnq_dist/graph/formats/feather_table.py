"""Feather version 2, which is Arrow's IPC file format."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
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
    """Yield an equal share of the file's bytes for every column, as in Parquet."""
    size = filesystem.get_file_info(file).size
    with _opened(filesystem, file) as reader:
        names, count = reader.schema.names, int(reader.count_rows())
    for name in names:
        yield SimpleNamespace(
            path_in_schema=name,
            num_values=count,
            total_compressed_size=size // len(names),
            total_uncompressed_size=size // len(names),
            statistics=None,
        )


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
