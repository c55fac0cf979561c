"""Reads the stages of a run and publishes its results; the pointer comes last."""

from __future__ import annotations

import dataclasses
import hashlib
import logging
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from xnq_dist.core.config import Settings
from xnq_dist.core.differences import is_table
from xnq_dist.core.errors import SettingsError, StageError
from xnq_dist.core.inputs import PREVIOUS, published_inputs
from xnq_dist.core.store import (
    STAGES,
    Attempt,
    FileRecord,
    Manifest,
    Published,
    RunDirectory,
    SetAside,
    Stage,
    TableWriter,
    Version,
    entries,
    fingerprint,
    trim,
)
from xnq_dist.graph.prepare import partitions_table
from xnq_dist.report.changed import Changed, changed_rows, compare_with
from xnq_dist.report.compared import anomaly_rows, compare, seen_in
from xnq_dist.report.earlier import (
    Earlier,
    OwnFacts,
    earlier_results,
    why_not,
)
from xnq_dist.report.page import StageFacts, page, plot_files
from xnq_dist.report.view import PrevalenceView

__all__ = ["report"]

log = logging.getLogger(__name__)


def report(run: RunDirectory, settings: Settings) -> None:
    """Publish the tables, plots and page of a whole run.

    A version is a folder of its own, ``versions/<run_id>/``: ``prevalence.parquet``,
    ``totals.parquet``,
    ``communities.parquet`` (when communities were detected), ``anomalies.parquet``
    (when there are intervals), ``changes.parquet`` (when there are earlier results to
    compare with), ``partitions.parquet``, ``plots/*.svg``, ``report.html`` and a
    manifest. Once it is complete, ``published.json`` names it, each of its files takes
    its usual path at the top of the run directory, and what is older than
    `retention` says is removed.

    The run_id is made from the stages, the settings and what they are compared with:
    the same give the same bytes, dates in the manifest aside, and nothing is written
    where they are what is published. Earlier results that cannot be compared are named
    in the page, and why not; so is what was set aside since the last version.

    Raises
    ------
    StageError
        When the stage ``graph`` or ``quantify`` is not whole, or a table is damaged.
    """
    made = _Results.of(run, settings)
    published = Published(run)
    current = published.current()
    aside = dict(entries(run))
    seen = set(current.manifest.facts.get("set_aside") or ()) if current else set()
    new = {name: entry for name, entry in aside.items() if name not in seen}
    earlier: Earlier | str | None = None
    before = current.manifest.facts if current else {}
    if settings.anomalies.last == PREVIOUS and before.get("content") == made.content:
        compared = str(before.get("compared") or "")
    else:
        earlier = _earlier(run, settings, made.results)
        compared = earlier.run_id if isinstance(earlier, Earlier) else ""
    run_id = fingerprint(made.content, compared, sorted(new))
    if not new and current and before.get("content") == made.content:
        run_id = current.run_id if before.get("compared") == compared else run_id
    version = published.version(run_id)
    faults = version.stage.damages() if version else []
    if faults:
        raise faults[0]
    if version is None:
        if earlier is None:
            earlier = _earlier(run, settings, made.results)
        number = 1 + max((each.number for each in published.versions()), default=0)
        facts = {
            "content": made.content,
            "results": made.results,
            "compared": compared,
            "previous": next((each.run_id for each in published.history()), ""),
            "number": number,
            "set_aside": sorted(aside),
        }
        attempt = published.begin(run_id)
        version = made.write(published.stage(run_id), attempt, earlier, new, facts)
        log.info("results %s are complete in %s", run_id, version.folder.uri)
    published.point(version)
    published.place(version)
    published.trim(settings.retention.versions)
    trim(run, settings.retention.quarantine_days)


def _earlier(
    run: RunDirectory, settings: Settings, results: str
) -> Earlier | str | None:
    """Earlier results, or why they cannot be used; None: there are none."""
    try:
        return earlier_results(run, settings, results)
    except SettingsError as error:
        # Hours of work are not thrown away for want of a comparison.
        log.warning("%s", error)
        return str(error)


