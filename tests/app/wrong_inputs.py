"""Wrong inputs, one row each: how valid tables are spoilt, and what is reported.

Each has a right twin: an input that is close to it and is accepted up to the plan.
"""

from __future__ import annotations

import gzip
import io
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

__all__ = ["CASES", "Case", "write_tables"]

NODES, EDGES, MEMBERS = "nodes", "edges", "memberships"
Spoil = Callable[[Path], object]


@dataclass(frozen=True)
class Case:
    """One wrong input."""

    name: str
    spoil: Spoil
    """Spoils the tables in a folder."""
    words: tuple[str, ...]
    """Words of the message: the place and what to do."""
    twin: Spoil = lambda folder: None
    """Makes the right twin from valid tables; nothing: the valid tables."""
    arguments: tuple[str, ...] = ()
    twin_arguments: tuple[str, ...] | None = None
    """Arguments of the twin; None: the same."""
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


def _weights(make: Callable[[int], Any], name: str = "weight") -> Spoil:
    def spoil(folder: Path) -> None:
        rows = pq.read_metadata(folder / "edges.parquet").num_rows
        edit(EDGES, **{name: [make(row) for row in range(rows)]})(folder)

    return spoil


def _fifth(value: Any, row: int) -> Any:
    return value if row == 4 else 1.0


def benchmark(**columns: Any) -> Spoil:
    """A table of benchmarks."""
    return lambda folder: pq.write_table(
        pa.table(columns), folder / "benchmark.parquet"
    )


KNOWN = sets("benchmark={folder}/benchmark.parquet")
RIGHT = benchmark(**{"class": ["bot", "human"], "share": [0.3, 0.7]})


def parents(child: list[str], parent: list[str | None]) -> Spoil:
    """A table of communities and their parents."""
    table = pa.table({"community": child, "parent": parent})
    return lambda folder: pq.write_table(table, folder / "parents.parquet")


UNDER = (*GIVEN, *sets("memberships.parents={folder}/parents.parquet"))
TREE = parents(["page 0", "page 1"], ["north", "north"])


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


def _files() -> Iterable[Case]:
    nodes, edges = "nodes.parquet", "edges.parquet"
    yield Case("no-node-table", remove(nodes), (nodes, "does not exist", "check"))
    yield Case("no-edge-table", remove(edges), (edges, "does not exist", "check"))
    yield Case(
        "no-memberships",
        remove("memberships.parquet"),
        ("memberships.parquet", "does not exist"),
        arguments=GIVEN,
    )
    yield Case("two-tables-missing", both(remove(nodes), remove(edges)), (nodes, edges))
    yield Case(
        "glob-without-match",
        lambda folder: None,
        ("part-*.parquet", "no file matches", "pattern"),
        arguments=("--nodes={folder}/part-*.parquet",),
        twin_arguments=("--nodes={folder}/nod*.parquet",),
    )
    yield Case(
        "empty-folder",
        lambda folder: (folder / "none").mkdir(),
        ("none", "holds no"),
        arguments=("--nodes={folder}/none",),
        twin=both(lambda folder: (folder / "none").mkdir(), _copied("none")),
    )
    yield Case(
        "cut-parquet", cut(nodes, 200), (nodes, "not a complete Parquet", "again")
    )
    yield Case("empty-parquet", put(nodes, b""), (nodes,))
    yield Case("damaged-parquet", unreadable, (nodes,))
    yield Case(
        "csv-named-parquet",
        put(nodes, as_csv(NODES)),
        (nodes,),
        twin=put("nodes.csv", as_csv(NODES)),
        arguments=ALONE,
        twin_arguments=(*ALONE, "--nodes={folder}/nodes.csv"),
    )
    yield Case(
        "empty-csv",
        put("nodes.csv", b""),
        ("nodes.csv",),
        twin=put("nodes.csv", as_csv(NODES)),
        arguments=("--nodes={folder}/nodes.csv", *ALONE),
    )
    yield Case(
        "csv-without-rows",
        put("nodes.csv", b"node_id,label\n"),
        ("nodes.csv", "no rows"),
        twin=put("nodes.csv", as_csv(NODES)),
        arguments=("--nodes={folder}/nodes.csv", *ALONE),
    )
    yield Case(
        "csv-with-a-row-too-long",
        put("nodes.csv", lambda folder: as_csv(NODES)(folder) + b"1,2,3,4,5,6,7\n"),
        ("nodes.csv",),
        twin=put("nodes.csv", as_csv(NODES)),
        arguments=("--nodes={folder}/nodes.csv", *ALONE),
    )
    yield Case(
        "cut-csv-gz",
        put("nodes.csv.gz", lambda folder: gzip.compress(as_csv(NODES)(folder))[:-60]),
        ("nodes.csv.gz",),
        twin=put("nodes.csv.gz", lambda folder: gzip.compress(as_csv(NODES)(folder))),
        arguments=("--nodes={folder}/nodes.csv.gz", *ALONE),
    )
    yield Case(
        "device",
        lambda folder: None,
        ("/dev/null",),
        arguments=("--nodes=/dev/null",),
        twin_arguments=("--nodes={folder}/nodes.parquet",),
    )
    yield Case(
        "unknown-scheme",
        lambda folder: None,
        ("nowhere://x/nodes.parquet", "check the address"),
        arguments=("--nodes=nowhere://x/nodes.parquet",),
        twin_arguments=("--nodes=file://{folder}/nodes.parquet",),
    )
    nowhere = "s3://a:b@bucket/x.parquet?endpoint_override=nowhere.invalid&region=x"
    yield Case(
        "unknown-host",
        lambda folder: None,
        ("nowhere.invalid", "correct the address", "run again"),
        arguments=(f"--nodes={nowhere}",),
        twin_arguments=("--nodes={folder}/nodes.parquet",),
        status=4,
    )
    yield Case(
        "tables-interchanged",
        lambda folder: None,
        (
            *("'node_id'", "'src'", "columns.node_id", "columns.src"),
            *("looks like the edge table", "looks like the node table", "exchanged"),
        ),
        arguments=("--nodes={folder}/edges.parquet", "--edges={folder}/nodes.parquet"),
        twin_arguments=(),
    )
    yield Case(
        "memberships-as-edges",
        lambda folder: None,
        ("memberships.parquet", "'src'", "looks like the memberships table"),
        arguments=("--edges={folder}/memberships.parquet",),
        twin=rename(MEMBERS, community="src", node_id="dst"),
        twin_arguments=GIVEN[:0],
    )
    for what, arguments in ((NODES, ()), (EDGES, ()), (MEMBERS, GIVEN)):
        yield Case(
            f"no-rows-of-{what}",
            none_of(what),
            (f"{what}.parquet", "no rows"),
            arguments=arguments,
        )


