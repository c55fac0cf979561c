"""Files that are missing, damaged or of another kind."""

from __future__ import annotations

import gzip
from collections.abc import Iterable

from tests.app.wrong.builders import (
    ALONE,
    AS_CSV,
    EDGES,
    GIVEN,
    MEMBERS,
    NODES,
    VALID,
    Case,
    Spoil,
    as_csv,
    both,
    cut,
    none_of,
    put,
    remove,
    rename,
    unreadable,
)


def files_cases() -> Iterable[Case]:
    nodes, edges = "nodes.parquet", "edges.parquet"
    yield Case(
        "no-memberships",
        remove("memberships.parquet"),
        ("memberships.parquet", "does not exist"),
        arguments=GIVEN,
    )
    yield Case("two-tables-missing", both(remove(nodes), remove(edges)), (nodes, edges))
    yield Case(
        "glob-without-match",
        VALID,
        ("part-*.parquet", "no file matches", "pattern"),
        arguments=("--nodes={folder}/part-*.parquet",),
        right_arguments=("--nodes={folder}/nod*.parquet",),
    )
    yield Case(
        "empty-folder",
        lambda folder: (folder / "none").mkdir(),
        ("none", "holds no"),
        arguments=("--nodes={folder}/none",),
        right=both(lambda folder: (folder / "none").mkdir(), _copied("none")),
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
        right=put("nodes.csv", as_csv(NODES)),
        arguments=ALONE,
        right_arguments=(*ALONE, "--nodes={folder}/nodes.csv"),
    )
    yield Case(
        "empty-csv",
        put("nodes.csv", b""),
        ("nodes.csv",),
        right=put("nodes.csv", as_csv(NODES)),
        arguments=AS_CSV,
    )
    yield Case(
        "csv-without-rows",
        put("nodes.csv", b"node_id,label\n"),
        ("nodes.csv", "no rows"),
        right=put("nodes.csv", as_csv(NODES)),
        arguments=AS_CSV,
    )
    yield Case(
        "csv-with-a-row-too-long",
        put("nodes.csv", lambda folder: as_csv(NODES)(folder) + b"1,2,3,4,5,6,7\n"),
        ("nodes.csv",),
        right=put("nodes.csv", as_csv(NODES)),
        arguments=AS_CSV,
    )
    yield Case(
        "cut-csv-gz",
        put("nodes.csv.gz", lambda folder: gzip.compress(as_csv(NODES)(folder))[:-60]),
        ("nodes.csv.gz",),
        right=put("nodes.csv.gz", lambda folder: gzip.compress(as_csv(NODES)(folder))),
        arguments=("--nodes={folder}/nodes.csv.gz", *ALONE),
    )
    yield Case(
        "device",
        VALID,
        ("/dev/null",),
        arguments=("--nodes=/dev/null",),
        right_arguments=("--nodes={folder}/nodes.parquet",),
    )
    yield Case(
        "unknown-scheme",
        VALID,
        ("nowhere://x/nodes.parquet", "check the address"),
        arguments=("--nodes=nowhere://x/nodes.parquet",),
        right_arguments=("--nodes=file://{folder}/nodes.parquet",),
    )
    yield Case(
        "tables-interchanged",
        VALID,
        ("'node_id'", "'src'", "columns.node_id", "columns.src", "it has src, dst"),
        arguments=("--nodes={folder}/edges.parquet", "--edges={folder}/nodes.parquet"),
        right_arguments=(),
    )
    yield Case(
        "memberships-as-edges",
        VALID,
        ("memberships.parquet", "'src'", "it has community, node_id"),
        arguments=("--edges={folder}/memberships.parquet",),
        right=rename(MEMBERS, community="src", node_id="dst"),
        right_arguments=(),
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
