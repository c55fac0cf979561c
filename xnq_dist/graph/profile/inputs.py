"""The profile of a run's tables, from the pass over them that takes their digests.

The profile of each table is kept in the run directory with the digests of the tables
that it depends on, so unchanged tables are not profiled again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from xnq_dist.core.errors import DamagedError, InputError
from xnq_dist.core.inputs import choose_source
from xnq_dist.core.settings import Settings
from xnq_dist.core.store import Folder, fingerprint
from xnq_dist.graph.contents import (
    Aspect,
    Contents,
    column_aspect,
    edge_aspect,
    label_aspect,
    member_aspect,
    members_table,
    node_aspects,
)
from xnq_dist.graph.feature_types import chosen_columns, index_columns
from xnq_dist.graph.profile.columns import TableProfile
from xnq_dist.graph.tables import Sources, Table, ids_of
from xnq_dist.graph.values import of_one_type

if TYPE_CHECKING:
    from xnq_dist.graph.ids import NodeIds
    from xnq_dist.graph.profile.findings import Finding
    from xnq_dist.graph.profile.matching import TableObserver

__all__ = [
    "PROFILE",
    "InputProfile",
    "check_findings",
    "profile_again",
    "profile_inputs",
    "read_contents",
]

log = logging.getLogger(__name__)

PROFILE = "_profile.json"
FORMAT = 3
"""Raised when the profile of the same tables changes."""

Digests = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class InputProfile:
    """What the tables of a run hold, and what looks wrong in them."""

    nodes: TableProfile
    edges: TableProfile
    memberships: TableProfile | None
    classes: tuple[tuple[Any, int], ...]
    """Classes and their labelled nodes."""
    findings: tuple[Finding, ...]

    def to_dict(self) -> dict[str, Any]:
        """The profile as JSON values."""
        return asdict(self)


def read_contents(
    folder: Folder, sources: Sources, settings: Settings
) -> dict[str, dict[str, Any]]:
    """Digests of the node and edge tables, cached in `folder`.

    Tables that must be read are profiled at the same time.

    Raises
    ------
    InputError
        When a table is missing or cannot be read.
    """
    reader = _Reader(sources, settings, folder)
    found = {**reader.nodes(needed=False), **reader.edges(needed=False)}
    reader.write()
    return found


def profile_inputs(
    sources: Sources,
    settings: Settings,
    folder: Folder | None = None,
    every: bool = False,
) -> InputProfile:
    """Profile the tables of a run.

    Parameters
    ----------
    folder
        Run directory that keeps the profile; None: every table is read.
    every
        Whether columns are profiled that the run does not use.

    Raises
    ------
    InputError
        When tables cannot be read; the message has the first fault of each table.
    """
    # Imported late: a run in which nothing changed needs no compiled code.
    from xnq_dist.graph.profile.findings import Finding, Seen, findings

    reader = _Reader(sources, settings, folder, every)
    steps = [reader.nodes, reader.edges]
    if choose_source(sources.memberships, settings) == "given":
        steps.append(reader.memberships)
    faults: list[str] = []
    for step in steps:
        try:
            step(needed=True)
        except InputError as error:
            faults.append(str(error))
            if step == reader.nodes:
                break
    if "nodes" not in reader.tables:
        raise InputError(faults[0])
    seen = Seen(settings, **reader.tables)
    found = findings(seen)
    found += tuple(Finding("table", "refusal", "", fault) for fault in faults)
    if faults:
        raise InputError(refusal(found))
    profile = InputProfile(
        seen.nodes, reader.tables["edges"], seen.memberships, seen.classes, found
    )
    classes, shown = asdict(profile)["classes"], asdict(profile)["findings"]
    reader.write(classes=classes, findings=shown)
    # The plan reads the free memory: return that of the node ids.
    del reader
    pa.default_memory_pool().release_unused()
    return profile


def profile_again(
    settings: Settings,
    folder: Folder,
    nodes: tuple[NodeIds, dict[str, Any]],
    labels: str | None,
    memberships: str | None,
) -> tuple[tuple[Finding, ...], list[Any]]:
    """Findings in new labels or memberships of an existing graph, and new classes.

    Parameters
    ----------
    nodes
        The ids of the graph's nodes, and their digest.
    labels, memberships
        Locations of the tables; None: there is no new one.
    """
    from xnq_dist.graph.profile.findings import Seen, findings

    reader = _Reader(Sources("", "", memberships), settings, folder, nodes=nodes)
    if labels is not None:
        reader.labels(labels)
    if memberships is not None:
        reader.memberships(needed=True)
    nothing = TableProfile("node table", "", 0, (), {})
    labelled = reader.tables.pop("labels", nothing)
    seen = Seen(settings, labelled, **reader.tables)
    reader.write()
    return findings(seen), [value for value, _ in seen.classes]


def check_findings(found: tuple[Finding, ...]) -> None:
    """Log warnings and notes; raise one `InputError` with all refusals."""
    for each in found:
        if each.level != "refusal":
            write = log.warning if each.level == "warning" else log.info
            write("%s (%s)", each.text, each.code)
    if text := refusal(found):
        raise InputError(text)


def refusal(found: tuple[Finding, ...]) -> str:
    """The sentence with all refusals; empty if there are none."""
    texts = [each.text for each in found if each.level == "refusal"]
    if len(texts) < 2:
        return "".join(texts)
    numbered = "; ".join(f"({at}) {text}" for at, text in enumerate(texts, 1))
    return f"the tables cannot be used for {len(texts)} reasons: {numbered}"


class _Reader:
    """Reads each table at most once, for its digests and its profile."""

    def __init__(
        self,
        sources: Sources,
        settings: Settings,
        folder: Folder | None,
        every: bool = False,
        nodes: tuple[NodeIds | None, dict[str, Any]] = (None, {}),
    ) -> None:
        self._sources, self._settings, self._every = sources, settings, every
        self._contents, self._folder = Contents(folder), folder
        self._record = _read(folder)
        self._keys: dict[str, str] = self._record.get("keys", {})
        self._changed = False
        self.tables: dict[str, TableProfile] = {}
        self._ids, self._node_digest = nodes

    def nodes(self, needed: bool) -> Digests:
        """Digests of the node table; `needed`: whether its profile is, too."""
        columns, settings = self._settings.columns, self._settings
        table = self._contents.open(self._sources.nodes, "node table", self._settings)
        chosen = chosen_columns(table, settings)
        aspects = node_aspects(table, chosen, settings.labels.missing)
        place = settings.communities.removeprefix("column:")
        if needed and place != settings.communities:
            aspects["communities"] = column_aspect(columns, place)
        features = aspects["features"].names[1:]
        role = columns.role if table.has(columns.role) else None
        used = [columns.label, role, columns.label_weight, place]

        def observer() -> TableObserver:
            from xnq_dist.graph.features import FeatureColumns
            from xnq_dist.graph.profile.matching import NodeObserver

            watched = self._columns(table, [*used, *features])
            made = NodeObserver(watched, settings, features, role)
            # Types that cannot be features are refused before values are read.
            FeatureColumns(table.settle(made.columns), chosen.features)
            return made

        def finish(made: Any) -> None:
            self._ids = made.ids(table.path)

        read = self._read("nodes", table, aspects, observer, needed, finish)
        self._node_digest = read["nodes"]
        return {name: read[name] for name in read if name != "communities"}

    def labels(self, path: str) -> None:
        """Profile a table of labels, in place of the node table."""
        columns, settings = self._settings.columns, self._settings
        table = self._contents.open(path, "table of labels", settings)
        table = table.ids_as(self._id_type(), columns.node_id)
        aspect = label_aspect(table, columns, settings.labels.missing)
        role = columns.role if table.has(columns.role) else None
        chosen = self._columns(table, [columns.label, role])

        def observer() -> TableObserver:
            from xnq_dist.graph.profile.matching import NodeObserver

            return NodeObserver(chosen, settings, (), role)

        self._read("labels", table, {"labels": aspect}, observer, needed=True)

    def edges(self, needed: bool) -> Digests:
        """Digests of the edge table; its profile if `needed`."""
        columns = self._settings.columns
        table = self._contents.open(self._sources.edges, "edge table", self._settings)
        table = table.ids_as(self._id_type(), columns.src, columns.dst)
        aspects = {"edges": edge_aspect(table, columns)}
        there = table.schemas[table.files[0]]
        alike = [name for name in there if name.strip().lower() == "weight"]
        return self._match("edges", table, aspects, [columns.weight, *alike], needed)

    def memberships(self, needed: bool) -> Digests:
        """Digests of the memberships table; its profile if `needed`."""
        columns, path = self._settings.columns, str(self._sources.memberships)
        table = self._contents.open(path, "memberships table", self._settings)
        table = members_table(table, columns, self._id_type())
        aspects = {"memberships": member_aspect(columns)}
        return self._match("memberships", table, aspects, [columns.community], needed)

    def _match(
        self,
        name: str,
        table: Table,
        aspects: Mapping[str, Aspect],
        used: list[Any],
        needed: bool,
    ) -> Digests:
        """Read a table whose ids are matched with the nodes."""

        def observer() -> TableObserver:
            from xnq_dist.graph.profile import matching

            edges = name == "edges"
            kind = matching.EdgeObserver if edges else matching.MemberObserver
            return kind(self._columns(table, used), self._settings, self._node_ids())

        return self._read(name, table, aspects, observer, needed)

    def _columns(self, table: Table, used: list[Any]) -> list[str]:
        """The profiled columns: those in use that exist, or all of them."""
        there = list(table.schemas[table.files[0]])
        shared = [c for c in there if all(c in s for s in table.schemas.values())]
        return [c for c in shared if self._every or c in used]

    def _id_type(self) -> str:
        """``string`` or ``int64``: the type of the node ids."""
        if self._ids is not None:
            return self._ids.type
        table = self._contents.open(self._sources.nodes, "node table", self._settings)
        return table.id_type(self._settings.columns.node_id)

    def _node_ids(self) -> NodeIds:
        """The ids of the nodes, read again if their table was not read here."""
        if self._ids is None:
            from xnq_dist.graph.ids import NodeIds

            name = self._settings.columns.node_id
            path = self._sources.nodes
            table = self._contents.open(path, "node table", self._settings)
            parts = [ids_of(batch, name) for batch in table.batches([name])]
            self._ids = NodeIds.from_column(of_one_type(parts), table.path)[0]
        return self._ids

    def _read(
        self,
        name: str,
        table: Table,
        aspects: Mapping[str, Aspect],
        observer: Callable[[], TableObserver],
        needed: bool,
        finish: Callable[[TableObserver], None] = lambda made: None,
    ) -> Digests:
        known = self._contents.known(table, aspects)
        if known is not None:
            current = self._keys.get(name) == self._key(name, known)
            if current and self._record.get(name):
                self.tables[name] = TableProfile.of(self._record[name])
                return known
            if not needed:
                return known
        made = observer()
        digests = self._contents.digests(table, aspects, made)
        if not made.rows:
            raise InputError(
                f"{table.what} {table.path} has no rows: check that it is the right "
                "file"
            )
        finish(made)
        profile = made.finish(table)
        names = list(table.schemas[table.files[0]])
        more = {"names": names, "indexes": index_columns(table)}
        profile = replace(profile, facts=profile.facts | more)
        self.tables[name] = profile
        self._keys[name] = self._key(name, digests)
        self._changed = True
        return digests

    def _key(self, name: str, digests: Digests) -> str:
        """What the profile of a table depends on."""
        nodes = {} if name == "nodes" else self._node_digest
        named = self._settings.columns.model_dump()
        missing = self._settings.labels.missing
        return fingerprint(FORMAT, name, digests, nodes, named, missing, self._every)

    def write(self, **more: Any) -> None:
        """Keep what was profiled here in the run directory."""
        if self._folder is None or not (self._changed or more):
            return
        self._folder.create()
        tables = {name: asdict(table) for name, table in self.tables.items()}
        values = {**self._record, **tables, **more, "keys": self._keys}
        self._folder.write_record(PROFILE, values)


def _read(folder: Folder | None) -> dict[str, Any]:
    try:
        return (folder.read_record(PROFILE) if folder is not None else None) or {}
    except DamagedError as error:
        log.warning("%s: tables are profiled again", error)
        return {}
