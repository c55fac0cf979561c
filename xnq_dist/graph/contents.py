"""Digests of the columns of the user's tables, independent of how files are written.

A digest is the number of rows and the sum of their hashes (`digesting`), so it belongs
to a multiset of rows. It does not depend on the names and number of files, row groups,
compression, the order of rows or the width of integers. No result depends on the order
of rows either: nodes are ranked by id, edges are sorted. Values are digested as the
pipeline reads them: a CSV file and a Parquet file with the same values agree.

Reading tables takes time, so digests are cached by the sizes, times and inodes (or
ETags) of a table's files. A file that changed less than two seconds before it was read
may change again with the same times, so the digests of its table are not cached.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from xnq_dist.core.errors import DamagedError, InputError
from xnq_dist.core.settings import ColumnSettings, Missing, Settings
from xnq_dist.core.store import Folder, fingerprint
from xnq_dist.graph.ahead import ahead
from xnq_dist.graph.locations import state_of
from xnq_dist.graph.tables import Sources, Table, open_table

if TYPE_CHECKING:
    from xnq_dist.graph.profile.matching import TableObserver

__all__ = [
    "Aspect",
    "Contents",
    "answer_digests",
    "column_aspect",
    "edge_aspect",
    "label_aspect",
    "member_aspect",
    "node_aspects",
]

log = logging.getLogger(__name__)

CONTENTS = "_contents.json"
FORMAT = 6
"""Raised when a digest of the same rows changes, or what is stored with it."""
RACY = 2_000_000_000
"""Nanoseconds between a change and the reading within which a digest is not cached."""
CACHED = 100
"""Number of tables in the cache, the last read ones."""

Digests = dict[str, dict[str, Any]]
"""By aspect: ``rows``, ``digest``, and ``encoded`` if features are more than complete
numbers (`graph.encoding`). Stages record them among their inputs."""


@dataclass(frozen=True)
class Aspect:
    """Columns of a table that are digested together."""

    columns: tuple[tuple[str, str], ...]
    """Setting and name of each column."""
    known: str | None = None
    """Column without whose value a row does not count; None: all rows count."""
    missing: Missing = ()
    """Labels that count as no value: `labels.missing`."""

    @property
    def names(self) -> list[str]:
        """Names of the columns."""
        return [name for _, name in self.columns]

    @property
    def key(self) -> str:
        """Key of the digest in the cache entry of a table."""
        return fingerprint(FORMAT, self.columns, self.known, self.missing)


def node_aspects(
    table: Table, columns: ColumnSettings, missing: Missing = "auto"
) -> dict[str, Aspect]:
    """The digested columns of a node table; `missing`: `labels.missing`."""
    chosen = columns.features
    names = [chosen] if isinstance(chosen, str) else chosen or []
    features = (("columns.features", name) for name in names)
    node = ("columns.node_id", columns.node_id)
    aspects = {
        "nodes": Aspect((node,)),
        "features": Aspect((node, *features)),
        "labels": label_aspect(table, columns, missing),
    }
    if columns.scores:
        scores = (("columns.scores", name) for name in columns.scores)
        aspects["scores"] = Aspect((node, *scores))
    return aspects


def label_aspect(
    table: Table, columns: ColumnSettings, missing: Missing = "auto"
) -> Aspect:
    """The digested columns of a table of labels; `missing`: `labels.missing`."""
    keys = ["node_id", "label", *_used(table, columns, "role", "label_weight")]
    return Aspect(_named(columns, *keys), columns.label, missing)


def edge_aspect(table: Table, columns: ColumnSettings) -> Aspect:
    """The digested columns of an edge table."""
    keys = ["src", "dst", *_used(table, columns, "weight")]
    return Aspect(_named(columns, *keys))


def member_aspect(table: Table, columns: ColumnSettings) -> Aspect:
    """The digested columns of a memberships table."""
    return Aspect(_named(columns, "member", "community"))


def column_aspect(columns: ColumnSettings, column: str) -> Aspect:
    """The digested columns for communities named in a column of the node table."""
    named = ("communities = column:NAME", column)
    return Aspect((*_named(columns, "node_id"), named), column)


def _named(columns: ColumnSettings, *keys: str) -> tuple[tuple[str, str], ...]:
    return tuple((f"columns.{key}", str(getattr(columns, key))) for key in keys)


def _used(table: Table, columns: ColumnSettings, *keys: str) -> list[str]:
    """Optional columns that the table has, or that a setting names."""
    fields = ColumnSettings.model_fields
    named = {key: getattr(columns, key) for key in keys}
    return [
        key
        for key, name in named.items()
        if name is not None and (name != fields[key].default or table.has(name))
    ]


def answer_digests(
    folder: Folder, sources: Sources, settings: Settings, source: str
) -> dict[str, dict[str, Any]]:
    """Digest of the table that estimates depend on but posteriors do not.

    Its key is ``memberships``; empty if communities are detected.

    `source` is ``given``, ``leiden`` or ``column:NAME``.
    """
    columns = settings.columns
    if source == "leiden":
        return {}
    if source == "given":
        path = str(sources.memberships)
        table = open_table(path, "memberships table", settings.input)
        aspect = member_aspect(table, columns)
    else:
        table = open_table(sources.nodes, "node table", settings.input)
        aspect = column_aspect(columns, source.removeprefix("column:"))
    return Contents(folder).read(table, lambda: ({"memberships": aspect}, None))[0]


Made = tuple[Mapping[str, Aspect], "TableObserver | None"]


class Contents:
    """Digests and profiles of tables, with a cache in a run directory."""

    def __init__(self, folder: Folder | None) -> None:
        self._folder = folder
        self._cache = {} if folder is None else _read_cache(folder)

    def read(
        self, table: Table, make: Callable[[], Made], about: Sequence[Any] = ()
    ) -> tuple[Digests, dict[str, Any]]:
        """The digest of each aspect of a table, and its profile as JSON values.

        A table that did not change since it was last read is not read again.

        Parameters
        ----------
        make
            Makes the aspects, and what looks at all batches and has the profile.
        about
            What these depend on besides the table; empty: there is no profile.

        Raises
        ------
        InputError
            For a missing column, or values that the pipeline cannot read.
        """
        began, key, states = time.time_ns(), _key(table), _states(table)
        entry: dict[str, Any] = self._cache.get(key, {})
        if states is None or entry.get("states") != states:
            entry = {"states": states, "digests": {}, "about": None}
        known, due = entry["digests"], fingerprint(*about)
        if about and entry["about"] == due:
            kept = {name: known[each] for name, each in entry["keys"].items()}
            return kept, entry["profile"]
        aspects, observer = make()
        keys = {name: aspect.key for name, aspect in aspects.items()}
        if observer is None and known.keys() >= {*keys.values()}:
            return {name: known[each] for name, each in keys.items()}, {}
        read, profile = _digests(table, aspects, observer), {}
        known |= {keys[name]: each for name, each in read.items()}
        if observer is not None:
            profile = observer.profile(table)
            entry |= {"about": due, "keys": keys, "profile": profile}
        racy = states is None or _newest(states) > began - RACY
        if self._folder and not racy and states == _states(table):
            self._cache.pop(key, None)
            self._cache[key] = entry
            last = dict([*self._cache.items()][-CACHED:])
            self._folder.create()
            self._folder.write_record(CONTENTS, {"tables": last})
        return read, profile


def _read_cache(folder: Folder) -> dict[str, Any]:
    """The cache; empty if its file is damaged, so that tables are read again."""
    try:
        found = folder.read_record(CONTENTS) or {}
    except DamagedError as error:
        log.warning("%s: tables are read again", error)
        return {}
    tables: dict[str, Any] = found.get("tables") or {}
    return tables


def _key(table: Table) -> str:
    """Key of the entry of a table and of the way it is read."""
    marks = (mark for file in table.files for mark in (file, table.marks(file)))
    return fingerprint(FORMAT, table.filesystem.type_name, *marks)


def _state(table: Table, file: str) -> list[Any] | None:
    try:
        return state_of(table.filesystem, file)
    except OSError as error:
        raise InputError(
            f"{table.what} {file} cannot be read ({error.strerror or error}): check "
            "that it exists and that its store can be reached, and run again"
        ) from error


def _states(table: Table) -> list[list[Any]] | None:
    """Cache validator of a table: sizes, times, inodes or ETags of its files.

    None: the file system provides none.
    """
    states = [_state(table, file) for file in table.files]
    known = [state for state in states if state is not None]
    return known if len(known) == len(states) else None


def _newest(states: list[list[Any]]) -> int:
    """Time of the last change of a file, in nanoseconds."""
    return max(t for state in states for t in state[1:3] if isinstance(t, int))


def _digests(
    table: Table, aspects: Mapping[str, Aspect], observer: TableObserver | None = None
) -> Digests:
    """The digests of a table, which is read once."""
    for aspect in aspects.values():
        table.require(dict(aspect.columns))
    from xnq_dist.graph.digesting import batch_total

    names = [name for aspect in aspects.values() for name in aspect.names]
    names += observer.columns if observer is not None else ()
    found = {name: [0, 0, False] for name in aspects}
    # Features are wide, so batches have fewer rows.
    for batch in ahead(table.batches(list(dict.fromkeys(names)), 1 << 16)):
        if observer is not None:
            observer.add(batch)  # checks the values
        for name, aspect in aspects.items():
            read = aspect.columns, aspect.known, aspect.missing
            pairs = zip(found[name], batch_total(batch, *read), strict=True)
            found[name] = [one + other for one, other in pairs]
    return {
        name: {"rows": rows, "digest": f"{total % (1 << 64):016x}"}
        | ({"encoded": True} if encoded else {})
        for name, (rows, total, encoded) in found.items()
    }
