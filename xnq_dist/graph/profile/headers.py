"""Checks the columns of all tables before any is read; one message for all faults."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence

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
    for what, columns in required.items():
        path = str(getattr(sources, what))
        try:
            table = open_table(path, TITLES[what], settings.input)
            fault = missing_columns(table, columns)
            other = fault and _looks_like(table, what, named)
            fault = f"{fault}; {other}" if other else fault
        except InputError as error:
            fault = str(error)
            if UNREACHABLE in fault:
                raise InfrastructureError(
                    f"{fault}: correct the address, or run again when the store answers"
                ) from error
        if fault:
            faults.append(fault)
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
    return required


def require_columns(table: Table, what: str, named: ColumnSettings) -> None:
    """Raise an `InputError` if a file of a table lacks a column, features aside."""
    columns = required_columns(what, named.model_copy(update={"features": None}))
    table.require({f"columns.{key}": name for key, name in columns.items()})


def _looks_like(table: Table, what: str, named: ColumnSettings) -> str:
    """Which other table this one is by its columns, as a message; empty: none."""
    for other in ("nodes", "edges", "memberships"):
        names = [getattr(named, key) for key in COLUMNS[other]]
        if other != what and all({*names} <= {*s} for s in table.schemas.values()):
            there = " and ".join(map(repr, names))
            return (
                f"with {there} it looks like the {TITLES[other]}, so the paths of the "
                f"{TITLES[what]} and the {TITLES[other]} may be exchanged"
            )
    return ""


def missing_columns(table: Table, columns: Mapping[str, str]) -> str:
    """The columns that a file lacks, by setting, as a message; empty if none."""
    for file, there in table.schemas.items():
        missing = {key: name for key, name in columns.items() if name not in there}
        if not missing:
            continue
        names = " and no column ".join(map(repr, missing.values()))
        free = [name for name in there if name not in columns.values()]
        meant: dict[str, str] = {}
        for key, name in missing.items():
            unused = [each for each in free if each not in meant.values()]
            if found := _meant(key, name, unused):
                meant[key] = found
        lost = [f"columns.{key}" for key in missing if key not in meant]
        advice = []
        if lost:
            advice.append(f"set {' and '.join(lost)} to the name of one of them")
        if meant:
            flags = [f"--set columns.{key}={name}" for key, name in meant.items()]
            advice.append(f"try {' '.join(flags)}")
        if "columns.features" in lost:
            advice.append("or columns.features=null to use the graph alone")
        has = ", ".join(there) or "none"
        return f"{file} has no column {names} (it has {has}): {', '.join(advice)}"
    return ""


def _meant(key: str, name: str, free: Sequence[str]) -> str | None:
    """The unused column that is probably meant."""
    plain = {re.sub(r"[\W_]", "", each).lower(): each for each in free}
    wanted = [re.sub(r"[\W_]", "", name).lower(), *ALIASES.get(key, ())]
    for each in wanted:
        if each in plain:
            return plain[each]
    close = difflib.get_close_matches(wanted[0], plain, n=1, cutoff=0.75)
    return plain[close[0]] if close else None
