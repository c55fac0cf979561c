"""Counts of tables from their metadata and first rows, before they are read."""

from __future__ import annotations

from contextlib import closing

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from xnq_dist.core.need import GraphSize
from xnq_dist.core.settings import ColumnSettings, Settings
from xnq_dist.graph.feature_types import HASHED, LEVELS, chosen_columns, kind_of
from xnq_dist.graph.profile.headers import check_headers
from xnq_dist.graph.tables import Sources, Table
from xnq_dist.graph.values import NULL_WORDS

__all__ = [
    "count_features",
    "count_rows",
    "count_tables",
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
    check_headers(sources, settings)
    nodes = sources.table("nodes", settings.input)
    edges = sources.table("edges", settings.input)
    columns = chosen_columns(nodes, settings)
    n_nodes, n_edges = count_rows(nodes), count_rows(edges)
    unlabelled = nodes.nulls(columns.label)
    most = likely = n_edges
    if not settings.input.directed:
        most = 2 * n_edges
        likely = round(most - n_edges * reversed_share(edges, columns, n_edges))
    members = None
    if sources.memberships is not None:
        members = count_rows(sources.table("memberships", settings.input))
    return GraphSize(
        n_nodes,
        most,
        count_features(nodes, columns),
        _class_count(nodes, settings),
        labelled=None if unlabelled is None else n_nodes - unlabelled,
        weighted=settings.input.duplicates == "sum" or edges.has(columns.weight),
        memberships=members,
        likely_edges=likely,
    )


def count_rows(table: Table) -> int:
    """Rows of a table, from the files' footers; lines of text tables are counted."""
    if table.n_rows == 0:
        raise table.no_rows()
    return table.n_rows


def _first(table: Table, names: list[str], rows: int) -> list[pa.Array]:
    """The first values of some columns as text; no columns where there are none."""
    with closing(table.batches(names, rows, settled=False)) as batches:
        first = next(batches, None)
    try:
        columns = [first.column(name) for name in names] if first else []
        return [each.cast(pa.string()) for each in columns]
    except pa.ArrowException:
        return []  # the profile says what is wrong with them


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
    return 1 + bool(table.nulls(column))


def _class_count(table: Table, settings: Settings) -> int:
    """Number of classes in the first rows of the node table, at least 2."""
    missing = settings.labels.missing
    words = pa.array([None, *(NULL_WORDS if missing == "auto" else missing)])
    classes = 2
    for labels in _first(table, [settings.columns.label], 1 << 18):
        unlabelled = pc.is_in(pc.unique(labels), words.cast(pa.string()))
        classes = max(classes, pc.sum(pc.invert(unlabelled)).as_py() or 0)
    return classes


def reversed_share(table: Table, columns: ColumnSettings, rows: int) -> float:
    """Share of the edges whose reverse is a row too, estimated from the first rows.

    If all are, the reverse of a row is among the first m of M rows with a chance of
    m / M, whether they are in random order or sorted by source.
    """
    ends = _first(table, [columns.src, columns.dst], SAMPLE)
    if not ends:
        return 0.0
    codes = (
        pa.concat_arrays(ends)
        .dictionary_encode()
        .indices.fill_null(-1)
        .to_numpy()
        .astype(np.int64)
    )
    source, target = np.split(codes, 2)
    found = np.isin(source << 32 | target, target << 32 | source)
    found &= source != target
    expected = len(source) * min(1.0, len(source) / rows)
    return float(min(1.0, np.count_nonzero(found) / expected))
