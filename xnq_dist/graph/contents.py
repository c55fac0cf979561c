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
    "Contents",
    "Observer",
    "answer_digests",
    "edge_aspect",
    "label_aspects",
    "member_aspects",
    "members_table",
    "node_aspects",
]

log = logging.getLogger(__name__)

CONTENTS = "_contents.json"
FORMAT = 3
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

    kind: str
    """``ids``, ``vectors`` or ``numbers`` (features), ``labels``, ``roles``,
    ``label_weights``, ``edges``, ``members`` or ``column``."""
    columns: tuple[str, ...]
    """The node id first if each row belongs to a node."""
    optional: bool = False
    """Whether the last column may be missing."""
    missing: Missing | None = None
    """For labels: `labels.missing`."""

    @property
    def key(self) -> str:
        """Key of the digest in the cache entry of a file."""
        more = [] if self.missing is None else [self.missing]
        return json.dumps([FORMAT, self.kind, *self.columns, *more])


class Observer(Protocol):
    """Looks at the batches of a table while they are digested."""

    columns: Sequence[str]
    """Columns that the batches must have, besides those that are digested."""

    def add(self, batch: Batch) -> None:
        """Look at one batch."""


def node_aspects(
    columns: ColumnSettings, missing: Missing = "auto"
) -> dict[str, Aspect]:
    """The digested columns of a node table."""
    chosen = columns.features
    if isinstance(chosen, str):
        features = Aspect("vectors", (columns.node_id, chosen))
    else:
        features = Aspect("numbers", (columns.node_id, *(chosen or ())))
    return {
        "nodes": Aspect("ids", (columns.node_id,)),
        "features": features,
        **label_aspects(columns, missing),
    }


def label_aspects(
    columns: ColumnSettings, missing: Missing = "auto"
) -> dict[str, Aspect]:
    """The digested columns of a table of labels; `missing`: `labels.missing`."""
    by_default = columns.role == ColumnSettings.model_fields["role"].default
    weights = {}
    if columns.label_weight is not None:
        named = columns.node_id, columns.label, columns.label_weight
        weights = {"label_weights": Aspect("label_weights", named, missing=missing)}
    return {
        **weights,
        "labels": Aspect("labels", (columns.node_id, columns.label), missing=missing),
        "roles": Aspect(
            "roles",
            (columns.node_id, columns.label, columns.role),
            by_default,
            missing,
        ),
    }


def edge_aspect(columns: ColumnSettings) -> Aspect:
    """The digested columns of an edge table."""
    by_default = columns.weight == ColumnSettings.model_fields["weight"].default
    weight = () if columns.weight is None else (columns.weight,)
    return Aspect("edges", (columns.src, columns.dst, *weight), by_default)


def column_aspect(columns: ColumnSettings, column: str) -> Aspect:
    """The digested columns for communities named in a column of the node table."""
    return Aspect("column", (columns.node_id, column))


def member_aspects(columns: ColumnSettings) -> dict[str, Aspect]:
    """The digested columns of a memberships table."""
    return {"memberships": Aspect("members", (columns.member, columns.community))}


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
    return contents.digests(table, member_aspects(columns))


