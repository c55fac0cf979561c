"""Results of an evaluation on disk, by dataset, and their publication together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from xnq_dist.core import schemas
from xnq_dist.core.store import Folder

__all__ = ["arrow_schema", "keep", "publish", "read_parquet", "write_parquet"]

FOLDER = "results"
"""Folder of the tables of one dataset, in the dataset's folder."""


def arrow_schema(name: str) -> pa.Schema:
    """Arrow schema of a registered table of an evaluation."""
    columns = schemas.TABLES[name].columns
    return pa.schema([(one.name, pa.type_for_alias(one.kind)) for one in columns])


def write_parquet(folder: Folder, file: str, table: pa.Table) -> None:
    """Write a table atomically."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd")
    folder.create()
    folder.write_bytes(file, sink.getvalue().to_pybytes())


def read_parquet(folder: Folder, file: str, name: str) -> pa.Table:
    """Read a table with the schema of this name, which is checked."""
    with folder.open_input(file) as stream:
        return schemas.conform(pq.read_table(stream), name, folder.uri_of(file))


def keep(dataset: Folder, tables: Mapping[str, pa.Table], method: str) -> None:
    """Write tables of a method to a dataset's folder, replacing earlier ones."""
    for name, table in tables.items():
        write_parquet(dataset.child(FOLDER), f"{name}-{method}.parquet", table)


def publish(out: Folder, names: Sequence[str]) -> dict[str, pa.Table]:
    """Write the tables of all datasets and methods, and return them by name."""
    folders = [out.child(dataset).child(FOLDER) for dataset in out.names()]
    tables = {}
    for name in names:
        parts = [
            read_parquet(folder, file, name)
            for folder in folders
            for file in folder.names()
            if file.startswith(f"{name}-")
        ]
        tables[name] = pa.concat_tables(parts)
        write_parquet(out, f"{name}.parquet", tables[name])
    return tables
