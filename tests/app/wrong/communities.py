"""Memberships, parents and benchmarks."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from tests.app.wrong.builders import (
    DROP,
    GIVEN,
    KNOWN,
    MEMBERS,
    NODES,
    RIGHT,
    TREE,
    UNDER,
    VALID,
    Case,
    at,
    benchmark,
    chosen,
    edit,
    first,
    named,
    parents,
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
        "members-of-another-graph",
        edit(MEMBERS, node_id=lambda c: [v + 50 for v in c]),
        ("memberships.parquet", "another graph", "few-matches"),
        arguments=(*GIVEN, *DROP),
        right=edit(MEMBERS, node_id=lambda c: [v + 20 for v in c]),
    )
    yield Case(
        "members-of-another-type",
        text_ids(named, MEMBERS),
        ("'node_id'", "memberships.parquet", "'u0'", "integers"),
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
        "communities-differ-by-case",
        edit(MEMBERS, community=first(2, "Page  0")),
        ("'Page  0'", "'page 0'", "differ by case or spaces"),
        arguments=GIVEN,
        right=edit(MEMBERS, community=first(2, "Page 10")),
        status=0,
    )
    yield Case(
        "community-without-a-name",
        edit(MEMBERS, community=first(4, " ")),
        ("'community'", "memberships.parquet", "blank name in 4 rows"),
        arguments=GIVEN,
        right=edit(MEMBERS, community=first(4, "page 10")),
        status=0,
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
    yield chosen(
        "column-of-communities-with-fractions",
        "communities=column:income",
        "communities=column:age",
        ("'income'", "row 1", "integers or text"),
    )
    yield Case(
        "column-of-communities-all-null",
        edit(NODES, town=pa.nulls(60, pa.string())),
        ("'town'", "no value", "column:NAME"),
        arguments=sets("communities=column:town"),
        right=edit(NODES, town=["x", None] * 30),
    )
    yield Case(
        "parents-in-a-circle",
        parents(["page 0", "page 1"], ["page 1", "page 0"]),
        ("above itself", "parents.parquet"),
        arguments=UNDER,
        right=TREE,
    )
    yield Case(
        "two-parents",
        parents(["page 0", "page 0"], ["north", "south"]),
        ("'page 0'", "2 parents", "parents.parquet"),
        arguments=UNDER,
        right=TREE,
    )
    yield Case(
        "no-table-of-parents",
        VALID,
        ("parents.parquet", "does not exist"),
        arguments=UNDER,
        right=TREE,
    )
    yield Case(
        "parents-of-another-type",
        edit(MEMBERS, parent=[1] * 90),
        ("'community'", "'parent'", "types"),
        arguments=GIVEN,
        right=edit(MEMBERS, parent=["north"] * 90),
    )
    yield Case(
        "community-and-member-alike",
        VALID,
        ("columns.member and columns.community",),
        arguments=(*GIVEN, *sets("columns.member=community")),
        right_arguments=GIVEN,
    )


def benchmarks_cases() -> Iterable[Case]:
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
        VALID,
        ("benchmark.parquet", "does not exist"),
        RIGHT,
        arguments=KNOWN,
    )
