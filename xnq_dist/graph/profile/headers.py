"""Checks the columns of all tables before any is read; one message for all faults."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence

from xnq_dist.core.errors import InfrastructureError, InputError
from xnq_dist.core.inputs import choose_source
from xnq_dist.core.settings import TITLES, ColumnSettings, Settings
from xnq_dist.graph.tables import Sources, Table, open_table

__all__ = ["check_headers", "require_columns", "required_columns"]

COLUMNS = {
    "nodes": ("node_id", "label"),
    "edges": ("src", "dst"),
    "memberships": ("community", "member"),
    "labels": ("node_id", "label"),
}
"""Settings of the columns that each table must have."""
TABLES = ("nodes", "edges", "memberships")
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
    kinds = TABLES if source == "given" else TABLES[:2]
    faults = []
    if named.features == []:
        faults.append(
            "columns.features names no column: set it to null to use the graph alone"
        )
    for what in kinds:
        try:
            path = str(getattr(sources, what))
            table = open_table(path, TITLES[what], settings.input)
            faults += missing_columns(table, what, named)
        except InputError as error:
            faults.append(str(error))
            if UNREACHABLE in faults[-1]:
                raise InfrastructureError(
                    f"{error}: correct the address, or run again when the store answers"
                ) from error
    if faults:
        raise InputError("; and ".join(faults))


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


def missing_columns(table: Table, what: str, named: ColumnSettings) -> list[str]:
    """A message about the first file that lacks columns; empty if none does."""
    required = required_columns(what, named)
    for file, types in table.schemas.items():
        there = list(types)
        missing = {key: name for key, name in required.items() if name not in there}
        if missing:
            shown = table.path if len(table.files) == 1 else file
            names = " or ".join(map(repr, missing.values()))
            has = f"{shown} has no column {names} ({_has(there)})"
            if other := _other(what, there, named):
                return [
                    f"{has} and looks like the {TITLES[other]}: the paths of the "
                    f"{TITLES[what]} and the {TITLES[other]} may be exchanged, else "
                    f"set {_settings(missing)}"
                ]
            meant = _names_of(required, there)
            flags = [f"--set columns.{k}={meant[k]}" for k in missing if k in meant]
            lost = _settings(key for key in missing if key not in meant)
            advice = [f"set {lost}"] if lost else []
            advice += [f"try {' '.join(flags)}"] if flags else []
            if "features" in lost:
                advice.append("or columns.features=null to use the graph alone")
            return [f"{has}: {', '.join(advice)}"]
    return []


def _other(what: str, there: Sequence[str], named: ColumnSettings) -> str | None:
    """The other table that this one is by its columns; None: none, or its own."""

    def fits(kind: str) -> bool:
        columns = {key: str(getattr(named, key)) for key in COLUMNS[kind]}
        return len(_names_of(columns, there)) == len(columns)

    others = (kind for kind in TABLES if kind != what and fits(kind))
    return None if fits(what) else next(others, None)


def _settings(keys: Iterable[str]) -> str:
    """The settings of columns, each once: a list's columns cannot be set alone."""
    each = [f"columns.{key.partition('[')[0]}" for key in keys]
    return " and ".join(dict.fromkeys(each))


def _has(there: Sequence[str]) -> str:
    """The columns of a file, for messages."""
    more = [f"and {len(there) - SHOWN:,} more"] if len(there) > SHOWN else []
    return f"it has {', '.join([*there[:SHOWN], *more]) or 'none'}"


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
