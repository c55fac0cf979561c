"""Counts of tables from their metadata and first rows, before they are read."""

from __future__ import annotations

from contextlib import closing

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from xnq_dist.core.errors import InputError
from xnq_dist.core.need import GraphSize
from xnq_dist.core.settings import TITLES, ColumnSettings, Settings
from xnq_dist.graph.feature_types import HASHED, LEVELS, chosen_columns, kind_of
from xnq_dist.graph.profile.headers import columns_of, feature_columns
from xnq_dist.graph.tables import Batch, Sources, Table, open_table
from xnq_dist.graph.values import NULL_WORDS

__all__ = [
    "count_features",
    "count_rows",
    "count_tables",
    "labelled_rows",
    "reversed_share",
]

SAMPLE = 1 << 16
"""Rows of an edge table that are looked at."""


def count_tables(sources: Sources, settings: Settings) -> GraphSize:
    """The counts for a plan.

    Raises
    ------
    InputError
        When a table is missing or unreadable, lacks a column, or has no rows.
    """

    def opened(what: str) -> Table:
        path = str(getattr(sources, what))
        return open_table(path, TITLES[what], settings.input)

    nodes = opened("nodes")
    columns = chosen_columns(nodes, settings)
    n_nodes = count_rows(nodes, "nodes", columns)
    edges = opened("edges")
    n_edges = most = likely = count_rows(edges, "edges", columns)
    if not settings.input.directed:
        most = 2 * n_edges
        likely = round(most - n_edges * reversed_share(edges, columns, n_edges))
    members = None
    if sources.memberships is not None:
        members = count_rows(opened("memberships"), "memberships", columns)
    return GraphSize(
        n_nodes,
        most,
        count_features(nodes, columns),
        _class_count(nodes, settings),
        labelled=labelled_rows(nodes, columns),
        weighted=settings.input.duplicates == "sum" or edges.has(columns.weight),
        memberships=members,
        likely_edges=likely,
    )


def count_rows(table: Table, what: str, columns: ColumnSettings) -> int:
    """Rows of a table that has the columns of `what`, a key of `TITLES`.

    They come from the files' footers; lines of text tables are counted.
    """
    more = feature_columns(columns) if what == "nodes" else []
    table.require([*columns_of(what, columns), *more])
    rows = table.count_rows()
    if rows == 0:
        raise InputError(
            f"{table.what} {table.path} has no rows: check that it is the right file"
        )
    return rows


def _first(table: Table, names: list[str], rows: int = 1 << 18) -> Batch | None:
    """The first rows of some columns; None: there are none."""
    with closing(table.batches(names, rows, settled=False)) as batches:
        return next(batches, None)


def count_features(table: Table, columns: ColumnSettings) -> int:
    """Maximum number of input features, after `chosen_columns`."""
    features = columns.features
    if features is None:
        return 1
    if not isinstance(features, str):
        return sum(_produced(table, name) for name in features)
    kind = table.schemas[table.files[0]][features]
    # The length of variable-size lists is known only after reading: assume 128.
    return int(getattr(kind, "list_size", 128))


def _produced(table: Table, column: str) -> int:
    """Maximum number of features that a named column becomes."""
    kinds = {kind_of(schema[column]) for schema in table.schemas.values()}
    if "text" in kinds:
        return 1 + max(LEVELS, HASHED)
    footers = (chunk.statistics for chunk in table.chunks({column}))
    return 1 + any(found is not None and found.null_count for found in footers)


def labelled_rows(table: Table, columns: ColumnSettings) -> int | None:
    """Number of labelled nodes, from null counts in the footers; None without them."""
    chunks = list(table.chunks({columns.label}))
    if not chunks or any(
        each.statistics is None or not each.statistics.has_null_count for each in chunks
    ):
        return None
    return sum(int(each.num_values - each.statistics.null_count) for each in chunks)


def _class_count(table: Table, settings: Settings) -> int:
    """Number of classes in the first rows of the node table, at least 2."""
    name = settings.columns.label
    try:
        first = _first(table, [name])
        found = [] if first is None else pc.unique(first.rows.column(name)).to_pylist()
    except (pa.ArrowNotImplementedError, UnicodeDecodeError):
        return 2  # no labels; the profile says what is wrong with them
    missing = settings.labels.missing
    words = {"None", *(NULL_WORDS if missing == "auto" else missing)}
    return max(2, sum(str(value) not in words for value in found))


def reversed_share(table: Table, columns: ColumnSettings, rows: int) -> float:
    """Share of the edges whose reverse is a row too, estimated from the first rows.

    If all are, the reverse of a row is among the first m of M rows with a chance of
    m / M, whether they are in random order or sorted by source.
    """
    ends = [columns.src, columns.dst]
    try:
        first = _first(table, ends, SAMPLE)
        if first is None:
            return 0.0
        both = pa.concat_arrays([first.rows.column(e).cast(pa.string()) for e in ends])
    except (pa.ArrowNotImplementedError, UnicodeDecodeError):
        return 0.0  # no ids; the profile says what is wrong with them
    codes = both.dictionary_encode().indices.fill_null(-1).to_numpy().astype(np.int64)
    source, target = np.split(codes, 2)
    found = np.isin(source << 32 | target, target << 32 | source)
    found &= source != target
    expected = len(source) * min(1.0, len(source) / rows)
    return float(min(1.0, np.count_nonzero(found) / expected))
