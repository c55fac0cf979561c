"""Digests of the columns of the user's tables, independent of how files are written.

A digest is the number of rows and the sum of their hashes (`digesting`), so it belongs
to a multiset of rows. It does not depend on the names and number of files, row groups,
compression, the order of rows or the width of integers. No result depends on the order
of rows either: nodes are ranked by id, edges are sorted. Values are digested as the
pipeline reads them: a CSV file and a Parquet file with the same values agree.

Reading tables takes time, so digests are cached by the file's size, times and inode (or
ETag). A file that changed less than two seconds before it was read may change again
with the same times, so its digest is not cached.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from xnq_dist.core.errors import DamagedError, InputError
from xnq_dist.core.settings import ColumnSettings, Missing, Settings
from xnq_dist.core.store import Folder, fingerprint
from xnq_dist.graph.ahead import ahead
from xnq_dist.graph.locations import state_of
from xnq_dist.graph.tables import Batch, Sources, Table, open_table

__all__ = [
    "Aspect",
    "Contents",
    "Observer",
    "answer_digests",
    "column_aspect",
    "edge_aspect",
    "label_aspect",
    "member_aspect",
    "members_table",
    "node_aspects",
]

log = logging.getLogger(__name__)

CONTENTS = "_contents.json"
FORMAT = 4
"""Raised when a digest of the same rows changes, or what is stored with it."""
MODULUS = 1 << 128
RACY = 2_000_000_000
"""Nanoseconds between a change and the reading within which a digest is not cached."""
CACHED = 1000
"""Number of files in the cache, the last used ones."""


@dataclass(frozen=True)
class Digest:
    """Digest of a multiset of rows."""

    rows: int = 0
    total: int = 0
    """Sum of the rows' hashes modulo 2^128."""
    encoded: bool = False
    """Whether features are more than complete numbers (`graph.encoding`)."""

    def __add__(self, other: Digest) -> Digest:
        total = (self.total + other.total) % MODULUS
        encoded = self.encoded or other.encoded
        return Digest(self.rows + other.rows, total, encoded)

    def facts(self) -> dict[str, Any]:
        """The digest as stages record it among their inputs."""
        facts: dict[str, Any] = {"rows": self.rows, "digest": f"{self.total:032x}"}
        return facts | ({"encoded": True} if self.encoded else {})

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> Digest:
        """The digest from its `facts`."""
        total = int(facts["digest"], 16)
        return cls(int(facts["rows"]), total, bool(facts.get("encoded")))


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
        """Key of the digest in the cache entry of a file."""
        return json.dumps([FORMAT, self.columns, self.known, self.missing])


class Observer(Protocol):
    """Looks at the batches of a table while they are digested."""

    columns: Sequence[str]
    """Columns that the batches must have, besides those that are digested."""

    def add(self, batch: Batch) -> None:
        """Look at one batch."""


def node_aspects(
    table: Table, columns: ColumnSettings, missing: Missing = "auto"
) -> dict[str, Aspect]:
    """The digested columns of a node table; `missing`: `labels.missing`."""
    chosen = columns.features
    names = [chosen] if isinstance(chosen, str) else chosen or []
    features = (("columns.features", name) for name in names)
    node = ("columns.node_id", columns.node_id)
    return {
        "nodes": Aspect((node,)),
        "features": Aspect((node, *features)),
        "labels": label_aspect(table, columns, missing),
    }


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


def member_aspect(columns: ColumnSettings) -> Aspect:
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


def members_table(table: Table, columns: ColumnSettings, id_type: str) -> Table:
    """A memberships table whose member ids are those of the nodes, of type `id_type`.

    Names of communities that are text in the first file are text in all, in files
    without types.
    """
    table = table.ids_as(id_type, columns.member)
    return table.ids_as(table.id_type(columns.community), columns.community)


def answer_digests(
    folder: Folder, sources: Sources, settings: Settings, source: str, id_type: str
) -> dict[str, dict[str, Any]]:
    """Digest of the table that estimates depend on but posteriors do not.

    Its key is ``memberships``; empty if communities are detected.

    Parameters
    ----------
    source
        ``given``, ``leiden`` or ``column:NAME``.
    id_type
        The type of the node ids, ``int64`` or ``string``.
    """
    columns, contents = settings.columns, Contents(folder)
    if source == "leiden":
        return {}
    if source != "given":
        table = contents.open(sources.nodes, "node table", settings)
        aspect = column_aspect(columns, source.removeprefix("column:"))
        return contents.digests(table, {"memberships": aspect})
    table = contents.open(str(sources.memberships), "memberships table", settings)
    table = members_table(table, columns, id_type)
    return contents.digests(table, {"memberships": member_aspect(columns)})