def _copied(where: str) -> Spoil:
    return lambda folder: (folder / where / "nodes.parquet").write_bytes(
        (folder / "nodes.parquet").read_bytes()
    )


def _columns() -> Iterable[Case]:
    for what, column, other in (
        (NODES, "node_id", "user"),
        (NODES, "label", "lbl"),
        (EDGES, "src", "from"),
        (EDGES, "dst", "to"),
        (MEMBERS, "community", "page"),
        (MEMBERS, "node_id", "account"),
    ):
        key = "member" if what == MEMBERS and column == "node_id" else column
        yield Case(
            f"{what}-without-{column}",
            rename(what, **{column: other}),
            (f"{what}.parquet", repr(column), f"--set columns.{key}={other}"),
            twin=rename(what, **{column: other}),
            arguments=GIVEN,
            twin_arguments=(*GIVEN, *sets(f"columns.{key}={other}")),
        )
    foreign = both(
        rename(NODES, node_id="User Id", label="lbl", features="x"),
        rename(EDGES, src="from", dst="to"),
    )
    meant = (
        "columns.node_id=User Id",
        "columns.label=lbl",
        "columns.src=from",
        "columns.dst=to",
    )
    yield Case(
        "all-columns-have-other-names",
        foreign,
        (*meant, "nodes.parquet", "edges.parquet"),
        twin=foreign,
        twin_arguments=sets(*meant),
    )
    for key, column, what in (
        ("features", "income2", NODES),
        ("role", "split", NODES),
        ("node_weight", "followers", NODES),
        ("weight", "strength", EDGES),
    ):
        there = "income" if what == NODES else "dst"
        right = f"columns.{key}={there}"
        if key in ("features", "role"):
            right = "columns.features=null"
        yield Case(
            f"no-column-of-{key}",
            lambda folder: None,
            (f"{what}.parquet", repr(column), f"columns.{key}"),
            arguments=sets(f"columns.{key}={column}"),
            twin_arguments=sets(right),
        )
    yield Case(
        "no-column-of-a-list-of-features",
        lambda folder: None,
        ("nodes.parquet", "'height'", "columns.features[1]"),
        arguments=sets("columns.features=[age,height]"),
        twin_arguments=sets("columns.features=[age,income]"),
    )
    yield Case(
        "column-in-one-file-of-two",
        split({"features": None}),
        ("'features'", "b.parquet"),
        twin=split({}),
    )
    yield Case(
        "no-column-of-parents",
        lambda folder: None,
        ("memberships.parquet", "'above'", "columns.parent"),
        arguments=(*GIVEN, *sets("columns.parent=above")),
        twin_arguments=GIVEN,
    )
    yield Case(
        "no-column-of-communities",
        lambda folder: None,
        ("'town'", "communities"),
        arguments=sets("communities=column:town"),
        twin_arguments=sets("communities=column:age"),
    )
    yield Case(
        "Weight",
        _weights(lambda row: 1.5, "Weight"),
        ("edges.parquet", "'Weight'", "columns.weight=Weight"),
        twin=_weights(lambda row: 1.5),
        status=0,
    )
    yield Case(
        "Role",
        edit(NODES, Role=["train"] * 60),
        ("nodes.parquet", "'Role'", "columns.role=Role"),
        status=0,
    )


