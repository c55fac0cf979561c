"""Columns that the tables have, checked before any is read."""

from __future__ import annotations

from xnq_dist.core.errors import InfrastructureError, InputError
from xnq_dist.core.sections import ColumnSettings
from xnq_dist.core.settings import Settings
from xnq_dist.core.stages import choose_source
from xnq_dist.graph.sources import Sources
from xnq_dist.graph.tables import Table

__all__ = ["PLACE", "check_headers", "columns_of", "feature_columns", "names_read"]

COLUMNS = {
    "nodes": (("node_id", "label"), ("role", "label_weight")),
    "edges": (("src", "dst"), ("weight",)),
    "memberships": (("member", "community"), ()),
}
"""Settings of the columns that each table must have, and of those that it may have.

A column must exist if its setting is not the default."""
UNREACHABLE = "NETWORK_CONNECTION"
"""What the message of an object store has that cannot be reached."""
PLACE = "communities = column:NAME"
"""Setting of a column of communities in the node table."""


def check_headers(sources: Sources, settings: Settings) -> None:
    """Check that the tables exist and have the columns that the settings name.

    Raises
    ------
    InputError
        With all missing columns, and the settings that name them.
    """
    named, place = settings.columns, settings.communities.partition("column:")[2]
    of_nodes = feature_columns(named)
    if place:
        of_nodes.append(("communities", place))
    given = choose_source(sources.memberships, settings) == "given"
    faults = []
    if named.features == []:
        faults.append(
            "columns.features names no column: set it to null to use the graph alone"
        )
    for what in ("nodes", "edges", *(["memberships"] if given else [])):
        try:
            table = sources.table(what, settings.input)
            more = of_nodes if what == "nodes" else []
            table.require([*columns_of(what, named), *more])
        except InputError as error:
            faults.append(str(error))
            if UNREACHABLE in faults[-1]:
                raise InfrastructureError(
                    f"{error}: correct the address, or run again when the store answers"
                ) from error
    if faults:
        raise InputError("; and ".join(faults))


def columns_of(
    what: str, named: ColumnSettings, table: Table | None = None
) -> list[tuple[str, str]]:
    """Setting and name of the columns that a table must have, features aside.

    `what` is a key of `COLUMNS`; a table of labels has the columns of ``nodes``. With a
    `table`, also those that it may have and has.
    """
    keys, optional = map(list, COLUMNS[what])
    fields = ColumnSettings.model_fields
    for key in optional:
        name = getattr(named, key)
        there = table is not None and table.has(name)
        if name is not None and (there or name != fields[key].default):
            keys.append(key)
    return [(f"columns.{key}", str(getattr(named, key))) for key in keys]


def names_read(what: str, named: ColumnSettings, table: Table) -> list[str]:
    """Names of the columns of `columns_of` that a table has, each once."""
    return list(dict.fromkeys(name for _, name in columns_of(what, named, table)))


def feature_columns(named: ColumnSettings) -> list[tuple[str, str]]:
    """Setting and name of the columns of features and scores that are named."""
    features = named.features
    if not isinstance(features, list):
        features = [] if features in (None, "auto") else [features]
    pairs = {"columns.features": features, "columns.scores": named.scores}
    return [(setting, name) for setting, names in pairs.items() for name in names]
