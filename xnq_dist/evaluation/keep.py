"""Results of an evaluation on disk, by dataset and method, and their publication."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from xnq_dist.core import schemas
from xnq_dist.core.store import Folder, TableWriter

__all__ = [
    "COMMUNITIES",
    "PAPER",
    "Published",
    "arrow_schema",
    "keep",
    "publish",
    "read_parquet",
    "unpublish",
    "write_parquet",
]


@dataclass(frozen=True)
class Published:
    """Files of one kind of evaluation."""

    folder: str
    """Folder of the tables of one dataset, in the dataset's folder."""
    tables: tuple[str, ...]
    """Names of registered tables; the first has the results."""


PAPER = Published("results", ("results", "configurations", "estimates"))
COMMUNITIES = Published("communities", ("community_results",))


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
    """Read a table with the schema of this name."""
    with folder.open_input(file) as stream:
        table = pq.read_table(stream)
    schemas.check(table.schema, name, folder.uri_of(file))
    return table


def keep(
    dataset: Folder, of: Published, tables: Mapping[str, pa.Table], method: str = "all"
) -> None:
    """Write tables (of a method) to a dataset's folder, replacing earlier ones."""
    for name, table in tables.items():
        write_parquet(dataset.child(of.folder), f"{name}-{method}.parquet", table)


def unpublish(out: Folder, of: Published) -> None:
    """Remove published tables and figures, which are about to become outdated."""
    for name in of.tables:
        out.delete(f"{name}.parquet")
    for folder in (out.child("tables"), out.child("figures")):
        for name in folder.names():
            if name.startswith("communities-") == (of is COMMUNITIES):
                folder.delete(name)


def publish(out: Folder, of: Published) -> dict[str, pa.Table]:
    """Write the tables of all datasets and methods, and return them by name."""
    folders = [out.child(dataset).child(of.folder) for dataset in out.names()]
    tables = {}
    for name in of.tables:
        parts = [
            read_parquet(folder, file, name)
            for folder in folders
            for file in folder.names()
            if file.startswith(f"{name}-")
        ]
        metadata = parts[0].schema.metadata
        tables[name] = pa.concat_tables(
            [part.replace_schema_metadata(metadata) for part in parts]
        )
        with TableWriter(out, f"{name}.parquet.tmp", name) as writer:
            writer.write(tables[name])
        temporary = out.path(f"{name}.parquet.tmp")
        out.filesystem.move(temporary, out.path(f"{name}.parquet"))
    return tables
