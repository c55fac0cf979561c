"""Results of an evaluation: on disk by dataset, published together, as Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

import pyarrow as pa
import pyarrow.parquet as pq

from xnq_dist.core import schemas
from xnq_dist.core.redaction import plain
from xnq_dist.core.store import Folder

__all__ = [
    "EMPTY",
    "RenderedTable",
    "arrow_schema",
    "keep",
    "publish",
    "read_parquet",
    "to_markdown",
]

FOLDER = "results"
"""Folder of the tables of one dataset, in the dataset's folder."""

EMPTY = "-"
"""Text of a cell without a measurement."""


@dataclass(frozen=True)
class RenderedTable:
    """A table with a heading for each column; the first column names the rows."""

    name: str
    """Name of its file."""
    title: str
    header: Sequence[str]
    rows: Mapping[tuple[str, str], Sequence[str]]
    """Texts of the other columns by group and name of the row."""
    note: str
    """Sentences below the table."""


def arrow_schema(name: str) -> pa.Schema:
    """Arrow schema of a registered table of an evaluation."""
    columns = schemas.TABLES[name].columns
    return pa.schema([(one.name, pa.type_for_alias(one.kind)) for one in columns])


def read_parquet(folder: Folder, file: str, name: str) -> pa.Table:
    """Read a table with the schema of this name, which is checked."""
    with folder.open_input(file) as stream:
        return schemas.conform(pq.read_table(stream), name, folder.uri_of(file))


def keep(dataset: Folder, tables: Mapping[str, pa.Table], method: str) -> None:
    """Write tables of a method to a dataset's folder, replacing earlier ones."""
    for name, table in tables.items():
        _write_parquet(dataset.child(FOLDER), f"{name}-{method}.parquet", table)


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
        _write_parquet(out, f"{name}.parquet", tables[name])
    return tables


def to_markdown(table: RenderedTable) -> str:
    """The table in Markdown; a group's name is in a row before its rows."""
    lines = [list(table.header)]
    for group, rows in groupby(table.rows.items(), lambda row: row[0][0]):
        if group:
            lines.append([f"*{group}*", *[""] * (len(table.header) - 1)])
        lines += [[name, *texts] for (_, name), texts in rows]
    lines = [[plain(text).replace("|", "\\|") for text in line] for line in lines]
    first, *others = (max(3, *map(len, each)) for each in zip(*lines, strict=True))
    lines.insert(1, ["-" * first, *("-" * (width - 1) + ":" for width in others)])
    made = [f"**{table.title}**", ""]
    for name, *texts in lines:
        padded = [text.rjust(width) for text, width in zip(texts, others, strict=True)]
        made.append(f"| {' | '.join([name.ljust(first), *padded])} |")
    return "\n".join([*made, "", table.note]) + "\n"


def _write_parquet(folder: Folder, file: str, table: pa.Table) -> None:
    """Write a table atomically."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd")
    folder.create()
    folder.write_bytes(file, sink.getvalue().to_pybytes())
