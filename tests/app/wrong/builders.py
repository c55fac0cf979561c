"""Cases of wrong inputs, and builders that spoil valid tables."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

NODES, EDGES, MEMBERS = "nodes", "edges", "memberships"
Spoil = Callable[[Path], object]


def VALID(folder: Path) -> None:  # noqa: N802 - stands among values
    """Leave the tables as they are."""


@dataclass(frozen=True)
class Case:
    """One wrong input."""

    name: str
    spoil: Spoil
    """Spoils the tables in a folder."""
    words: tuple[str, ...]
    """Words of the message: the place and what to do."""
    right: Spoil = VALID
    """Makes a similar input that is accepted, from valid tables."""
    arguments: tuple[str, ...] = ()
    right_arguments: tuple[str, ...] | None = None
    """Arguments of the right input; None: the same."""
    status: int = 2
    """Exit status; 0: the run goes on after a warning."""


def write_tables(folder: Path) -> None:
    """60 accounts, 48 of them labelled, 300 edges and 6 overlapping communities."""
    rng = np.random.default_rng(7)
    folder.mkdir(parents=True)
    kinds = ["bot" if at % 3 == 0 else "human" for at in range(60)]
    nodes = {
        "node_id": np.arange(60),
        "label": [kind if at < 48 else None for at, kind in enumerate(kinds)],
        "features": list(rng.normal(size=(60, 3)).astype(np.float32)),
        "age": rng.integers(18, 90, 60),
        "income": rng.lognormal(10, 1, 60),
    }
    pairs = np.unique(rng.integers(0, 60, (300, 2)), axis=0)
    edges = {"src": pairs[:, 0], "dst": pairs[:, 1]}
    members = {
        "community": [f"page {at % 6}" for at in range(90)],
        "node_id": [at % 60 for at in range(90)],
    }
    for name, columns in ((NODES, nodes), (EDGES, edges), (MEMBERS, members)):
        pq.write_table(pa.table(columns), folder / f"{name}.parquet")


def edit(what: str, **columns: Any) -> Spoil:
    """Replace or add columns: values, or a function of the values; None removes."""

    def spoil(folder: Path) -> None:
        path = folder / f"{what}.parquet"
        table = pq.read_table(path)
        for name, new in columns.items():
            there = name in table.column_names
            values = new(table[name].to_pylist()) if callable(new) else new
            if there:
                table = table.drop_columns([name])
            if values is not None:
                table = table.append_column(name, pa.array(values))
        pq.write_table(table, path)

    return spoil


def rename(what: str, **names: str) -> Spoil:
    """Rename columns."""

    def spoil(folder: Path) -> None:
        path = folder / f"{what}.parquet"
        table = pq.read_table(path)
        pq.write_table(
            table.rename_columns([names.get(n, n) for n in table.column_names]), path
        )

    return spoil


def both(*spoils: Spoil) -> Spoil:
    """Several changes."""
    return lambda folder: [spoil(folder) for spoil in spoils]


def none_of(what: str) -> Spoil:
    """Remove all rows."""

    def spoil(folder: Path) -> None:
        path = folder / f"{what}.parquet"
        pq.write_table(pq.read_table(path).slice(0, 0), path)

    return spoil


def put(file: str, content: bytes | Callable[[Path], bytes]) -> Spoil:
    """Write a file."""

    def spoil(folder: Path) -> None:
        data = content(folder) if callable(content) else content
        (folder / file).parent.mkdir(exist_ok=True)
        (folder / file).write_bytes(data)

    return spoil


def remove(file: str) -> Spoil:
    """Delete a file."""
    return lambda folder: (folder / file).unlink()


def cut(file: str, left_out: int) -> Spoil:
    """Shorten a file."""
    return put(file, lambda folder: (folder / file).read_bytes()[:-left_out])


def as_csv(what: str, name: str = "") -> Callable[[Path], bytes]:
    """The table as CSV."""

    def content(folder: Path) -> bytes:
        table = pq.read_table(folder / f"{what}.parquet")
        if "features" in table.column_names:
            table = table.drop_columns(["features"])
        made = io.BytesIO()
        pacsv.write_csv(table, made)
        return made.getvalue()

    return content


def at(place: int, value: Any) -> Callable[[list[Any]], list[Any]]:
    """Replace one value."""
    return lambda values: [*values[:place], value, *values[place + 1 :]]


def first(count: int, value: Any) -> Callable[[list[Any]], list[Any]]:
    """Replace the first values."""
    return lambda values: [value] * count + values[count:]


def codes(values: list[Any]) -> list[Any]:
    """Labels as numbers."""
    return [None if value is None else int(value == "bot") for value in values]


def labels(make: Callable[[int], Any], labelled: int = 60) -> list[Any]:
    """Labels by the number of the node."""
    return [make(node) if node < labelled else None for node in range(60)]


def text_ids(make: Callable[[int], str], *tables: str) -> Spoil:
    """Ids as text in these tables; all of them by default."""
    columns = {NODES: ("node_id",), EDGES: ("src", "dst"), MEMBERS: ("node_id",)}

    def spoil(folder: Path) -> None:
        for what in tables or columns:
            for name in columns[what]:
                edit(what, **{name: lambda c: [make(v) for v in c]})(folder)

    return spoil


def named(value: int) -> str:
    return f"u{value}"


def padded(value: int) -> str:
    return f"{value:05}"


def sets(*settings: str) -> tuple[str, ...]:
    return tuple(f"--set={setting}" for setting in settings)


GIVEN = ("--memberships={folder}/memberships.parquet",)
DROP = sets("input.unknown_nodes=drop")
ALONE = sets("columns.features=null")
"""`as_csv` leaves lists out."""
AS_CSV = ("--nodes={folder}/nodes.csv", *ALONE)


def edge_weights(make: Callable[[int], Any], name: str = "weight") -> Spoil:
    def spoil(folder: Path) -> None:
        rows = pq.read_metadata(folder / "edges.parquet").num_rows
        edit(EDGES, **{name: [make(row) for row in range(rows)]})(folder)

    return spoil


def unreadable(folder: Path) -> None:
    """Damage the bytes of the first column."""
    path = folder / "nodes.parquet"
    data = bytearray(path.read_bytes())
    data[40:80] = bytes(40)
    path.write_bytes(bytes(data))


def split(second: dict[str, Any]) -> Spoil:
    """The node table as a folder of two files; the second has other columns."""

    def spoil(folder: Path) -> None:
        (folder / "nodes.parquet").rename(folder / "whole.parquet")
        table = pq.read_table(folder / "whole.parquet")
        (folder / "nodes.parquet").mkdir()
        pq.write_table(table[:30], folder / "nodes.parquet" / "a.parquet")
        for name, values in second.items():
            column = table.schema.get_field_index(name)
            table = table.remove_column(column)
            if values is not None:
                table = table.append_column(name, pa.array(values))
        pq.write_table(table[30:], folder / "nodes.parquet" / "b.parquet")

    return spoil


def chosen(name: str, wrong: str, right: str, words: tuple[str, ...]) -> Case:
    """A wrong setting with valid tables, and a right one."""
    arguments = {"arguments": sets(wrong), "right_arguments": sets(right)}
    return Case(name, VALID, words, **arguments)
