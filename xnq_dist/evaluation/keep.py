"""Results of an evaluation on disk: kept by dataset and method, published together."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from xnq_dist.core import schemas
from xnq_dist.core.store import Folder, TableWriter
from xnq_dist.evaluation.methods.method_interface import Task
from xnq_dist.evaluation.on_workers import MethodResult
from xnq_dist.evaluation.results import (
    configuration_rows,
    estimate_rows,
    result_rows,
)

__all__ = [
    "TABLES",
    "keep",
    "keep_communities",
    "kept",
    "publish_communities",
    "publish_tables",
    "unpublish",
    "unpublish_communities",
]

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
                schemas.check(table.schema, name, folder.uri_of(file))
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
        _publish(out, name, table)
    return found


def _publish(out: Folder, name: str, table: pa.Table) -> None:
    with TableWriter(out, f"{name}.parquet.tmp", name) as writer:
        writer.write(table)
    out.filesystem.move(out.path(f"{name}.parquet.tmp"), out.path(f"{name}.parquet"))


COMMUNITIES = "community_results"


def keep_communities(dataset: Folder, table: pa.Table) -> None:
    """Keep a dataset's figures on communities, in place of earlier ones."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd")
    folder = dataset.child("communities")
    folder.create()
    folder.write_bytes(f"{COMMUNITIES}.parquet", sink.getvalue().to_pybytes())


def unpublish_communities(out: Folder) -> None:
    """Remove published figures on communities: they no longer say what is kept."""
    out.delete(f"{COMMUNITIES}.parquet")
    out.delete("communities.html")
    tables = out.child("tables")
    if tables.exists():
        for name in tables.names():
            if name.startswith("communities-"):
                tables.delete(name)


def publish_communities(out: Folder) -> pa.Table:
    """Publish the figures of all datasets, their tables and the page; returns them."""
    from xnq_dist.evaluation.community_tables import community_outputs

    parts = []
    for name in out.names():
        folder = out.child(name).child("communities")
        if folder.exists(f"{COMMUNITIES}.parquet"):
            with folder.open_input(f"{COMMUNITIES}.parquet") as stream:
                parts.append(pq.read_table(stream))
            schemas.check(parts[-1].schema, COMMUNITIES, folder.uri)
    table = pa.concat_tables(parts)
    out.child("tables").create()
    for name, data in community_outputs(table).items():
        inside, _, last = name.rpartition("/")
        (out.child(inside) if inside else out).write_bytes(last, data)
    _publish(out, COMMUNITIES, table)
    return table
