"""Ids of nodes, and edges that name them."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date

import pyarrow as pa

from tests.app.wrong.builders import (
    DROP,
    EDGES,
    NODES,
    VALID,
    Case,
    at,
    both,
    edit,
    named,
    padded,
    sets,
    split,
    text_ids,
)


def ids_cases() -> Iterable[Case]:
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
        ("285 of 285 edges", "such as '9223372036854775808'", "alike"),
        right=edit(NODES, node_id=lambda c: pa.array(c, pa.uint64())),
    )
    yield Case(
        "dates-as-ids",
        edit(NODES, node_id=lambda c: [date.fromordinal(v + 1) for v in c]),
        ("edges.parquet", "such as '0001-01-01'", "alike"),
    )
    yield Case(
        "ids-of-two-types-in-two-files",
        split({"node_id": [named(v) for v in range(60)]}),
        ("edges.parquet", "not in the node table"),
        right=split({}),
    )
    yield Case(
        "text-among-edges",
        text_ids(named, EDGES),
        ("'src'", "edges.parquet", "'u", "row 1", "such as 0", "alike"),
        right=text_ids(named),
    )
    yield Case(
        "integers-among-text",
        text_ids(named, NODES),
        ("'src'", "edges.parquet", "such as 'u0'", "alike"),
        right=text_ids(named),
    )
    yield Case(
        "leading-zeros-lost",
        text_ids(padded, NODES),
        ("such as '00000'", "alike", "'src'", "edges.parquet"),
        right=text_ids(padded),
    )
    yield Case(
        "spaces-around-ids",
        both(text_ids(named), edit(EDGES, src=lambda c: [f"{v} " for v in c])),
        ("edges.parquet", "'u0 '", "such as 'u0'", "alike"),
        right=text_ids(named),
    )
    yield Case(
        "unknown-node",
        edit(EDGES, dst=at(3, 99_999)),
        ("edges.parquet", "1 of ", "99999", "row 4", "input.unknown_nodes=drop"),
        right=edit(EDGES, dst=at(3, 99_999)),
        right_arguments=DROP,
    )
    yield Case(
        "edges-of-another-graph",
        edit(EDGES, src=lambda c: [v + 60 if v > 5 else v for v in c]),
        ("edges.parquet", "another graph", "checks.accept=[few-matches]"),
        arguments=DROP,
        right_arguments=(*DROP, *sets("checks.accept=[few-matches]")),
        right=edit(EDGES, src=lambda c: [v + 60 if v > 5 else v for v in c]),
    )
    yield Case(
        "source-and-target-alike",
        VALID,
        ("columns.src and columns.dst both name 'dst'",),
        arguments=sets("columns.src=dst"),
        right_arguments=sets("columns.src=dst", "columns.dst=src"),
    )
