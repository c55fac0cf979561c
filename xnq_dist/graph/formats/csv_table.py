"""CSV, also compressed with gzip."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.types as pt

from xnq_dist.graph.formats import Format

__all__ = ["RECORDS", "batches", "schema"]

RECORDS = (
    Format(
        name="csv",
        title="a CSV file that can be read",
        rank=2,
        endings=(".csv", ".csv.gz"),
        hint="check the row, or write Parquet (types are taken from the file's start)",
    ),
)

BLOCK = 4 << 20
"""Bytes of the block that a batch is parsed from."""


@contextmanager
def _opened(
    filesystem: Any,
    file: str,
    columns: list[str] | None = None,
    types: dict[str, pa.DataType] | None = None,
) -> Iterator[pacsv.CSVStreamingReader]:
    options = pacsv.ConvertOptions(
        include_columns=columns or [],
        column_types=types or {},
        null_values=[""],
        strings_can_be_null=True,
    )
    with (
        filesystem.open_input_stream(file, compression="detect") as stream,
        pacsv.open_csv(
            stream,
            read_options=pacsv.ReadOptions(block_size=BLOCK),
            convert_options=options,
        ) as reader,
    ):
        yield reader


def schema(filesystem: Any, file: str) -> pa.Schema:
    """Names and types of the columns, from the file's first block."""
    with _opened(filesystem, file) as reader:
        return reader.schema


def batches(
    filesystem: Any, file: str, columns: list[str], rows: int, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Yield the columns, one block of the file at a time."""
    types = {
        name: _type_of_late_values(filesystem, file, name)
        for name in columns
        if pt.is_null(schema.field(name).type)
    }
    with _opened(filesystem, file, columns, types) as reader:
        yield from reader


def _type_of_late_values(filesystem: Any, file: str, column: str) -> pa.DataType:
    """Type of a column without values in the first block, from all blocks."""
    with _opened(filesystem, file, [column], {column: pa.string()}) as reader:
        for batch in reader:
            try:
                batch.column(0).cast(pa.int64())
            except pa.ArrowInvalid:
                return pa.string()
    return pa.int64()
