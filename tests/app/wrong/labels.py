"""The column of labels."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.app.wrong.builders import (
    NODES,
    VALID,
    Case,
    Spoil,
    edit,
    first,
    labels,
    named,
    sets,
    split,
)


def with_labels(values: Any) -> Spoil:
    """Other labels, or a function of the labels."""
    return edit(NODES, label=values)


def labels_cases() -> Iterable[Case]:
    yield Case(
        "null-words-and-a-rare-class",
        with_labels(lambda c: ["NA"] * 6 + ["rare"] + list(c)[7:]),
        ("'rare'", "labels.missing=[NA, rare]"),
        right=with_labels(first(6, "NA")),
    )
    yield Case(
        "label-minus-one",
        with_labels(labels(lambda v: v % 4 - 1)),
        ("'label'", "-1 (15 nodes)", "labels.missing=[-1]", "labels.missing=[]"),
        right=with_labels(labels(lambda v: v % 4 - 1)),
        right_arguments=sets("labels.missing=[-1]"),
    )
    yield Case(
        "label-minus-one-as-text",
        with_labels(labels(lambda v: str(v % 3 - 1))),
        ("'label'", "'-1' (20 nodes)", "labels.missing=[-1]"),
        right=with_labels(labels(lambda v: "-1" if v % 2 else "1")),
    )
    yield Case(
        "label-that-means-unlabelled",
        with_labels(first(5, "Unknown")),
        ("'label'", "'Unknown' (5 nodes)", "labels.missing=[Unknown]"),
        right=with_labels(first(5, "Unknown")),
        right_arguments=sets("labels.missing=[Unknown]"),
    )
    for name, word in (("case", "Bot"), ("space", " bot")):
        yield Case(
            f"labels-differ-by-{name}",
            with_labels(first(5, word)),
            ("'label'", repr(word), "'bot'", "checks.accept=[label-case]"),
            right=with_labels(first(5, "robot")),
        )
    yield Case(
        "labels-differ-by-case-and-are-accepted",
        with_labels(first(5, "Bot")),
        ("accepted",),
        arguments=sets("checks.accept=[label-case]"),
        status=0,
    )
    numbers = labels(lambda v: "unknown" if v < 9 else str(v % 3))
    yield Case(
        "numbers-and-a-word",
        with_labels(numbers),
        ("'unknown' (9 nodes)", "labels.missing=[unknown]", "labels.missing=[]"),
        right=with_labels(numbers),
        right_arguments=sets("labels.missing=[unknown]"),
    )
    yield Case(
        "name-as-label",
        with_labels(labels(named)),
        ("60 values for 60 labelled", "columns.label", "label-ids"),
        right=with_labels(labels(lambda v: named(v % 15))),
    )
    many = list(range(18, 88)) * 3
    yield Case(
        "ages-as-labels",
        _more_nodes(many),
        ("'label'", "70 values for 210 labelled", "a measurement", "label-ids"),
        right=_more_nodes([value - 18 for value in many]),
    )
    yield Case(
        "no-label",
        with_labels([None] * 60),
        ("'label'", "nodes.parquet", "has no label", "label some"),
    )
    yield Case(
        "one-class",
        with_labels(labels(lambda v: "bot", 40)),
        ("'label'", "single class 'bot'", "label nodes of two"),
        right=with_labels(labels(lambda v: "bot" if v > 1 else "human", 40)),
    )
    yield Case(
        "a-class-with-one-label",
        with_labels(first(1, "rare")),
        ("'rare'", "1 labelled node", "labels.missing=[rare]"),
        right=with_labels(first(2, "rare")),
    )
    yield Case(
        "labels-with-fractions",
        with_labels(labels(lambda v: v / 2)),
        ("'label'", "is 0.5 in row 2", "integers or text"),
        right=with_labels(labels(lambda v: float(v % 2), 50)),
    )
    yield Case(
        "lists-as-labels",
        with_labels(labels(lambda v: [v % 2])),
        ("'label'", "list"),
        right=with_labels(pa.array(labels(lambda v: f"c{v % 2}")).dictionary_encode()),
    )
    yield Case(
        "labels-of-two-types-in-two-files",
        split({"label": labels(lambda v: v % 2)}),
        ("'label'", "int64", "string", "same type"),
        right=split({}),
    )
    yield Case(
        "labels-that-are-not-utf-8",
        with_labels(
            lambda c: pa.array(
                [b"b\xf6t" if v == "bot" else b"no" for v in c], pa.binary()
            ).view(pa.string()),
        ),
        ("'label'", "not UTF-8"),
    )
    yield Case(
        "hdy-of-three-classes",
        with_labels(first(9, "cat")),
        ("quantifier=hdy", "two classes", "3", "quantifier=auto"),
        arguments=sets("quantifier=hdy"),
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
