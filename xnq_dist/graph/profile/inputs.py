"""The profile of a run's tables, from the pass over them that takes their digests.

The profile of each table is kept with its digests (`graph.contents`), so unchanged
tables are not profiled again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from xnq_dist.core.errors import InputError
from xnq_dist.core.inputs import choose_source
from xnq_dist.core.settings import TITLES, ColumnSettings, Settings
from xnq_dist.core.store import Folder
from xnq_dist.graph.contents import (
    Aspect,
    Contents,
    Digests,
    Made,
    column_aspect,
    edge_aspect,
    label_aspect,
    member_aspect,
    node_aspects,
)
from xnq_dist.graph.feature_types import chosen_columns
from xnq_dist.graph.profile.columns import TableProfile
from xnq_dist.graph.tables import Sources, Table, ids_of, open_table
from xnq_dist.graph.values import of_one_type

if TYPE_CHECKING:
    from xnq_dist.graph.ids import NodeIds
    from xnq_dist.graph.profile.findings import Finding
    from xnq_dist.graph.profile.matching import NodeObserver

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
FORMAT = 5
"""Raised when the profile of the same tables changes."""


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
    return {**reader.nodes(), **reader.edges()}


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
            step()
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
    if folder is not None:
        folder.create()
        folder.write_record(PROFILE, profile.to_dict())
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
        reader.memberships()
    nothing = TableProfile("node table", "", 0, (), {})
    labelled = reader.tables.pop("labels", nothing)
    seen = Seen(settings, labelled, **reader.tables)
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
        self._contents = Contents(folder)
        self.tables: dict[str, TableProfile] = {}
        self._ids, self._node_digest = nodes

    def nodes(self) -> Digests:
        """Read the node table; return its digests."""
        settings, table = self._settings, self._open("nodes")
        read: list[NodeObserver] = []

        def make() -> Made:
            from xnq_dist.graph.features import FeatureColumns, score_columns

            chosen = chosen_columns(table, settings)
            aspects = node_aspects(table, chosen, settings.labels.missing)
            place = settings.communities.removeprefix("column:")
            if place != settings.communities:
                aspects["communities"] = column_aspect(settings.columns, place)
            features = [*aspects["features"].names[1:], *chosen.scores]
            read.append(self._of_labels(table, features, place))
            # Types that cannot be features are refused before values are read.
            settled = table.settle(read[0].columns)
            FeatureColumns(settled, chosen.features)
            if chosen.scores:
                score_columns(settled, chosen.scores)
            return aspects, read[0]

        digests = self._read("nodes", table, make)
        for observer in read:
            self._ids = observer.ids(table.path)
        self._node_digest = digests["nodes"]
        return {name: digests[name] for name in digests if name != "communities"}

    def labels(self, path: str) -> None:
        """Profile a table of labels, in place of the node table."""
        settings = self._settings
        table = open_table(path, TITLES["labels"], settings.input)

        def make() -> Made:
            aspect = label_aspect(table, settings.columns, settings.labels.missing)
            return {"labels": aspect}, self._of_labels(table)

        self._read("labels", table, make)

    def _of_labels(
        self, table: Table, features: Sequence[str] = (), *more: str
    ) -> NodeObserver:
        from xnq_dist.graph.profile.matching import NodeObserver

        columns = self._settings.columns
        role = columns.role if table.has(columns.role) else None
        used = [columns.label, role, columns.label_weight, *more, *features]
        watched = self._columns(table, used)
        return NodeObserver(watched, self._settings, features, role)

    def edges(self) -> Digests:
        """Read the edge table; return its digest."""
        columns = self._settings.columns
        ends = [columns.src, columns.dst]
        return self._match("edges", edge_aspect, ends, columns.weight)

    def memberships(self) -> Digests:
        """Read the memberships table; return its digest."""
        columns = self._settings.columns
        ids, used = [columns.member], columns.community
        return self._match("memberships", member_aspect, ids, used)

    def _match(
        self,
        name: str,
        aspect_of: Callable[[Table, ColumnSettings], Aspect],
        ids: list[str],
        used: str | None,
    ) -> Digests:
        table, columns = self._open(name), self._settings.columns

        def make() -> Made:
            from xnq_dist.graph.profile.matching import MatchObserver

            watched, nodes = self._columns(table, [used]), self._node_ids()
            observer = MatchObserver(watched, ids, columns, nodes)
            return {name: aspect_of(table, columns)}, observer

        return self._read(name, table, make)

    def _open(self, name: str) -> Table:
        path = str(getattr(self._sources, name))
        return open_table(path, TITLES[name], self._settings.input)

    def _columns(self, table: Table, used: list[Any]) -> list[str]:
        """The profiled columns: those in use that exist, or all of them."""
        first, *others = table.schemas.values()
        shared = [name for name in first if all(name in each for each in others)]
        return [name for name in shared if self._every or name in used]

    def _node_ids(self) -> NodeIds:
        """The ids of the nodes, read again if their table was not read here."""
        if self._ids is None:
            from xnq_dist.graph.ids import NodeIds

            name, table = self._settings.columns.node_id, self._open("nodes")
            parts = [ids_of(batch, name) for batch in table.batches([name])]
            self._ids = NodeIds.from_column(of_one_type(parts), table.path)[0]
        return self._ids

    def _read(self, name: str, table: Table, make: Callable[[], Made]) -> Digests:
        """Profile a table unless nothing changed; return its digests."""
        settings = self._settings
        named, missing = settings.columns.model_dump(), settings.labels.missing
        used = self._node_digest, named, missing, settings.communities, self._every
        about = name, FORMAT, *used
        digests, profile = self._contents.read(table, make, about)
        if not profile["rows"]:
            raise InputError(
                f"{table.what} {table.path} has no rows: check that it is the right "
                "file"
            )
        self.tables[name] = TableProfile.of(profile)
        return digests