def _ids() -> Iterable[Case]:
    yield Case(
        "id-twice",
        edit(NODES, node_id=at(0, 7)),
        ("nodes.parquet", "7", "more than once", "one row"),
    )
    for what, column in ((NODES, "node_id"), (EDGES, "src"), (EDGES, "dst")):
        yield Case(
            f"null-in-{column}",
            edit(what, **{column: at(4, None)}),
            (f"{what}.parquet", repr(column), "row 5", "null"),
        )
    yield Case(
        "ids-with-fractions",
        edit(NODES, node_id=lambda c: [v + 0.5 for v in c]),
        ("'node_id'", "nodes.parquet"),
    )
    yield Case(
        "boolean-ids",
        edit(EDGES, src=lambda c: [v > 3 for v in c]),
        ("'src'", "edges.parquet", "bool"),
    )
    yield Case(
        "ids-beyond-int64",
        edit(NODES, node_id=lambda c: pa.array([2**63 + v for v in c], pa.uint64())),
        ("'node_id'", "too large", "strings"),
        twin=edit(NODES, node_id=lambda c: pa.array(c, pa.uint64())),
    )
    yield Case(
        "lists-as-ids",
        edit(NODES, node_id=lambda c: [[v] for v in c]),
        ("'node_id'", "nodes.parquet", "list"),
    )
    yield Case(
        "dates-as-ids",
        edit(NODES, node_id=lambda c: [date.fromordinal(v + 1) for v in c]),
        ("'src'", "edges.parquet", "node ids are text", "same type"),
    )
    yield Case(
        "ids-of-two-types-in-two-files",
        split({"node_id": [named(v) for v in range(60)]}),
        ("nodes.parquet", "same type"),
        twin=split({}),
    )
    yield Case(
        "text-among-edges",
        text_ids(named, EDGES),
        ("'src'", "edges.parquet", "'u", "row 1", "integers"),
        twin=text_ids(named),
    )
    yield Case(
        "numbers-as-text-in-edges",
        text_ids(str, EDGES),
        ("'src'", "edges.parquet", "text", "same type"),
        twin=text_ids(str),
    )
    yield Case(
        "integers-among-text",
        text_ids(named, NODES),
        ("'src'", "edges.parquet", "integers", "same type"),
        twin=text_ids(named),
    )
    yield Case(
        "leading-zeros-lost",
        text_ids(padded, NODES),
        ("leading zeros", "'0000", "'src'", "edges.parquet", "as text"),
        twin=text_ids(padded),
    )
    yield Case(
        "spaces-around-ids",
        both(text_ids(named), edit(EDGES, src=lambda c: [f"{v} " for v in c])),
        ("edges.parquet", "spaces", "'u0 '"),
        twin=text_ids(named),
        status=2,
    )
    yield Case(
        "unknown-node",
        edit(EDGES, dst=at(3, 99_999)),
        ("edges.parquet", "1 of ", "99999", "row 4", "input.unknown_nodes=drop"),
        twin=edit(EDGES, dst=at(3, 99_999)),
        twin_arguments=DROP,
    )
    yield Case(
        "edges-of-another-graph",
        edit(EDGES, src=lambda c: [v + 60 if v > 5 else v for v in c]),
        ("edges.parquet", "another graph", "checks.accept=[few-matches]"),
        arguments=DROP,
        twin_arguments=(*DROP, *sets("checks.accept=[few-matches]")),
        twin=edit(EDGES, src=lambda c: [v + 60 if v > 5 else v for v in c]),
    )
    yield Case(
        "some-edges-of-another-graph",
        edit(EDGES, src=lambda c: [v + 60 if v > 40 else v for v in c]),
        ("have both nodes in the node table", "left out"),
        arguments=DROP,
        status=0,
    )
    yield Case(
        "loops-alone",
        _loops,
        ("edges.parquet", "joins a node to itself", "columns.src"),
        status=0,
    )
    yield Case(
        "most-nodes-isolated",
        both(edit(EDGES, src=lambda c: [v % 9 for v in c]), _few_ends),
        ("51 of 60 nodes (85 %) have no edge", "edges.parquet"),
        status=0,
    )
    yield Case(
        "source-and-target-alike",
        lambda folder: None,
        ("columns.src and columns.dst both name 'dst'",),
        arguments=sets("columns.src=dst"),
        twin_arguments=sets("columns.src=dst", "columns.dst=src"),
    )


