"""Columns that are missing or have another name."""

from __future__ import annotations

from collections.abc import Iterable

from tests.app.wrong.builders import (
    EDGES,
    GIVEN,
    MEMBERS,
    NODES,
    VALID,
    Case,
    both,
    chosen,
    edge_weights,
    edit,
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
            (f"{what}.parquet", repr(column), f"--set columns.{key}={other}"),
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
        (*meant, "nodes.parquet", "edges.parquet"),
        right=foreign,
        right_arguments=sets(*meant),
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
            VALID,
            (f"{what}.parquet", repr(column), f"columns.{key}"),
            arguments=sets(f"columns.{key}={column}"),
            right_arguments=sets(right),
        )
    yield Case(
        "no-column-of-a-list-of-features",
        VALID,
        ("nodes.parquet", "'height'", "columns.features[1]"),
        arguments=sets("columns.features=[age,height]"),
        right_arguments=sets("columns.features=[age,income]"),
    )
    yield Case(
        "column-in-one-file-of-two",
        split({"features": None}),
        ("'features'", "b.parquet"),
        right=split({}),
    )
    yield Case(
        "no-column-of-parents",
        VALID,
        ("memberships.parquet", "'above'", "columns.parent"),
        arguments=(*GIVEN, *sets("columns.parent=above")),
        right_arguments=GIVEN,
    )
    yield chosen(
        "no-column-of-communities",
        "communities=column:town",
        "communities=column:age",
        ("'town'", "communities"),
    )
    yield Case(
        "Weight",
        edge_weights(lambda row: 1.5, "Weight"),
        ("edges.parquet", "'Weight'", "columns.weight=Weight"),
        right=edge_weights(lambda row: 1.5),
        status=0,
    )
    yield Case(
        "Role",
        edit(NODES, Role=["train"] * 60),
        ("nodes.parquet", "'Role'", "columns.role=Role"),
        status=0,
    )
