"""Counts of tables from their metadata and first rows, before they are read."""

from __future__ import annotations

from contextlib import closing

from xnq_dist.core.errors import InputError
from xnq_dist.core.need import GraphSize
from xnq_dist.core.sections import ColumnSettings
from xnq_dist.core.settings import Settings
from xnq_dist.graph.feature_types import LEVELS, chosen_columns, kind_of
from xnq_dist.graph.profile.headers import check_headers
from xnq_dist.graph.sources import Sources
from xnq_dist.graph.tables import Table

__all__ = [
    "count_features",
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
    n_nodes, n_edges = nodes.n_rows, edges.n_rows
    if not settings.input.directed:
        n_edges *= 2
    unlabelled = nodes.nulls(columns.label)
    members = None
    if sources.memberships is not None:
        members = sources.table("memberships", settings.input).n_rows
    return GraphSize(
        n_nodes,
        n_edges,
        count_features(nodes, columns),
        _class_count(nodes, settings),
        labelled=None if unlabelled is None else n_nodes - unlabelled,
        weighted=settings.input.duplicates == "sum" or edges.has(columns.weight),
        memberships=members,
    )


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
    # Imported late: a run in which nothing changed needs no compiled code.
    from xnq_dist.graph.labels import plain_labels

    label = settings.columns.label
    with closing(table.batches([label], settled=False)) as batches:
        first = next(batches, None)
    if first is None:
        return 2
    try:
        labels = plain_labels(first, label, settings.labels.missing)
    except InputError:
        return 2  # the profile says what is wrong with the column
    return max(2, len(labels.unique().drop_null()))