def _loops(folder: Path) -> None:
    table = pq.read_table(folder / "edges.parquet")
    pq.write_table(
        pa.table({"src": table["dst"], "dst": table["dst"]}), folder / "edges.parquet"
    )


def _few_ends(folder: Path) -> None:
    edit(EDGES, dst=lambda c: [v % 9 for v in c])(folder)


def _labels() -> Iterable[Case]:
    for word in ("NA", "NaN", "null", "None", "?", "", "  ", "n/a"):
        yield Case(
            f"label-{word.strip() or len(word)}",
            edit(NODES, label=first(6, word)),
            ("'label'", "nodes.parquet", f"{word!r} (6)", "labels.missing=[]"),
            twin=edit(NODES, label=first(6, "Nauru")),
            status=0,
        )
    yield Case(
        "label-minus-one",
        edit(NODES, label=labels(lambda v: v % 4 - 1)),
        ("'label'", "-1 (15 nodes)", "labels.missing=[-1]", "labels.missing=[]"),
        twin=edit(NODES, label=labels(lambda v: v % 4 - 1)),
        twin_arguments=sets("labels.missing=[-1]"),
    )
    yield Case(
        "label-minus-one-as-text",
        edit(NODES, label=labels(lambda v: str(v % 3 - 1))),
        ("'label'", "-1 (20 nodes)", "labels.missing=[-1]"),
        twin=edit(NODES, label=labels(lambda v: "-1" if v % 2 else "1")),
    )
    yield Case(
        "label-minus-one-and-zero",
        edit(NODES, label=labels(lambda v: v % 2 - 1)),
        ("'label'", "-1 (30 nodes)"),
        twin=edit(NODES, label=labels(lambda v: v % 2 - 1)),
        twin_arguments=sets("labels.missing=[]"),
    )
    for name, word in (("case", "Bot"), ("space", " bot"), ("end", "bot ")):
        yield Case(
            f"labels-differ-by-{name}",
            edit(NODES, label=first(5, word)),
            ("'label'", repr(word), "'bot'", "checks.accept=[label-case]"),
            twin=edit(NODES, label=first(5, "robot")),
        )
    yield Case(
        "labels-differ-by-case-and-are-accepted",
        edit(NODES, label=first(5, "Bot")),
        ("accepted",),
        arguments=sets("checks.accept=[label-case]"),
        status=0,
    )
    numbers = labels(lambda v: "unknown" if v < 9 else str(v % 3))
    yield Case(
        "numbers-and-a-word",
        edit(NODES, label=numbers),
        ("'unknown' (9 nodes)", "labels.missing=[unknown]", "label-mixed"),
        twin=edit(NODES, label=numbers),
        twin_arguments=sets("labels.missing=[unknown]"),
    )
    yield Case(
        "numbers-a-word-and-na",
        edit(NODES, label=labels(lambda v: "x" if v < 5 else ["1", "2", "NA"][v % 3])),
        ("labels.missing=[NA, x]",),
        twin=edit(
            NODES, label=labels(lambda v: "NA" if v < 5 else ["1", "2", "NA"][v % 3])
        ),
    )
    yield Case(
        "name-as-label",
        edit(NODES, label=labels(named)),
        ("60 classes for 60 labelled", "columns.label", "age", "label-ids"),
        twin=edit(NODES, label=labels(lambda v: named(v % 15))),
    )
    yield Case(
        "id-as-label",
        lambda folder: None,
        ("columns.node_id and columns.label both name 'node_id'",),
        arguments=sets("columns.label=node_id"),
        twin_arguments=sets("columns.label=label"),
    )
    many = list(range(18, 88)) * 3
    yield Case(
        "ages-as-labels",
        _more_nodes(many),
        ("'label'", "70 different numbers from 18 to 87", "label-measured"),
        twin=_more_nodes([value - 18 for value in many]),
    )
    yield Case(
        "no-label",
        edit(NODES, label=[None] * 60),
        ("'label'", "nodes.parquet", "null for every node", "label some"),
    )
    yield Case(
        "labels-all-na",
        edit(NODES, label=["NA"] * 60),
        ("'label'", "null for every node"),
        twin=edit(NODES, label=["NA", "bot", "bot", "no"] * 15),
    )
    yield Case(
        "one-class",
        edit(NODES, label=labels(lambda v: "bot", 40)),
        ("'label'", "single class, 'bot'", "two classes"),
        twin=edit(NODES, label=labels(lambda v: "bot" if v > 1 else "human", 40)),
    )
    yield Case(
        "a-class-with-one-label",
        edit(NODES, label=first(1, "rare")),
        ("'rare'", "1 labelled node", "labels.missing=[rare]"),
        twin=edit(NODES, label=first(2, "rare")),
    )
    yield Case(
        "labels-with-fractions",
        edit(NODES, label=labels(lambda v: v / 2)),
        ("'label'", "not integers", "integers, strings or booleans"),
        twin=edit(NODES, label=labels(lambda v: float(v % 2), 50)),
    )
    yield Case(
        "dates-as-labels",
        edit(NODES, label=labels(lambda v: date(2020, 1, 1 + v % 9))),
        ("'label'", "date", "integers, strings or booleans"),
        twin=edit(NODES, label=labels(lambda v: v % 2 == 0)),
    )
    yield Case(
        "lists-as-labels",
        edit(NODES, label=labels(lambda v: [v % 2])),
        ("'label'", "list"),
        twin=edit(
            NODES, label=pa.array(labels(lambda v: f"c{v % 2}")).dictionary_encode()
        ),
    )
    yield Case(
        "labels-beyond-int64",
        edit(NODES, label=pa.array(labels(lambda v: 2**63 + v % 2), pa.uint64())),
        ("'label'", "too large", "strings"),
        twin=edit(NODES, label=pa.array(labels(lambda v: v % 2), pa.uint64())),
    )
    yield Case(
        "labels-of-two-types-in-two-files",
        split({"label": labels(lambda v: v % 2)}),
        ("'label'", "integers", "text", "same type"),
        twin=split({}),
    )
    yield Case(
        "labels-that-are-not-utf-8",
        edit(
            NODES,
            label=lambda c: pa.array(
                [b"b\xf6t" if v == "bot" else b"no" for v in c], pa.binary()
            ).view(pa.string()),
        ),
        ("'label'", "not UTF-8"),
    )
    for quantifier in ("hdy", "dys"):
        yield Case(
            f"{quantifier}-of-three-classes",
            edit(NODES, label=first(9, "cat")),
            (f"quantifier={quantifier}", "two classes", "3", "quantifier=auto"),
            arguments=sets(f"quantifier={quantifier}"),
            twin=lambda folder: None,
        )