class Contents:
    """Digests of tables, with a cache in a run directory."""

    def __init__(self, folder: Folder | None) -> None:
        self._folder = folder
        self._cache = {} if folder is None else _read_cache(folder)
        self._changed = False

    def open(self, path: str, what: str, settings: Settings) -> Table:
        """As `open_table`; files that did not change need not be read for a schema."""
        table = open_table(path, what, settings.input)
        for file in table.files:
            if schema := self._entry(table, file).get("schema"):
                table.recall_schema(file, schema)
        return table

    def _entry(self, table: Table, file: str) -> dict[str, Any]:
        """What is known of a file; empty if it changed."""
        entry = self._cache.get(_key(table, file))
        return entry if entry and entry["stat"] == _stat(table, file) else {}

    def known(
        self, table: Table, aspects: Mapping[str, Aspect]
    ) -> dict[str, dict[str, Any]] | None:
        """The digests from the cache; None if a file has to be read."""
        table = self._settled(table, aspects)
        found = [self._entry(table, file).get("digests", {}) for file in table.files]
        if any(a.key not in each for a in aspects.values() for each in found):
            return None
        return _summed(found, aspects)

    def digests(
        self,
        table: Table,
        aspects: Mapping[str, Aspect],
        observer: Observer | None = None,
    ) -> dict[str, dict[str, Any]]:
        """The digest of each aspect of a table, as `Digest.facts`.

        Only files that changed since they were last read are read; all of them with an
        `observer`, which gets every batch.

        Raises
        ------
        InputError
            For a missing column, or values that the pipeline cannot read.
        """
        table = self._settled(table, aspects, observer)
        found = []
        for file in table.files:
            known = self._entry(table, file).get("digests", {})
            missing = [a for a in aspects.values() if a.key not in known]
            if missing or observer is not None:
                known = known | self._read(table, file, missing, observer, known)
            found.append(known)
        if self._changed and self._folder is not None:
            self._write_cache(self._folder)
        return _summed(found, aspects)

    def _read(
        self,
        table: Table,
        file: str,
        aspects: Sequence[Aspect],
        observer: Observer | None,
        known: Mapping[str, Any],
    ) -> dict[str, Any]:
        """Read a file for some digests, and remember them unless it may change."""
        began, stat = time.time_ns(), _stat(table, file)
        single = replace(table, files=(file,))
        totals = _digests(single, aspects, observer)
        pairs = zip(aspects, totals, strict=True)
        read = {aspect.key: total.facts() for aspect, total in pairs}
        if stat is not None and stat == _stat(table, file) and not _racy(stat, began):
            self._cache[_key(table, file)] = {
                "stat": stat,
                "digests": {**known, **read},
                "used": began,
                "kinds": single.kinds(file),
                "schema": single.schema_of(file),
            }
            self._changed = True
        return read

    def _settled(
        self,
        table: Table,
        aspects: Mapping[str, Aspect],
        observer: Observer | None = None,
    ) -> Table:
        """The table with the types of all values; text files may be read for them."""
        for file in table.files:
            if kinds := self._entry(table, file).get("kinds"):
                table.recall(file, kinds)
        names = {name for aspect in aspects.values() for name in aspect.names}
        return table.settle({*names, *(observer.columns if observer else ())})

    def _write_cache(self, folder: Folder) -> None:
        folder.create()
        newest = sorted(self._cache.items(), key=lambda item: -item[1]["used"])
        entries = dict(newest[:CACHED])
        folder.write_record(CONTENTS, {"files": entries})
        self._changed = False


def _read_cache(folder: Folder) -> dict[str, Any]:
    """The cache; empty if its file is damaged, so that tables are read again."""
    try:
        found = folder.read_record(CONTENTS) or {}
    except DamagedError as error:
        log.warning("%s: tables are read again", error)
        return {}
    files: dict[str, Any] = found.get("files") or {}
    return files


def _key(table: Table, file: str) -> str:
    """Key of a file's entry: how it is read is a part of it."""
    return fingerprint(table.filesystem.type_name, file, *table.marks(file))


def _stat(table: Table, file: str) -> list[Any] | None:
    """Cache validator of a file: size, times, inode or ETag.

    None: the file system provides none.
    """
    try:
        return state_of(table.filesystem, file)
    except OSError as error:
        raise InputError(
            f"{table.what} {file} cannot be read ({error.strerror or error}): check "
            "that it exists and that its store can be reached, and run again"
        ) from error


def _summed(
    found: Sequence[Mapping[str, Any]], aspects: Mapping[str, Aspect]
) -> dict[str, dict[str, Any]]:
    """Digests of a table from those of its files, by the keys of aspects."""
    return {
        name: sum((Digest.of(each[aspect.key]) for each in found), Digest()).facts()
        for name, aspect in aspects.items()
    }


def _racy(stat: Sequence[Any], began: int) -> bool:
    """Whether a file changed so recently that its times may miss another change."""
    times = [value for value in stat[1:3] if isinstance(value, int)]
    return max(times) > began - RACY


def _digests(
    table: Table, aspects: Sequence[Aspect], observer: Observer | None = None
) -> list[Digest]:
    """The digests of a table's only file, which is read once."""
    for aspect in aspects:
        table.require(dict(aspect.columns))
    from xnq_dist.graph.digesting import batch_total

    names = [name for aspect in aspects for name in aspect.names]
    names += observer.columns if observer is not None else ()
    totals = [Digest() for _ in aspects]
    # Features are wide, so batches have fewer rows.
    for batch in ahead(table.batches(list(dict.fromkeys(names)), 1 << 16)):
        if observer is not None:
            observer.add(batch)  # checks the values
        for at, aspect in enumerate(aspects):
            read = aspect.columns, aspect.known, aspect.missing
            totals[at] += Digest(*batch_total(batch, *read))
    return totals
