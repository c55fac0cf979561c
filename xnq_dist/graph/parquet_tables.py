"""Tables in Parquet."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from xnq_dist.graph.values import without_views

__all__ = ["PARQUET_ENDINGS", "ParquetFile"]

PARQUET_ENDINGS = (".parquet", ".pq")
"""Endings of names."""
COMPRESSED_PAGES = 1 << 20
"""Bytes read ahead per column: a huge row group is never loaded completely."""


@dataclass(frozen=True)
class ParquetFile:
    """One file."""

    filesystem: Any
    path: str

    @contextmanager
    def _opened(self) -> Iterator[pq.ParquetFile]:
        with self.filesystem.open_input_file(self.path) as stream:
            # Pre-buffering, Arrow's default, would keep everything read in memory.
            yield pq.ParquetFile(
                stream,
                pre_buffer=False,
                buffer_size=COMPRESSED_PAGES,
                page_checksum_verification=True,
            )

    def schema(self) -> pa.Schema:
        """Names and types of the columns."""
        with self._opened() as parquet:
            return without_views(parquet.schema_arrow)

    def group_rows(self) -> list[int]:
        """Number of rows of each row group."""
        with self._opened() as parquet:
            footer = parquet.metadata
            groups = range(footer.num_row_groups)
            return [footer.row_group(at).num_rows for at in groups]

    def nulls(self, column: str) -> int | None:
        """Rows without a value in a column by the footer; None: it does not say."""
        with self._opened() as parquet:
            footer = parquet.metadata
        total = 0
        for group in map(footer.row_group, range(footer.num_row_groups)):
            for chunk in map(group.column, range(group.num_columns)):
                if chunk.path_in_schema.split(".")[0] != column:
                    continue
                if chunk.statistics is None or not chunk.statistics.has_null_count:
                    return None
                total += chunk.statistics.null_count
        return total

    def batches(
        self, columns: list[str], rows: int, groups: range | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the columns, of some row groups or all, at most `rows` at a time."""
        with self._opened() as parquet:
            for batch in parquet.iter_batches(rows, groups, columns):
                yield batch.cast(without_views(batch.schema))