def _more_nodes(values: list[int]) -> Spoil:
    """A node table with these labels, and features."""
    count = len(values)
    table = pa.table(
        {
            "node_id": range(count),
            "label": values,
            "features": [[1.0, v] for v in range(count)],
        }
    )
    return lambda folder: pq.write_table(table, folder / "nodes.parquet")


def _roles() -> Iterable[Case]:
    by_turns = ["train", "train", "train", "calibration", "calibration", None] * 10
    right = edit(NODES, role=by_turns)
    for typo in ("Train", " calibration", "CALIBRATION"):
        role = typo.strip().lower()
        yield Case(
            f"role-{typo.strip()}",
            edit(NODES, role=[typo if v == role else v for v in by_turns]),
            ("'role'", repr(typo), "'train' and 'calibration'"),
            twin=right,
        )
    yield Case(
        "class-without-calibration",
        edit(NODES, role=["train" if v % 3 else None for v in range(60)]),
        ("'role'", "'calibration'", "both roles"),
        twin=right,
    )
    yield Case(
        "class-without-training",
        edit(NODES, role=["calibration" if v % 3 == 0 else "train" for v in range(60)]),
        ("'role'", "'bot'", "'train'", "cross-fit"),
        twin=right,
    )
    yield Case(
        "role-test",
        edit(NODES, role=["test" if v is None else v for v in by_turns]),
        ("'role'", "'test' (10)", "taken as unlabelled"),
        twin=right,
        status=0,
    )
    yield Case(
        "every-role-another",
        edit(NODES, role=["valid"] * 60),
        ("'label'", "role other than train", "null for every node"),
        twin=right,
    )
    yield Case(
        "lists-as-roles",
        edit(NODES, role=[["train"]] * 60),
        ("role column 'role'", "list"),
        twin=right,
    )
    drawn = sets("labels.drawn=weighted", "columns.label_weight=chance")
    for name, value, shown in (
        ("negative", -1.0, "-1.0"),
        ("zero", 0.0, "0.0"),
        ("null", None, "None"),
        ("infinite", float("inf"), "inf"),
    ):
        yield Case(
            f"label-weight-{name}",
            edit(NODES, chance=at(2, value)([1.5] * 60)),
            ("'chance'", shown, "row 3", "columns.label_weight"),
            twin=edit(NODES, chance=[1.5] * 60),
            arguments=drawn,
        )
    yield Case(
        "label-weight-text",
        edit(NODES, chance=["high"] * 60),
        ("'chance'", "string", "numbers"),
        twin=edit(NODES, chance=[2] * 60),
        arguments=drawn,
    )
    yield Case(
        "label-weight-without-its-design",
        edit(NODES, chance=[1.0] * 60),
        ("labels.drawn = weighted", "columns.label_weight"),
        arguments=drawn[1:],
        twin=edit(NODES, chance=[1.0] * 60),
        twin_arguments=drawn,
    )


