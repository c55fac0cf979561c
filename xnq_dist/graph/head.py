"""Counts of tables from their metadata and first rows, before they are read."""

from __future__ import annotations

from contextlib import closing

import pyarrow as pa
import pyarrow.compute as pc

from xnq_dist.core.need import GraphSize
from xnq_dist.core.settings import ColumnSettings, Settings
from xnq_dist.graph.feature_types import LEVELS, chosen_columns, kind_of
from xnq_dist.graph.profile.headers import check_headers
from xnq_dist.graph.tables import Sources, Table
from xnq_dist.graph.values import NULL_WORDS

__all__ = [
    "count_features",
    "count_rows",
    "count_tables",
]


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
    if not settings.input.directed:
        n_edges *= 2
    unlabelled = nodes.nulls(columns.label)
    members = None
    if sources.memberships is not None:
        members = count_rows(sources.table("memberships", settings.input))
    return GraphSize(
        n_nodes,
        n_edges,
        count_features(nodes, columns),
        _class_count(nodes, settings),
        labelled=None if unlabelled is None else n_nodes - unlabelled,
        weighted=settings.input.duplicates == "sum" or edges.has(columns.weight),
        memberships=members,
    )


def count_rows(table: Table) -> int:
    """Rows of a table, from the files' footers; lines of text tables are counted."""
    if table.n_rows == 0:
        raise table.no_rows()
    return table.n_rows


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
        return 1 + LEVELS
    return 1 + bool(table.nulls(column))


def _class_count(table: Table, settings: Settings) -> int:
    """Number of classes in the first rows of the node table, at least 2."""
    label, missing = settings.columns.label, settings.labels.missing
    words = NULL_WORDS if missing == "auto" else missing
    with closing(table.batches([label], settled=False)) as batches:
        first = next(batches, None)
    if first is None:
        return 2
    try:
        found = pc.unique(first.column(label).cast(pa.string()))
    except pa.ArrowException:
        return 2  # the profile says what is wrong with the column
    unlabelled = pc.is_in(found, pa.array([None, *words], pa.string()))
    return max(2, int(unlabelled.false_count))
