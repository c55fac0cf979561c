"""Results of an evaluation on disk: kept by dataset and method, published together."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from xnq_dist import schemas
from xnq_dist.evaluation.interface import Task
from xnq_dist.evaluation.results import (
    configuration_rows,
    estimate_rows,
    result_rows,
)
from xnq_dist.evaluation.run import MethodResult
from xnq_dist.store import Folder, TableWriter

__all__ = ["TABLES", "keep", "kept", "publish_tables", "unpublish"]

TABLES = ("results", "configurations", "estimates")
PAGES = ("evaluation.html",)
FOLDERS = ("tables", "figures")


def keep(dataset: Folder, task: Task, result: MethodResult) -> None:
    """Keep a method's tables in the dataset's folder, in place of earlier ones."""
    made = {
        "results": result_rows(task, result),
        "configurations": configuration_rows(task, result),
        "estimates": estimate_rows(task, result),
    }
    folder = dataset.child("results")
    folder.create()
    for name, table in made.items():
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink, compression="zstd")
        data = sink.getvalue().to_pybytes()
        folder.write_bytes(f"{name}-{result.method}.parquet", data)


def kept(datasets: Sequence[Folder], name: str) -> pa.Table:
    """One kind of table of every dataset and method kept so far."""
    parts = []
    for dataset in datasets:
        folder = dataset.child("results")
        for file in folder.names():
            if file.startswith(f"{name}-") and file.endswith(".parquet"):
                with folder.open_input(file) as stream:
                    table = pq.read_table(stream)
                schemas.check(table.schema, name, f"{folder.uri}/{file}")
                parts.append(table)
    first = parts[0].schema
    return pa.concat_tables(
        [part.replace_schema_metadata(first.metadata) for part in parts]
    )


def unpublish(out: Folder) -> None:
    """Remove published tables and pages: they no longer say what is kept."""
    for name in (*(f"{table}.parquet" for table in TABLES), *PAGES):
        out.delete(name)
    for name in FOLDERS:
        out.child(name).delete_folder()


def publish_tables(out: Folder, datasets: Sequence[Folder]) -> dict[str, pa.Table]:
    """Write the tidy tables of everything kept; returns them."""
    found = {name: kept(datasets, name) for name in TABLES}
    for name, table in found.items():
        with TableWriter(out, f"{name}.parquet.tmp", name) as writer:
            writer.write(table)
        out.filesystem.move(
            out.path(f"{name}.parquet.tmp"), out.path(f"{name}.parquet")
        )
    return found