def _weights_and_features() -> Iterable[Case]:
    for name, value in (
        ("negative", -1.0),
        ("null", None),
        ("nan", float("nan")),
        ("infinite", float("inf")),
    ):
        yield Case(
            f"edge-weight-{name}",
            _weights(partial(_fifth, value)),
            ("weight", "row 5 of ", "edges.parquet", "finite"),
            twin=_weights(lambda row: 0.0 if row == 4 else 1.0),
        )
    yield Case(
        "edge-weight-text",
        _weights(lambda row: "strong"),
        ("'weight'", "string", "columns.weight"),
        twin=_weights(lambda row: 3),
    )
    yield Case(
        "edge-weights-all-zero",
        _weights(lambda row: 0),
        ("'weight'", "edges.parquet", "are 0", "columns.weight=null"),
        twin=_weights(lambda row: int(row == 0)),
    )
    for name, value in (("negative", -2.0), ("null", None), ("text", "many")):
        yield Case(
            f"node-weight-{name}",
            edit(
                NODES,
                views=[value] * 60 if name == "text" else at(1, value)([1.0] * 60),
            ),
            ("'views'", "columns.node_weight" if name == "text" else "row 2"),
            twin=edit(NODES, views=[1.0] * 60),
            arguments=sets("columns.node_weight=views"),
        )
    yield Case(
        "no-features-named",
        lambda folder: None,
        ("columns.features", "null"),
        arguments=sets("columns.features=[]"),
        twin_arguments=ALONE,
    )
    yield Case(
        "feature-is-a-map",
        edit(NODES, tags=pa.array([[("a", 1)]] * 60, pa.map_(pa.string(), pa.int64()))),
        ("'tags'", "map"),
        arguments=sets("columns.features=[age,tags]"),
        twin_arguments=sets("columns.features=[age,income]"),
    )
    yield Case(
        "feature-is-the-id",
        lambda folder: None,
        ("'node_id'", "equals the node id", "feature-id"),
        arguments=sets("columns.features=[age,node_id]"),
        twin_arguments=sets("columns.features=[age,income]"),
    )
    yield Case(
        "feature-equals-the-id",
        edit(NODES, number=list(range(60))),
        ("'number'", "equals the node id"),
        arguments=sets("columns.features=[age,number]"),
        twin=edit(NODES, number=list(range(1, 61))),
    )
    copy = labels(lambda v: 5.0 if v % 3 == 0 else 2.0)
    yield Case(
        "feature-copies-the-label",
        edit(NODES, y=copy),
        ("'y'", "copy of the label", "48 labelled", "feature-label"),
        arguments=sets("columns.features=[age,y]"),
        twin=edit(NODES, y=at(3, 2.0)(copy)),
    )
    inside = [[1.0, float(v % 3 == 0)] for v in range(60)]
    yield Case(
        "list-holds-a-copy-of-the-label",
        edit(NODES, features=inside),
        ("'features[1]'", "copy of the label"),
        twin=edit(NODES, features=at(3, [1.0, 0.0])(inside)),
    )
    yield Case(
        "copy-of-the-label-is-accepted",
        edit(NODES, features=inside),
        ("accepted",),
        arguments=sets("checks.accept=[feature-label]"),
        status=0,
    )


