"""The profile of a run's tables, from the pass over them that takes their digests.

What is counted in each table is kept with its digests (`graph.contents`), so unchanged
tables are not profiled again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from xnq_dist.core.errors import InputError
from xnq_dist.core.sections import TITLES
from xnq_dist.core.settings import Settings
from xnq_dist.core.stages import choose_source
from xnq_dist.core.store import Folder
from xnq_dist.graph.contents import (
    Aspects,
    Digests,
    Observer,
    node_aspects,
    read_table,
)
from xnq_dist.graph.feature_types import chosen_columns
from xnq_dist.graph.keys import ids_of
from xnq_dist.graph.profile.headers import PLACE, columns_of, feature_columns
from xnq_dist.graph.sources import Sources
from xnq_dist.graph.tables import Table, open_table
from xnq_dist.graph.values import of_one_type

if TYPE_CHECKING:
    from xnq_dist.graph.ids import NodeIds
    from xnq_dist.graph.profile.findings import Finding

__all__ = [
    "PROFILE",
    "InputProfile",
    "TableReader",
    "answer_digests",
    "check_findings",
    "lines",
    "profile_again",
    "profile_inputs",
    "read_contents",
]

log = logging.getLogger(__name__)

PROFILE = "_profile.json"
SHOWN = 20
"""Classes in the line of the labels."""

Made = tuple[Aspects, Observer]


@dataclass(frozen=True)
class InputProfile:
    """What the tables of a run hold, and what looks wrong in them."""

    tables: dict[str, dict[str, Any]]
    """What was counted in each table, by key of `TITLES`."""
    findings: tuple[Finding, ...]

    @property
    def classes(self) -> list[tuple[Any, int]]:
        """Classes and their labelled nodes."""
        labels = self.tables.get("labels") or self.tables["nodes"]
        return [(value, rows) for value, rows, *_ in labels["classes"]]


def read_contents(folder: Folder, sources: Sources, settings: Settings) -> Digests:
    """Digests of the node and edge tables, cached in `folder`.

    Tables that must be read are profiled at the same time.

    Raises
    ------
    InputError
        When a table is missing or cannot be read.
    """
    reader = TableReader(sources, settings, folder)
    return {**reader.nodes(), **reader.match("edges")}


def answer_digests(
    folder: Folder, sources: Sources, settings: Settings, source: str
) -> Digests:
    """Digest of the table that estimates depend on but posteriors do not.

    Its key is ``memberships``; empty if communities are detected.

    `source` is ``given``, ``leiden`` or ``column:NAME``.
    """
    if source == "leiden":
        return {}
    columns = settings.columns
    if source == "given":
        table = sources.table("memberships", settings.input)
        aspect = columns_of("memberships", columns, table)
    else:
        table = sources.table("nodes", settings.input)
        place = source.removeprefix("column:")
        aspect = [("columns.node_id", columns.node_id), (PLACE, place)]
    about = source, aspect
    return read_table(folder, table, lambda: ({"memberships": aspect}, None), about)[0]


def profile_inputs(
    sources: Sources, settings: Settings, folder: Folder | None = None
) -> InputProfile:
    """Profile the tables of a run.

    Parameters
    ----------
    folder
        Run directory that keeps the profile; None: every table is read.

    Raises
    ------
    InputError
        When a table cannot be read.
    """
    reader = TableReader(sources, settings, folder)
    reader.nodes()
    reader.match("edges")
    if choose_source(sources.memberships, settings) == "given":
        reader.match("memberships")
    profile = reader.profile()
    if folder is not None:
        folder.create()
        folder.write_record(PROFILE, asdict(profile))
    # The plan reads the free memory: return that of the node ids.
    del reader
    pa.default_memory_pool().release_unused()
    return profile


def profile_again(
    settings: Settings,
    folder: Folder,
    nodes: tuple[NodeIds, dict[str, Any]],
    labels: str | None,
    sources: Sources | None,
) -> InputProfile:
    """Profile new labels or memberships of an existing graph.

    Parameters
    ----------
    nodes
        The ids of the graph's nodes, and their digest.
    labels
        Location of the table; None: there is no new one.
    sources
        Has the memberships; None: there are none.
    """
    reader = TableReader(sources or Sources("", ""), settings, folder, *nodes)
    if labels is not None:
        reader.labels(labels)
    if sources is not None:
        reader.match("memberships")
    return reader.profile()


def check_findings(found: tuple[Finding, ...]) -> None:
    """Log what is accepted; raise one `InputError` with all refusals."""
    texts = [each.text for each in found if each.level == "refusal"]
    for each in found:
        if each.level != "refusal":
            log.info("%s (%s)", each.text, each.code)
    if len(texts) > 1:
        numbered = "; ".join(f"({at}) {text}" for at, text in enumerate(texts, 1))
        texts = [f"the tables cannot be used for {len(texts)} reasons: {numbered}"]
    if texts:
        raise InputError(texts[0])


def lines(profile: InputProfile, few: int, brief: bool = False) -> Iterator[str]:
    """Yield the lines that ``xnq-dist profile`` prints; `brief`: those of a run.

    Numbers of labelled nodes below `few` (`disclosure.min_size`) are not shown.
    """
    for name, facts in profile.tables.items():
        rows, matched = facts["rows"], facts.get("matched")
        # Rounded down: 100 % has no row that does not match.
        share = "" if matched is None else f", {matched * 1000 // rows / 10} % match"
        yield f"{TITLES[name]} {facts['path']}: {rows:,} rows{share}"
        if not brief:
            columns = facts["columns"].items()
            yield f"  {', '.join(f'{column} {kind}' for column, kind in columns)}"
    counts = [
        f"{value}: {f'fewer than {few}' if rows < few else f'{rows:,}'}"
        for value, rows in profile.classes
    ]
    more = [f"and {len(counts) - SHOWN:,} more"] if len(counts) > SHOWN else []
    yield f"labels: {'; '.join([*counts[:SHOWN], *more])}"
    for each in () if brief else profile.findings:
        yield f"{each.level}: {each.text} ({each.code})"


@dataclass
class TableReader:
    """Reads each table at most once, for its digests and its facts."""

    sources: Sources
    settings: Settings
    folder: Folder | None
    ids: NodeIds | None = None
    """Those of the nodes, once they are needed."""
    node_digest: dict[str, Any] = field(default_factory=dict)
    facts: dict[str, dict[str, Any]] = field(default_factory=dict)
    """What was counted in each table, with its path and rows."""

    def profile(self) -> InputProfile:
        """The profile of the tables read so far."""
        # Imported late: a run in which nothing changed needs no compiled code.
        from xnq_dist.graph.profile.findings import findings

        return InputProfile(self.facts, findings(self.settings, self.facts))

    def nodes(self, again: bool = False) -> Digests:
        """Read the node table, `again`: also an unchanged one; return its digests."""
        settings, made = self.settings, []
        table = self.sources.table("nodes", settings.input)

        def make() -> Made:
            from xnq_dist.graph.features import FeatureColumns
            from xnq_dist.graph.profile.matching import NodeObserver

            chosen = chosen_columns(table, settings)
            place = settings.communities.partition("column:")[2]
            aspects = node_aspects(table, chosen, place)
            named = [name for _, name in feature_columns(chosen)]
            # Types that cannot be features are refused before values are read.
            settled = table.settle(named)
            FeatureColumns(settled, chosen.features)
            FeatureColumns(settled, chosen.scores, scores=True)
            made.append(NodeObserver(settings, table, named))
            return aspects, made[0]

        digests = self._read("nodes", table, make, again)
        for observer in made:
            self.ids = observer.ids(table.path)
        self.node_digest = digests["nodes"]
        if (named := digests.get("communities")) is not None:
            self.facts["nodes"]["in_communities"] = named["rows"]
        return digests

    def labels(self, path: str) -> Digests:
        """Read a table of labels; return its digest."""
        settings = self.settings
        table = open_table(path, TITLES["labels"], settings.input)

        def make() -> Made:
            from xnq_dist.graph.profile.matching import NodeObserver

            columns = columns_of("nodes", settings.columns, table)
            return {"labels": columns}, NodeObserver(settings, table)

        return self._read("labels", table, make)

    def match(self, name: Literal["edges", "memberships"]) -> Digests:
        """Read a table that names nodes; return its digest."""
        columns = self.settings.columns
        ends = [columns.src, columns.dst] if name == "edges" else [columns.member]
        table = self.sources.table(name, self.settings.input)

        def make() -> Made:
            from xnq_dist.graph.profile.matching import MatchObserver

            pairs = columns_of(name, columns, table)
            # A graph is made of new edges, for which the nodes are decoded anyway.
            if self.ids is None and name == "edges" and self.sources.copies:
                self.nodes(again=True)
            return {name: pairs}, MatchObserver(columns, ends, self._node_ids())

        return self._read(name, table, make)

    def _node_ids(self) -> NodeIds:
        """The ids of the nodes, read again if their table was not read here."""
        if self.ids is None:
            from xnq_dist.graph.ids import NodeIds

            name = self.settings.columns.node_id
            table = self.sources.table("nodes", self.settings.input)
            parts = [ids_of(batch, name) for batch in table.batches([name])]
            self.ids = NodeIds.from_column(of_one_type(parts), table.path)[0]
        return self.ids

    def _read(self, name: str, table: Table, make: Any, again: bool = False) -> Digests:
        """Read a table unless nothing changed; return its digests."""
        settings = self.settings
        used = settings.columns.model_dump(), settings.communities
        about, missing = (name, self.node_digest, *used), settings.labels.missing
        digests, facts = read_table(
            None if again else self.folder, table, make, about, missing
        )
        rows = digests[name]["rows"]
        if not rows and name != "labels":
            raise table.no_rows()
        self.facts[name] = {"path": table.path, "rows": rows, **facts}
        return digests
