"""Memberships."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from tests.app.wrong.builders import (
    DROP,
    GIVEN,
    MEMBERS,
    NODES,
    VALID,
    Case,
    at,
    edit,
    named,
    sets,
    text_ids,
)


def communities_cases() -> Iterable[Case]:
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
        "communities-by-node-id",
        VALID,
        ("communities = column:node_id is the column of node ids",),
        arguments=sets("communities=column:node_id"),
        right_arguments=sets("communities=leiden"),
    )
    yield Case(
        "no-member-is-a-node",
        edit(MEMBERS, node_id=lambda c: [v + 500 for v in c]),
        ("90 of 90 memberships", "such as 0", "50", "row 1", "alike"),
        arguments=GIVEN,
    )
    yield Case(
        "members-of-another-graph",
        edit(MEMBERS, node_id=lambda c: [v + 50 for v in c]),
        ("memberships.parquet", "another graph", "few-matches"),
        arguments=(*GIVEN, *DROP),
        right=edit(MEMBERS, node_id=lambda c: [v + 20 for v in c]),
    )
    yield Case(
        "members-of-another-type",
        text_ids(named, MEMBERS),
        ("'node_id'", "'u0'", "such as 0", "alike"),
        right=text_ids(named),
        arguments=GIVEN,
    )
    yield Case(
        "communities-with-fractions",
        edit(MEMBERS, community=lambda c: [v / 7 for v in range(len(c))]),
        ("'community'", "0.142857", "row 2", "integers or text"),
        arguments=GIVEN,
        right=edit(MEMBERS, community=lambda c: [v % 7 for v in range(len(c))]),
    )
    yield Case(
        "given-without-memberships",
        VALID,
        ("communities = given", "--memberships"),
        arguments=sets("communities=given"),
        right_arguments=(*GIVEN, *sets("communities=given")),
    )
    yield Case(
        "memberships-that-are-not-used",
        VALID,
        ("memberships table is not used", "communities = given"),
        arguments=(*GIVEN, *sets("communities=leiden")),
        right_arguments=GIVEN,
        status=0,
    )
    yield Case(
        "column-of-communities-all-null",
        edit(NODES, town=pa.nulls(60, pa.string())),
        ("'town'", "no value", "column:NAME"),
        arguments=sets("communities=column:town"),
        right=edit(NODES, town=["x", None] * 30),
    )