def _communities() -> Iterable[Case]:
    for name, column, value, words in (
        ("null-community", "community", None, ("'community'", "row 3", "null")),
        ("null-member", "node_id", None, ("'node_id'", "row 3", "null")),
        ("unknown-member", "node_id", 5000, ("5000", "row 3", "unknown_nodes=drop")),
    ):
        yield Case(
            name,
            edit(MEMBERS, **{column: at(2, value)}),
            ("memberships.parquet", *words),
            arguments=GIVEN,
        )
    yield Case(
        "members-of-another-graph",
        edit(MEMBERS, node_id=lambda c: [v + 50 for v in c]),
        ("memberships.parquet", "another graph", "few-matches"),
        arguments=(*GIVEN, *DROP),
        twin=edit(MEMBERS, node_id=lambda c: [v + 20 for v in c]),
    )
    yield Case(
        "members-of-another-type",
        text_ids(named, MEMBERS),
        ("'node_id'", "memberships.parquet", "'u0'", "integers"),
        twin=text_ids(named),
        arguments=GIVEN,
    )
    yield Case(
        "communities-with-fractions",
        edit(MEMBERS, community=lambda c: [v / 7 for v in range(len(c))]),
        ("'community'", "0.142857", "row 2", "integers or text"),
        arguments=GIVEN,
        twin=edit(MEMBERS, community=lambda c: [v % 7 for v in range(len(c))]),
    )
    yield Case(
        "communities-differ-by-case",
        edit(MEMBERS, community=first(2, "Page  0")),
        ("'Page  0'", "'page 0'", "differ by case or spaces"),
        arguments=GIVEN,
        twin=edit(MEMBERS, community=first(2, "Page 10")),
        status=0,
    )
    yield Case(
        "given-without-memberships",
        lambda folder: None,
        ("communities = given", "--memberships"),
        arguments=sets("communities=given"),
        twin_arguments=(*GIVEN, *sets("communities=given")),
    )
    yield Case(
        "memberships-that-are-not-used",
        lambda folder: None,
        ("memberships table is not used", "communities = given"),
        arguments=(*GIVEN, *sets("communities=leiden")),
        twin_arguments=GIVEN,
        status=0,
    )
    yield Case(
        "column-of-communities-with-fractions",
        lambda folder: None,
        ("'income'", "row 1", "integers or text"),
        arguments=sets("communities=column:income"),
        twin_arguments=sets("communities=column:age"),
    )
    yield Case(
        "column-of-communities-all-null",
        edit(NODES, town=pa.nulls(60, pa.string())),
        ("'town'", "no value", "column:NAME"),
        arguments=sets("communities=column:town"),
        twin=edit(NODES, town=["x", None] * 30),
    )
    yield Case(
        "parents-in-a-circle",
        parents(["page 0", "page 1"], ["page 1", "page 0"]),
        ("above itself", "parents.parquet"),
        arguments=UNDER,
        twin=TREE,
    )
    yield Case(
        "two-parents",
        parents(["page 0", "page 0"], ["north", "south"]),
        ("'page 0'", "2 parents", "parents.parquet"),
        arguments=UNDER,
        twin=TREE,
    )
    yield Case(
        "no-table-of-parents",
        lambda folder: None,
        ("parents.parquet", "does not exist"),
        arguments=UNDER,
        twin=TREE,
    )
    yield Case(
        "parents-of-another-type",
        edit(MEMBERS, parent=[1] * 90),
        ("'community'", "'parent'", "types"),
        arguments=GIVEN,
        twin=edit(MEMBERS, parent=["north"] * 90),
    )
    yield Case(
        "community-and-member-alike",
        lambda folder: None,
        ("columns.member and columns.community",),
        arguments=(*GIVEN, *sets("columns.member=community")),
        twin_arguments=GIVEN,
    )


def _benchmarks() -> Iterable[Case]:
    for name, columns, words in (
        ("class-unknown", {"class": ["Bot"], "share": [0.2]}, ("'Bot'", "bot, human")),
        ("share-above-1", {"class": ["bot"], "share": [12.0]}, ("'share'", "0.12")),
        (
            "shares-sum",
            {"class": ["bot", "human"], "share": [0.3, 0.6]},
            ("add up to", "0.9"),
        ),
        ("negative", {"class": ["bot"], "count": [-3]}, ("'count'", "negative")),
        (
            "share-and-count",
            {"class": ["bot"], "share": [0.1], "count": [3]},
            ("'share'", "'count'", "one of them"),
        ),
        ("no-class", {"kind": ["bot"], "share": [0.1]}, ("'class'",)),
        ("twice", {"class": ["bot", "bot"], "share": [0.1, 0.1]}, ("twice", "row 2")),
        (
            "community",
            {"class": ["bot"], "share": [0.1], "community": ["page 0"]},
            ("'page 0'", "--memberships"),
        ),
    ):
        yield Case(
            f"benchmark-{name}", benchmark(**columns), words, RIGHT, arguments=KNOWN
        )
    yield Case(
        "benchmark-missing",
        lambda folder: None,
        ("benchmark.parquet", "does not exist"),
        RIGHT,
        arguments=KNOWN,
    )