class Contents:
    """Digests of tables, with a cache in a run directory."""

    def __init__(self, folder: Folder | None) -> None:
        self._folder = folder
        self._cache = {} if folder is None else _read_cache(folder)

    def open(self, path: str, what: str, settings: Settings) -> Table:
        """As `open_table`; files that did not change need not be read for a schema."""
        table = open_table(path, what, settings.input)
        for file in table.files:
            entry = self._cache.get(_key(table, file), {})
            if entry.get("schema") and entry["stat"] == _stat(
                replace(table, files=(file,))
            ):
                table.recall_schema(file, entry["schema"])
        return table

    def known(
        self, table: Table, aspects: Mapping[str, Aspect]
    ) -> dict[str, dict[str, Any]] | None:
        """The digests from the cache; None if a file has to be read."""
        table = self._settled(table, aspects)
        totals = dict.fromkeys(aspects, Digest())
        for file in table.files:
            digests = self._known(table, file)[1]
            for name, aspect in aspects.items():
                if aspect.key not in digests:
                    return None
                totals[name] += Digest.of(digests[aspect.key])
        return {name: digest.facts() for name, digest in totals.items()}

    def _known(self, table: Table, file: str) -> tuple[Any, dict[str, Any]]:
        """A file's validator, and its digests if the file did not change."""
        stat = _stat(replace(table, files=(file,)))
        entry = self._cache.get(_key(table, file))
        unchanged = entry is not None and stat is not None and entry["stat"] == stat
        return stat, dict(entry["digests"]) if entry and unchanged else {}

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
        totals = dict.fromkeys(aspects, Digest())
        changed = False
        for file in table.files:
            single = replace(table, files=(file,))
            stat, known = self._known(table, file)
            missing = [a for a in aspects.values() if a.key not in known]
            if missing or observer is not None:
                began = time.time_ns()
                read = {
                    aspect.key: digest.facts()
                    for aspect, digest in zip(
                        missing, _digests(single, missing, observer), strict=True
                    )
                }
                known = {**known, **read}
                after = _stat(single)
                if stat is not None and stat == after and not _racy(stat, began):
                    entry = {"stat": stat, "digests": known, "used": began}
                    entry["kinds"] = single.kinds(file)
                    entry["schema"] = single.schema_of(file)
                    self._cache[_key(table, file)] = entry
                    changed = True
            for name, aspect in aspects.items():
                totals[name] += Digest.of(known[aspect.key])
        if changed and self._folder is not None:
            self._write_cache(self._folder)
        return {name: digest.facts() for name, digest in totals.items()}

    def _settled(
        self,
        table: Table,
        aspects: Mapping[str, Aspect],
        observer: Observer | None = None,
    ) -> Table:
        """The table with the types of all values; text files may be read for them."""
        for file in table.files:
            entry = self._cache.get(_key(table, file), {})
            single = replace(table, files=(file,))
            if entry.get("kinds") and entry["stat"] == _stat(single):
                table.recall(file, entry["kinds"])
        names = {name for a in aspects.values() for name in a.columns}
        return table.settle({*names, *(observer.columns if observer else ())})

    def _write_cache(self, folder: Folder) -> None:
        folder.create()
        newest = sorted(self._cache.items(), key=lambda item: -item[1]["used"])
        entries = dict(newest[:CACHED])
        folder.write_record(CONTENTS, {"files": entries})


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


def _stat(table: Table) -> list[Any] | None:
    """Cache validator of a table's only file: size, times, inode or ETag.

    None: the file system provides none.
    """
    (file,) = table.files
    try:
        return state_of(table.filesystem, file)
    except OSError as error:
        raise InputError(
            f"{table.what} {file} cannot be read ({error.strerror or error}): check "
            "that it exists and that its store can be reached, and run again"
        ) from error


def _racy(stat: Sequence[Any], began: int) -> bool:
    """Whether a file changed so recently that its times may miss another change."""
    times = [value for value in stat[1:3] if isinstance(value, int)]
    return max(times) > began - RACY


def _digests(
    table: Table, aspects: Sequence[Aspect], observer: Observer | None = None
) -> list[Digest]:
    """The digests of a table's only file, which is read once."""
    there = table.schemas[table.files[0]]
    present: list[tuple[str, ...] | None] = []
    for aspect in aspects:
        columns: tuple[str, ...] = aspect.columns
        if aspect.optional and columns[-1] not in there:
            columns = columns[:-1]
            if aspect.kind == "roles":
                present.append(None)
                continue
        for column in columns:
            if column not in there:
                table.require({_setting(aspect, column): column})
        present.append(columns)
    from xnq_dist.graph.digesting import batch_total, check_types

    for aspect in aspects:
        check_types(table, aspect.kind, aspect.columns)
    names = [column for columns in present for column in columns or ()]
    names += observer.columns if observer is not None else ()
    totals = [Digest() for _ in aspects]
    # Features are wide, so batches have fewer rows.
    for batch in ahead(table.batches(list(dict.fromkeys(names)), 1 << 16)):
        for at, (aspect, used) in enumerate(zip(aspects, present, strict=True)):
            if used is not None:
                total = batch_total(batch, aspect.kind, used, aspect.missing or ())
                totals[at] += Digest(*total)
        if observer is not None:
            observer.add(batch)
    return totals


_NODE = "columns.node_id"
_SETTINGS: dict[str, Sequence[str]] = {
    "labels": [_NODE, "columns.label"],
    "roles": [_NODE, "columns.label", "columns.role"],
    "label_weights": [_NODE, "columns.label", "columns.label_weight"],
    "edges": ["columns.src", "columns.dst", "columns.weight"],
    "members": ["columns.member", "columns.community"],
    "column": [_NODE, "communities = column:NAME"],
}
"""Settings that name the columns of each kind; other kinds: the id, then features."""


def _setting(aspect: Aspect, column: str) -> str:
    """The setting that names a column, for messages."""
    settings = _SETTINGS.get(aspect.kind, [_NODE])
    at = aspect.columns.index(column)
    return settings[at] if at < len(settings) else "columns.features"
