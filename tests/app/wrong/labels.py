"""The column of labels."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date

import pyarrow as pa
import pyarrow.parquet as pq

from tests.app.wrong.builders import (
    NODES,
    VALID,
    Case,
    Spoil,
    chosen,
    edit,
    first,
    labels,
    named,
    sets,
    split,
)


def labels_cases() -> Iterable[Case]:
    for word in ("NA", "NaN", "null", "None", "?", "", "  ", "n/a"):
        yield Case(
            f"label-{word.strip() or len(word)}",
            edit(NODES, label=first(6, word)),
            ("'label'", "nodes.parquet", f"{word!r} (6)", "labels.missing=[]"),
            right=edit(NODES, label=first(6, "Nauru")),
            status=0,
        )
    yield Case(
        "label-minus-one",
        edit(NODES, label=labels(lambda v: v % 4 - 1)),
        ("'label'", "-1 (15 nodes)", "labels.missing=[-1]", "labels.missing=[]"),
        right=edit(NODES, label=labels(lambda v: v % 4 - 1)),
        right_arguments=sets("labels.missing=[-1]"),
    )
    yield Case(
        "label-minus-one-as-text",
        edit(NODES, label=labels(lambda v: str(v % 3 - 1))),
        ("'label'", "-1 (20 nodes)", "labels.missing=[-1]"),
        right=edit(NODES, label=labels(lambda v: "-1" if v % 2 else "1")),
    )
    yield Case(
        "label-minus-one-and-zero",
        edit(NODES, label=labels(lambda v: v % 2 - 1)),
        ("'label'", "-1 (30 nodes)"),
        right=edit(NODES, label=labels(lambda v: v % 2 - 1)),
        right_arguments=sets("labels.missing=[]"),
    )
    for name, word in (("case", "Bot"), ("space", " bot"), ("end", "bot ")):
        yield Case(
            f"labels-differ-by-{name}",
            edit(NODES, label=first(5, word)),
            ("'label'", repr(word), "'bot'", "checks.accept=[label-case]"),
            right=edit(NODES, label=first(5, "robot")),
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
        ("'unknown' (9 nodes)", "labels.missing=[unknown]", "labels.missing=[]"),
        right=edit(NODES, label=numbers),
        right_arguments=sets("labels.missing=[unknown]"),
    )
    yield Case(
        "numbers-a-word-and-na",
        edit(NODES, label=labels(lambda v: "x" if v < 5 else ["1", "2", "NA"][v % 3])),
        ("labels.missing=[NA, x]",),
        right=edit(
            NODES, label=labels(lambda v: "NA" if v < 5 else ["1", "2", "NA"][v % 3])
        ),
    )
    yield Case(
        "name-as-label",
        edit(NODES, label=labels(named)),
        ("60 classes for 60 labelled", "columns.label", "age", "label-ids"),
        right=edit(NODES, label=labels(lambda v: named(v % 15))),
    )
    yield chosen(
        "id-as-label",
        "columns.label=node_id",
        "columns.label=label",
        ("columns.node_id and columns.label both name 'node_id'",),
    )
    many = list(range(18, 88)) * 3
    yield Case(
        "ages-as-labels",
        _more_nodes(many),
        ("'label'", "70 different numbers from 18 to 87", "label-ids"),
        right=_more_nodes([value - 18 for value in many]),
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
        right=edit(NODES, label=["NA", "bot", "bot", "no"] * 15),
    )
    yield Case(
        "one-class",
        edit(NODES, label=labels(lambda v: "bot", 40)),
        ("'label'", "single class, 'bot'", "two classes"),
        right=edit(NODES, label=labels(lambda v: "bot" if v > 1 else "human", 40)),
    )
    yield Case(
        "a-class-with-one-label",
        edit(NODES, label=first(1, "rare")),
        ("'rare'", "1 labelled node", "labels.missing=[rare]"),
        right=edit(NODES, label=first(2, "rare")),
    )
    yield Case(
        "labels-with-fractions",
        edit(NODES, label=labels(lambda v: v / 2)),
        ("'label'", "is 0.5 in row 2", "integers, strings or booleans"),
        right=edit(NODES, label=labels(lambda v: float(v % 2), 50)),
    )
    yield Case(
        "dates-as-labels",
        edit(NODES, label=labels(lambda v: date(2020, 1, 1 + v % 9))),
        ("'label'", "date", "integers, strings or booleans"),
        right=edit(NODES, label=labels(lambda v: v % 2 == 0)),
    )
    yield Case(
        "lists-as-labels",
        edit(NODES, label=labels(lambda v: [v % 2])),
        ("'label'", "list"),
        right=edit(
            NODES, label=pa.array(labels(lambda v: f"c{v % 2}")).dictionary_encode()
        ),
    )
    yield Case(
        "labels-beyond-int64",
        edit(NODES, label=pa.array(labels(lambda v: 2**63 + v % 2), pa.uint64())),
        ("'label'", "too large", "strings"),
        right=edit(NODES, label=pa.array(labels(lambda v: v % 2), pa.uint64())),
    )
    yield Case(
        "labels-of-two-types-in-two-files",
        split({"label": labels(lambda v: v % 2)}),
        ("'label'", "int64", "string", "same type"),
        right=split({}),
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
            right=VALID,
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