def _settings() -> Iterable[Case]:
    for name, setting, words, right in (
        ("unknown", "reservoir.dims=3", ("reservoir.dims", "reservoir.dim"), "seed=1"),
        ("range", "reservoir.dim=-1", ("reservoir.dim = -1",), "reservoir.dim=8"),
        ("form", "seed", ("key=value",), "seed=1"),
        ("seed", "seed=-1", ("seed = -1",), "seed=0"),
        ("no-section", "nope.x=1", ("nope",), "seed=1"),
        ("method", "method=magic", ("method", "xnq"), "method=xnq"),
        ("quantifier", "quantifier=best", ("quantifier", "auto"), "quantifier=sld"),
        ("communities", "communities=louvain", ("communities",), "communities=leiden"),
        ("folds", "readout.folds=1", ("readout.folds",), "readout.folds=4"),
        ("partitions", "partitions=0", ("partitions",), "partitions=1"),
        ("level", "intervals.level=95", ("intervals.level",), "intervals.level=.9"),
        ("memory", "input.memory=lots", ("input", "lots"), "input.memory=1 GiB"),
        ("accept", "checks.accept=[all]", ("checks.accept",), "checks.accept=[loops]"),
        ("accept-text", "checks.accept=loops", ("checks.accept",), "checks.accept=[]"),
        ("missing", "labels.missing=5", ("labels.missing",), "labels.missing=[5]"),
        ("list", "columns.src=[a]", ("columns.src",), "columns.src=src"),
        (
            "prior-sum",
            "labels.prior={bot: .5, human: .6}",
            ("labels.prior", "sum"),
            "labels.prior={bot: .4, human: .6}",
        ),
        (
            "prior-class",
            "labels.prior={Bot: .4, human: .6}",
            ("labels.prior", "'Bot'", "bot, human"),
            "labels.prior={bot: .4, human: .6}",
        ),
        (
            "prior-below-the-labels",
            "labels.prior={bot: .1, human: .9}",
            ("labels.prior", "'bot'", "16"),
            "labels.prior={bot: .4, human: .6}",
        ),
        ("earlier", "anomalies.last=/nowhere", ("/nowhere",), "anomalies.last=null"),
        (
            "seed-runs",
            "intervals.seed_runs=[/nowhere]",
            ("/nowhere",),
            "intervals.seed_runs=[]",
        ),
        (
            "address",
            "cluster.address=tcp://127.0.0.1:9",
            ("cluster.kind",),
            "cluster.kind=local",
        ),
        ("backend", "cluster.kind=slow", ("cluster.kind",), "cluster.kind=local"),
        ("yaml", "columns.features=[a", ("not YAML",), "columns.features=null"),
    ):
        yield Case(
            f"setting-{name}",
            lambda folder: None,
            words,
            arguments=sets(setting),
            twin_arguments=sets(right),
        )
    for name, content, words in (
        ("missing", None, ("settings.yaml", "cannot be read")),
        ("not-yaml", b"seed: [", ("settings.yaml", "not YAML")),
        ("a-list", b"- seed", ("settings.yaml", "keys and values")),
        ("not-text", b"\xff\xfe\x00", ("settings.yaml", "not YAML")),
    ):
        yield Case(
            f"settings-file-{name}",
            (lambda folder: None) if content is None else put("settings.yaml", content),
            words,
            twin=put("settings.yaml", b"seed: 1"),
            arguments=("--config={folder}/settings.yaml",),
        )


def _places() -> Iterable[Case]:
    yield Case(
        "out-is-a-file",
        put("file", b"x"),
        ("is a file", "--out"),
        arguments=("--out={folder}/file",),
        twin_arguments=("--out={folder}/../other",),
    )
    yield Case(
        "out-in-a-file",
        put("file", b"x"),
        ("--out",),
        arguments=("--out={folder}/file/run",),
        twin_arguments=("--out={folder}/../deep/run",),
    )
    yield Case(
        "out-holds-the-tables",
        lambda folder: None,
        ("lies in the run directory", "--out"),
        arguments=("--out={folder}",),
        twin_arguments=("--out={folder}-run",),
    )
    yield Case(
        "out-is-a-folder-of-others",
        put("thesis/prevalence.parquet", b"mine"),
        ("is not a run directory", "--out"),
        arguments=("--out={folder}/thesis", "--overwrite"),
        twin_arguments=("--out={folder}/../thesis",),
    )


CASES = (
    *_files(),
    *_columns(),
    *_ids(),
    *_labels(),
    *_roles(),
    *_weights_and_features(),
    *_communities(),
    *_benchmarks(),
    *_settings(),
    *_places(),
)
