"""Weights and features."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from tests.app.wrong.builders import (
    ALONE,
    NODES,
    VALID,
    Case,
    at,
    edge_weights,
    edit,
    labels,
    sets,
)


def weights_and_features_cases() -> Iterable[Case]:
    for name, value in (
        ("negative", -1.0),
        ("null", None),
        ("nan", float("nan")),
        ("infinite", float("inf")),
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
    for name, value in (("negative", -2.0), ("null", None), ("text", "many")):
        yield Case(
            f"node-weight-{name}",
            edit(
                NODES,
                views=[value] * 60 if name == "text" else at(1, value)([1.0] * 60),
            ),
            ("'views'", "columns.node_weight" if name == "text" else "row 2"),
            right=edit(NODES, views=[1.0] * 60),
            arguments=sets("columns.node_weight=views"),
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
        "feature-is-the-id",
        VALID,
        ("'node_id'", "equals the node id", "feature-id"),
        arguments=sets("columns.features=[age,node_id]"),
        right_arguments=sets("columns.features=[age,income]"),
    )
    yield Case(
        "feature-equals-the-id",
        edit(NODES, number=list(range(60))),
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
    yield Case(
        "copy-of-the-label-is-accepted",
        edit(NODES, features=inside),
        ("accepted",),
        arguments=sets("checks.accept=[feature-label]"),
        status=0,
    )
