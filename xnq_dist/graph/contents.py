"""Digests of the columns of the user's tables, independent of how files are written.

A digest is the number of rows and the sum of their hashes (`digesting`), so it belongs
to a multiset of rows. It does not depend on the names and number of files, row groups,
compression, the order of rows or the width of integers. No result depends on the order
of rows either: nodes are ranked by id, edges are sorted. Values are digested as the
pipeline reads them: a CSV file and a Parquet file with the same values agree.

Reading tables takes time, so digests are cached by the sizes, times and inodes (or
ETags) of a table's files, with what was counted in the same pass. A file that changed
less than two seconds before it was read may change again with the same times, so the
digests of its table are not cached.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from xnq_dist.core.errors import DamagedError, InputError
from xnq_dist.core.sections import ColumnSettings, Missing
from xnq_dist.core.store import Folder, fingerprint
from xnq_dist.core.threads import ahead
from xnq_dist.graph.locations import state_of
from xnq_dist.graph.profile.headers import PLACE, columns_of, feature_columns
from xnq_dist.graph.tables import Batch, Table

__all__ = ["Aspects", "Digests", "Observer", "node_aspects", "read_table"]

log = logging.getLogger(__name__)

CONTENTS = "_contents.json"
FORMAT = 7
"""Raised when a digest of the same rows changes, or what is stored with it."""
RACY = 2_000_000_000
"""Nanoseconds between a change and the reading within which a digest is not cached."""
CACHED = 100
"""Number of tables in the cache, the last read ones."""

Digests = dict[str, dict[str, Any]]
"""By aspect: ``rows`` and ``digest``. Stages record them among their inputs."""


Aspects = Mapping[str, Sequence[tuple[str, str]]]
"""Columns of a table that are digested together: setting and name of each."""


class Observer(Protocol):
    """Looks at all batches of a table, and refuses values that cannot be used."""

    def add(self, batch: Batch) -> object:
        """Look at a batch, which has the columns of all aspects."""

    def facts(self) -> dict[str, Any]:
        """What was counted, as JSON values."""


def node_aspects(table: Table, columns: ColumnSettings, place: str) -> Aspects:
    """The digested columns of a node table.

    Parameters
    ----------
    columns
        After `chosen_columns`.
    place
        Column of communities; empty: there is none.
    """
    node, features = ("columns.node_id", columns.node_id), feature_columns(columns)
    aspects = {"nodes": [node], "labels": columns_of("nodes", columns, table)}
    for name in ("features", "scores"):
        chosen = [pair for pair in features if pair[0] == f"columns.{name}"]
        if chosen or name == "features":
            aspects[name] = [node, *chosen]
    if place:
        aspects["communities"] = [node, (PLACE, place)]
    return aspects


def read_table(
    folder: Folder | None,
    table: Table,
    make: Callable[[], tuple[Aspects, Observer | None]],
    about: Sequence[Any] = (),
    missing: Missing = "auto",
) -> tuple[Digests, dict[str, Any]]:
    """The digest of each aspect of a table, and its ``columns`` and other facts.

    Parameters
    ----------
    folder
        Run directory with the cache: an unchanged table is not read again.
    make
        Makes the aspects and the observer.
    about
        What these depend on besides the table.
    missing
        Labels that count as no value: `labels.missing`.

    Raises
    ------
    InputError
        For a missing column, or values that the pipeline cannot read.
    """
    copy = table.copy
    # The files may have changed since they were copied.
    began, states = (copy and copy.made) or (time.time_ns(), _states(table))
    text = table.settings.separator, table.settings.header, table.settings.decimal
    how = table.filesystem.type_name, table.files, text
    key = fingerprint(FORMAT, *how, missing, *about)
    if copy and key in copy.known:
        return copy.known[key]
    kept = {} if folder is None else _read_cache(folder)
    entry = kept.pop(key, None)
    if entry and states and entry["states"] == states:
        return entry["digests"], entry["facts"]
    aspects, observer = make()
    digests = _digests(table, aspects, observer, missing)
    facts = {} if observer is None else observer.facts()
    # The types of text columns are those of all values that were read.
    schema = table.settle(()).schemas[table.files[0]]
    facts["columns"] = {column: str(kind) for column, kind in schema.items()}
    times = [t for state in states or () for t in state[1:3] if isinstance(t, int)]
    racy = states is None or max(times) > began - RACY
    if copy:
        copy.made, copy.known[key] = (began, states), (digests, facts)
    if folder is not None and not racy and states == _states(table):
        kept[key] = {"states": states, "digests": digests, "facts": facts}
        folder.create()
        last = dict([*kept.items()][-CACHED:])
        folder.write_record(CONTENTS, {"tables": last})
    return digests, facts


def _read_cache(folder: Folder) -> dict[str, Any]:
    """The cache; empty if its file is damaged, so that tables are read again."""
    try:
        found = folder.read_record(CONTENTS) or {}
    except DamagedError as error:
        log.warning("%s: tables are read again", error)
        return {}
    tables: dict[str, Any] = found.get("tables") or {}
    return tables


def _states(table: Table) -> list[list[Any]] | None:
    """Cache validator of a table: sizes, times, inodes or ETags of its files.

    None: the file system provides none.
    """
    try:
        states: list[Any] = [state_of(table.filesystem, file) for file in table.files]
    except OSError as error:  # names the file
        raise InputError(
            f"{table.what} {table.path} cannot be read ({error}): check that it exists "
            "and that its store can be reached, and run again"
        ) from error
    return None if None in states else states


def _digests(
    table: Table, aspects: Aspects, observer: Observer | None, missing: Missing
) -> Digests:
    """The digests of a table, which is read once."""
    from xnq_dist.graph.digesting import row_hashes

    pairs = [pair for columns in aspects.values() for pair in columns]
    table.require(pairs)
    names = list(dict.fromkeys(name for _, name in pairs))
    counts, totals = dict.fromkeys(aspects, 0), dict.fromkeys(aspects, 0)
    # Features are wide, so batches have fewer rows.
    rows = 1 << 16 if "features" in aspects else 1 << 18
    for batch in ahead(table.decoded(names, rows)):
        if observer is not None:
            observer.add(batch)  # checks the values
        for name, columns in aspects.items():
            hashes = row_hashes(batch, columns, missing)
            counts[name] += len(hashes)
            totals[name] += int(hashes.sum())
    return {
        name: {"rows": counts[name], "digest": f"{totals[name] % (1 << 64):016x}"}
        for name in aspects
    }
