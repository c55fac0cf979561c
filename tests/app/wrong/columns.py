"""Columns: missing ones, weights, features and roles."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from tests.app.wrong.builders import (
    ALONE,
    EDGES,
    GIVEN,
    MEMBERS,
    NODES,
    VALID,
    Case,
    at,
    both,
    chosen,
    edge_weights,
    edit,
    labels,
    rename,
    sets,
    split,
)


def columns_cases() -> Iterable[Case]:
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
            (f"{what}.parquet", repr(column), other, f"set columns.{key}"),
            right=rename(what, **{column: other}),
            arguments=GIVEN,
            right_arguments=(*GIVEN, *sets(f"columns.{key}={other}")),
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
        (
            *(name for pair in meant for name in pair.split("=")),
            *("nodes.parquet", "edges.parquet"),
        ),
        right=foreign,
        right_arguments=sets(*meant),
    )
    for key, column, what in (
        ("features", "income2", NODES),
        ("role", "split", NODES),
        ("weight", "strength", EDGES),
    ):
        there = "income" if what == NODES else "dst"
        right = f"columns.{key}={there}"
        if key in ("features", "role"):
            right = "columns.features=null"
        yield Case(
            f"no-column-of-{key}",
            VALID,
            (f"{what}.parquet", repr(column), f"columns.{key}"),
            arguments=sets(f"columns.{key}={column}"),
            right_arguments=sets(right),
        )
    yield Case(
        "no-column-of-the-scores",
        VALID,
        ("nodes.parquet", "'incomes'", "set columns.scores"),
        arguments=sets("columns.scores=[incomes]", "method=xnq+"),
        right_arguments=sets("columns.scores=[income]", "method=xnq+"),
    )
    yield Case(
        "column-in-one-file-of-two",
        split({"features": None}),
        ("'features'", "b.parquet"),
        right=split({}),
    )
    yield chosen(
        "no-column-of-communities",
        "communities=column:town",
        "communities=column:age",
        ("'town'", "communities"),
    )


def weights_and_features_cases() -> Iterable[Case]:
    for name, value in (
        ("negative", -1.0),
        ("nan", float("nan")),
        ("huge", 1e20),
    ):
        yield Case(
            f"edge-weight-{name}",
            edge_weights(lambda row, value=value: value if row == 4 else 1.0),
            ("weight", "row 5 of ", "edges.parquet", "finite"),
            right=edge_weights(lambda row: 0.0 if row == 4 else 1.0),
        )
    yield Case(
        "edge-weight-text",
        edge_weights(lambda row: "strong"),
        ("'weight'", "string", "columns.weight"),
        right=edge_weights(lambda row: 3),
    )
    yield Case(
        "edge-weights-all-zero",
        edge_weights(lambda row: 0),
        ("'weight'", "edges.parquet", "are 0", "columns.weight=null"),
        right=edge_weights(lambda row: int(row == 0)),
    )
    yield Case(
        "edge-weights-all-tiny",
        edge_weights(lambda row: 1e-40),
        ("'weight'", "edges.parquet", "below 1e-30", "columns.weight=null"),
        right=edge_weights(lambda row: 1e-20),
    )
    yield Case(
        "no-features-named",
        VALID,
        ("columns.features", "null"),
        arguments=sets("columns.features=[]"),
        right_arguments=ALONE,
    )
    yield Case(
        "feature-is-a-map",
        edit(NODES, tags=pa.array([[("a", 1)]] * 60, pa.map_(pa.string(), pa.int64()))),
        ("'tags'", "map"),
        arguments=sets("columns.features=[age,tags]"),
        right_arguments=sets("columns.features=[age,income]"),
    )
    yield Case(
        "feature-equals-the-id",
        edit(NODES, number=pa.array(range(60), pa.int32())),
        ("'number'", "equals the node id"),
        arguments=sets("columns.features=[age,number]"),
        right=edit(NODES, number=list(range(1, 61))),
    )
    copy = labels(lambda v: 5.0 if v % 3 == 0 else 2.0)
    yield Case(
        "feature-copies-the-label",
        edit(NODES, y=copy),
        ("'y'", "copy of the label", "48 labelled", "feature-label"),
        arguments=sets("columns.features=[age,y]"),
        right=edit(NODES, y=at(3, 2.0)(copy)),
    )
    inside = [[1.0, float(v % 3 == 0)] for v in range(60)]
    yield Case(
        "list-holds-a-copy-of-the-label",
        edit(NODES, features=inside),
        ("'features[1]'", "copy of the label"),
        right=edit(NODES, features=at(3, [1.0, 0.0])(inside)),
    )


def roles_cases() -> Iterable[Case]:
    by_turns = ["train", "train", "train", "calibration", "calibration", None] * 10
    right = edit(NODES, role=by_turns)
    yield Case(
        "class-without-calibration",
        edit(NODES, role=["train" if v % 3 else None for v in range(60)]),
        ("'role'", "'calibration'", "both roles"),
        right=right,
    )
    yield Case(
        "class-without-training",
        edit(NODES, role=["calibration" if v % 3 == 0 else "train" for v in range(60)]),
        ("'role'", "'bot'", "'train'", "cross-fit"),
        right=right,
    )
    yield Case(
        "every-role-another",
        edit(NODES, role=["valid"] * 60),
        ("'label'", "a role other than train", "has no label"),
        right=right,
    )
    drawn = sets("labels.drawn=weighted", "columns.label_weight=chance")
    for name, value, shown in (
        ("negative", -1.0, "-1.0"),
        ("null", None, "null"),
    ):
        yield Case(
            f"label-weight-{name}",
            edit(NODES, chance=at(2, value)([1.5] * 60)),
            ("'chance'", shown, "row 3", "columns.label_weight"),
            right=edit(NODES, chance=[1.5] * 60),
            arguments=drawn,
        )
    yield Case(
        "label-weight-text",
        edit(NODES, chance=["high"] * 60),
        ("'chance'", "string", "not a number"),
        right=edit(NODES, chance=[2] * 60),
        arguments=drawn,
    )
    yield Case(
        "label-weight-without-its-design",
        edit(NODES, chance=[1.0] * 60),
        ("labels.drawn = weighted", "columns.label_weight"),
        arguments=drawn[1:],
        right=edit(NODES, chance=[1.0] * 60),
        right_arguments=drawn,
    )