@dataclasses.dataclass(frozen=True)
class _Results:
    """The stages of a whole run, to be published."""

    run: RunDirectory
    settings: Settings
    manifests: dict[str, Manifest]

    @classmethod
    def of(cls, run: RunDirectory, settings: Settings) -> _Results:
        manifests = {
            name: found
            for name in STAGES
            if (found := run.stage(name).manifest()) is not None
        }
        for name in ("graph", "quantify"):
            if name not in manifests:
                raise StageError(
                    f"{run.uri}: stage {name} is not whole, there is nothing to "
                    "report: run again to resume"
                )
        if not manifests["quantify"].named("prevalence-"):
            where = run.stage("quantify").folder.uri
            raise StageError(f"{where}: no prevalence table; run again")
        return cls(run, settings, manifests)

    @cached_property
    def inputs(self) -> dict[str, Any]:
        """What is published, but for what it is compared with."""
        return published_inputs(self.manifests, self.settings)

    @cached_property
    def results(self) -> str:
        """Fingerprint of the stages and of what the last has written."""
        return fingerprint({**self.inputs, "settings": None})

    @cached_property
    def content(self) -> str:
        """Fingerprint of all that is published but what it is compared with."""
        return fingerprint(self.inputs)

    def tables(self, name: str) -> Iterator[pa.Table]:
        """The pieces of a table of the stage ``quantify``."""
        stage = self.run.stage("quantify")
        for record in self.manifests["quantify"].named(f"{name}-"):
            yield stage.read_table(record, name)

    def write(
        self,
        stage: Stage,
        attempt: Attempt,
        found: Earlier | str | None,
        aside: dict[str, SetAside],
        facts: dict[str, Any],
    ) -> Version:
        """Write a version: its files, then its manifest."""
        settings, graph = self.settings, self.manifests["graph"]
        out = _Writer(attempt)
        out.table("prevalence", self.tables("prevalence"))
        out.table("totals", self.tables("totals"))
        if self.manifests["quantify"].named("communities-"):
            out.table("communities", self.tables("communities"))
        embeddings = self.manifests.get("embeddings")
        dim = embeddings.facts.get("dim") if embeddings else None
        itemsize = np.dtype(settings.exchange.dtype).itemsize
        partitions = partitions_table(graph, itemsize, dim or settings.reservoir.dim)
        out.table("partitions", [partitions])
        prevalence = pa.concat_tables(list(self.tables("prevalence")))
        known = self.manifests["labels"].facts if "labels" in self.manifests else {}
        classes = [str(name) for name in known.get("classes") or ()]
        view = PrevalenceView.of(prevalence, classes)
        evidence = pa.concat_tables(list(self.tables("evidence")))
        compared = compare(view, settings, seen_in(view, evidence))
        if compared is not None:
            out.table("anomalies", [anomaly_rows(view, compared, settings)])
        own = _own_facts(self.manifests, self.tables("communities"))
        earlier = _compared(found, view, settings, own)
        if isinstance(earlier, Changed):
            out.table("changes", [changed_rows(view, earlier, settings)])
        stages = {
            name: StageFacts(name, m.seconds, m.facts, m.versions, m.created)
            for name, m in self.manifests.items()
        }
        figures = plot_files(view, stages, partitions, settings, compared)
        for name, svg in figures.items():
            out.bytes(f"plots/{name}.svg", svg)
        entries = list(aside.values())
        totals = pa.concat_tables(list(self.tables("totals")))
        html = page(view, stages, settings, figures, compared, earlier, entries, totals)
        out.bytes("report.html", html.encode())
        last = self.manifests["quantify"]
        manifest = stage.commit(
            attempt,
            out.files,
            self.content,
            self.inputs,
            {**dataclasses.asdict(own), "created": last.created, **facts},
            sum(m.seconds for m in self.manifests.values()),
        )
        return Version(stage, manifest)


@dataclasses.dataclass(frozen=True)
class _Writer:
    """Writes the files of a version."""

    attempt: Attempt
    files: list[FileRecord] = dataclasses.field(default_factory=list)

    def table(self, name: str, pieces: Iterable[pa.Table]) -> None:
        """One Parquet file, one piece of the table in memory at a time."""
        run_id, file = self.attempt.id, f"{name}.parquet"
        with TableWriter(self.attempt.folder, file, name, run_id) as writer:
            for piece in pieces:
                writer.write(piece)
        self.files.append(writer.record)

    def bytes(self, name: str, data: bytes) -> None:
        """One file of any kind."""
        folder = self.attempt.folder
        if "/" in name:
            folder.child(name.rpartition("/")[0]).create()
        with folder.open_output(name) as sink:
            sink.write(data)
        self.files.append(FileRecord(name, 0, sink.count, sink.checksum()))


def _compared(
    found: Earlier | str | None,
    view: PrevalenceView,
    settings: Settings,
    own: OwnFacts,
) -> Changed | str | None:
    """Earlier results beside these, or why they cannot be; None: there are none."""
    if not isinstance(found, Earlier):
        return found
    reason = why_not(found, settings, view.classes, own)
    if not reason and not view.has_intervals:
        reason = (
            "this run has no intervals, so that chance cannot be told from change: "
            "choose a quantifier that gives them"
        )
    if reason:
        log.info("not compared with earlier results: %s", reason)
        return reason
    return compare_with(found, view, settings, own)


def _own_facts(
    manifests: dict[str, Manifest], detected: Iterator[pa.Table]
) -> OwnFacts:
    """What later runs must know to be compared with this one."""
    quantify = manifests["quantify"].inputs
    read = [manifests[name].inputs for name in ("graph", "labels") if name in manifests]
    tables = {name: value for of in [*read, quantify] for name, value in of.items()}
    names = ["nodes", "features", "edges", "labels", "roles", "label_weights"]
    names.append("memberships")
    contents = {name: tables[name] for name in names if is_table(tables.get(name))}
    return OwnFacts(
        source=str(quantify.get("communities") or ""),
        detected=_digest(detected),
        data=fingerprint(contents) if "edges" in contents else "",
    )


def _digest(tables: Iterator[pa.Table]) -> str:
    """Of the rows of detected communities, however they are cut; empty for none."""
    hashes = [hashlib.blake2b(digest_size=16) for _ in range(3)]
    rows = 0
    for table in tables:
        rows += table.num_rows
        ids = table["node_id"].combine_chunks()
        parts: list[Any] = [table["community"].to_numpy()]
        if pa.types.is_string(ids.type):
            _, ends, text = ids.buffers()
            at = np.frombuffer(ends, np.int32)[ids.offset : ids.offset + len(ids) + 1]
            parts += [np.diff(at), text[int(at[0]) : int(at[-1])]]
        else:
            parts.append(ids.to_numpy())
        for digest, part in zip(hashes, parts, strict=False):
            digest.update(memoryview(part).cast("B"))
    return "".join(digest.hexdigest() for digest in hashes) if rows else ""
