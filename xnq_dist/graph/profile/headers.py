"""Checks the columns of all tables before any is read; one message for all faults."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence

from xnq_dist.core.errors import InfrastructureError, InputError
from xnq_dist.core.inputs import choose_source
from xnq_dist.core.settings import TITLES, ColumnSettings, Settings
from xnq_dist.graph.tables import Sources, Table, open_table

__all__ = ["check_headers", "missing_columns", "require_columns", "required_columns"]

COLUMNS = {
    "nodes": ("node_id", "label"),
    "edges": ("src", "dst"),
    "memberships": ("community", "member"),
    "labels": ("node_id", "label"),
}
"""Settings of the columns that each table must have."""
OPTIONAL = {
    "nodes": ("role", "label_weight"),
    "edges": ("weight",),
    "memberships": (),
    "labels": ("role", "label_weight"),
}
"""Settings of columns that must exist if the setting is not the default."""
ALIASES = {
    "node_id": ("id", "node", "user", "userid", "account", "vertex", "name"),
    "label": ("class", "y", "target", "lbl", "labels", "category", "truth"),
    "src": ("source", "from", "u", "follower", "i", "node1", "a"),
    "dst": ("target", "to", "v", "followed", "j", "node2", "b", "dest", "destination"),
    "community": ("group", "cluster", "page", "county", "district", "communityid"),
    "member": ("node", "id", "user", "userid", "member", "account", "vertex"),
}
"""Usual names of columns, without case, spaces and underscores."""
SHOWN = 6
"""Columns of a file in a message."""
UNREACHABLE = "NETWORK_CONNECTION"
"""What the message of an object store has that cannot be reached."""


def check_headers(sources: Sources, settings: Settings) -> None:
    """Check that the tables exist and have the columns that the settings name.

    Raises
    ------
    InputError
        With all missing columns, and settings that may be meant.
    """
    named = settings.columns
    source = choose_source(sources.memberships, settings)
    required = {
        what: required_columns(what, named)
        for what in ("nodes", "edges", "memberships")
        if what != "memberships" or source == "given"
    }
    faults = []
    if named.features == []:
        faults.append(
            "columns.features names no column: set it to null to use the graph alone"
        )
    tables: dict[str, Table] = {}
    for what in required:
        path = str(getattr(sources, what))
        try:
            tables[what] = open_table(path, TITLES[what], settings.input)
            _ = tables[what].schemas
        except InputError as error:
            tables.pop(what, None)
            faults.append(str(error))
            if UNREACHABLE in faults[-1]:
                raise InfrastructureError(
                    f"{error}: correct the address, or run again when the store answers"
                ) from error
    for what, table in tables.items():
        other = _looks_like(what, tables, named)
        faults.append(missing_columns(table, required[what], what, other))
    if any(faults):
        raise InputError("; and ".join(filter(None, faults)))


def required_columns(what: str, named: ColumnSettings) -> dict[str, str]:
    """Columns that a table must have, by setting: also features, and those set."""
    required = {key: str(getattr(named, key)) for key in COLUMNS[what]}
    for key in OPTIONAL[what]:
        value = getattr(named, key)
        if value not in (None, type(named).model_fields[key].default):
            required[key] = value
    features = named.features if what == "nodes" else None
    if isinstance(features, list):
        required |= {f"features[{i}]": name for i, name in enumerate(features)}
    elif features not in (None, "auto"):
        required["features"] = str(features)
    if what == "nodes":
        required |= {f"scores[{i}]": name for i, name in enumerate(named.scores)}
    return required


def require_columns(table: Table, what: str, named: ColumnSettings) -> None:
    """Raise an `InputError` if a file of a table lacks a column, features aside."""
    columns = required_columns(what, named.model_copy(update={"features": None}))
    table.require({f"columns.{key}": name for key, name in columns.items()})


def _looks_like(
    what: str, tables: Mapping[str, Table], named: ColumnSettings
) -> str | None:
    """Which other table this one is by its columns; None: none, or its own.

    Columns of other names count only if the two tables look exchanged.
    """

    def fits(table: str, kind: str, exactly: bool) -> bool:
        columns = {key: str(getattr(named, key)) for key in COLUMNS[kind]}
        return all(
            {*columns.values()} <= {*there}
            if exactly
            else len(_names_of(columns, list(there))) == len(columns)
            for there in tables[table].schemas.values()
        )

    def exchanged(other: str) -> bool:
        if other not in tables or fits(what, what, False) or fits(other, other, False):
            return False
        return fits(what, other, False) and fits(other, what, False)

    for other in COLUMNS.keys() - {what, "labels"}:
        if fits(what, other, True) or exchanged(other):
            return other
    return None


def missing_columns(
    table: Table, columns: Mapping[str, str], what: str = "", other: str | None = None
) -> str:
    """The columns that a file lacks, by setting, as a message; empty if none.

    `what`, `other`: the table that it should be, and the one that it looks like.
    """
    for file, there in table.schemas.items():
        missing = {key: name for key, name in columns.items() if name not in there}
        if not missing:
            continue
        shown = table.path if len(table.files) == 1 else file
        names = " or ".join(map(repr, missing.values()))
        advice = f"{shown} has no column {names} ({_has(there)})"
        if other:
            lost = " and ".join(_settings(missing))
            return (
                f"{advice} and looks like the {TITLES[other]}: the paths of the "
                f"{TITLES[what]} and the {TITLES[other]} may be exchanged, else set "
                f"{lost}"
            )
        return f"{advice}: {_advice(missing, _names_of(columns, list(there)))}"
    return ""


def _settings(keys: Iterable[str]) -> list[str]:
    """The settings of columns, each once: a list's columns cannot be set alone."""
    return list(dict.fromkeys(f"columns.{key.partition('[')[0]}" for key in keys))


def _advice(missing: Mapping[str, str], meant: Mapping[str, str]) -> str:
    """What to set for missing columns, of which some are meant by other names."""
    advice = []
    if lost := _settings(key for key in missing if key not in meant):
        advice.append(f"set {' and '.join(lost)}")
    if flags := [f"--set columns.{k}={v}" for k, v in meant.items() if k in missing]:
        advice.append(f"try {' '.join(flags)}")
    if "columns.features" in lost:
        advice.append("or columns.features=null to use the graph alone")
    return ", ".join(advice)


def _has(there: Iterable[str]) -> str:
    """The columns of a file, for messages."""
    names = list(there)
    more = [f"and {len(names) - SHOWN:,} more"] if len(names) > SHOWN else []
    return f"it has {', '.join([*names[:SHOWN], *more]) or 'none'}"


def _names_of(columns: Mapping[str, str], there: Sequence[str]) -> dict[str, str]:
    """The columns of a file that are or may be meant, by setting."""
    found = {key: name for key, name in columns.items() if name in there}
    for key, name in columns.items():
        free = [each for each in there if each not in found.values()]
        # One column of a list cannot be set alone.
        single = key not in found and "[" not in key
        if single and (meant := _meant(key, name, free)):
            found[key] = meant
    return found


def _meant(key: str, name: str, free: Sequence[str]) -> str | None:
    """The unused column that is probably meant."""
    plain = {re.sub(r"[\W_]", "", each).lower(): each for each in free}
    wanted = [re.sub(r"[\W_]", "", name).lower(), *ALIASES.get(key, ())]
    for each in wanted:
        if each in plain:
            return plain[each]
    close = difflib.get_close_matches(wanted[0], plain, n=1, cutoff=0.75)
    return plain[close[0]] if close else None
