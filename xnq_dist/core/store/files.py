"""Writes Parquet files in pieces, as their schemas say."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any, Self

import pyarrow as pa
import pyarrow.parquet as pq

from xnq_dist.core import schemas
from xnq_dist.core.errors import StageError
from xnq_dist.core.store.folder import Folder

__all__ = ["TableWriter"]


IDS = {"node_id", "index", "src", "dst"}
"""Columns whose values rarely repeat."""


class TableWriter(ExitStack):
    """Writes a Parquet file in pieces; `record` is set once it is closed.

    Parameters
    ----------
    folder, name
        Folder and name of the file.
    schema
        Name of the table's schema.
    run_id
        Run id of published results; empty: the table is not published.
    """

    def __init__(
        self, folder: Folder, name: str, schema: str, run_id: str = ""
    ) -> None:
        super().__init__()
        self._folder, self._name = folder, name
        self._schema, self._run_id = schema, run_id
        self._rows = 0
        self._writer: pq.ParquetWriter | None = None

    def __enter__(self) -> Self:
        self._sink = self.enter_context(self._folder.open_output(self._name))
        return self

    def write(self, table: pa.Table) -> None:
        """Check and append a table."""
        where = self._folder.uri_of(self._name)
        table = schemas.conform(table, self._schema, where, self._run_id)
        if self._writer is None:
            # Vectors are written as columns of their elements.
            leaves = {
                field.name: f"{field.name}.list.element"
                if pa.types.is_fixed_size_list(field.type)
                else field.name
                for field in table.schema
            }
            # Embeddings would shrink by a seventh and take 1.5 times as long to read.
            small = [leaf for name, leaf in leaves.items() if name != "embedding"]
            writer = pq.ParquetWriter(
                self._sink,
                table.schema,
                compression=dict.fromkeys(small, "zstd"),
                compression_level=dict.fromkeys(small, 1),
                # Ids and vectors rarely repeat: dictionary encoding costs time only.
                use_dictionary=[*leaves.keys() & {*leaves.values()} - IDS],
                # A tenth smaller, and faster to write and to read.
                use_byte_stream_split=[*set(small) - leaves.keys()],
            )
            self._writer = self.enter_context(writer)
        self._writer.write_table(table)
        self._rows += table.num_rows

    def __exit__(self, *raised: Any) -> None:
        super().__exit__(*raised)
        if raised[0] is None:
            if self._writer is None:
                raise StageError(f"{self._folder.uri_of(self._name)}: nothing written")
            self.record = self._sink.record(self._name, self._rows)
