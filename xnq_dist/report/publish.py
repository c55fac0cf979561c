"""Reads the stages of a run and publishes its results as a version."""

from __future__ import annotations

import dataclasses
import hashlib
import logging
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from xnq_dist.core.errors import DamagedError, SettingsError, StageError
from xnq_dist.core.inputs import PREVIOUS, published_inputs
from xnq_dist.core.settings import Settings
from xnq_dist.core.store import (
    FOLDERS,
    Attempt,
    FileRecord,
    Manifest,
    Published,
    RunDirectory,
    Stage,
    TableWriter,
    Version,
    fingerprint,
)
from xnq_dist.graph.prepare import partitions_table
from xnq_dist.quantify.checks.quality import without_values
from xnq_dist.report.changed import Changed, changed_rows, compare_with
from xnq_dist.report.compared import anomaly_rows, compare, seen_in
from xnq_dist.report.earlier import Earlier, ResultFacts, earlier_results, why_not
from xnq_dist.report.history import History, NewRun, history_rows
from xnq_dist.report.naming import shown_class
from xnq_dist.report.page import page, page_verdict
from xnq_dist.report.page_facts import PageFacts, StageFacts
from xnq_dist.report.view import PrevalenceView

__all__ = ["report"]

log = logging.getLogger(__name__)

PROFILE = "_profile.json"
"""Profile of the input tables in the run directory, if there is one."""


def report(run: RunDirectory, settings: Settings) -> None:
    """Publish the tables and the page of a complete run.

    A version is a folder ``versions/<run_id>/`` with ``prevalence.parquet``,
    ``totals.parquet``, ``communities.parquet`` (when communities were detected),
    ``anomalies.parquet`` (when there are intervals), ``changes.parquet`` (when there
    are earlier results to compare with), ``history.parquet``, ``partitions.parquet``,
    ``report.html`` and a manifest. When the version is complete, ``published.json`` is
    updated to name it, its files appear at their usual paths in the run directory, and
    versions older than `retention` allows are removed.

    The run_id is a fingerprint of the stages, the settings and the earlier results in
    the comparison. Equal inputs give equal bytes (except dates), and
    nothing is written if they are published already. The page reports why earlier
    results cannot be compared.

    Raises
    ------
    StageError
        When the stage ``graph`` or ``quantify`` is incomplete, or a table is damaged.
    """
    made = _Results.of(run, settings)
    published = Published(run)
    current = published.current()
    earlier: Earlier | str | None = None
    before = current.manifest.facts if current else {}
    if settings.anomalies.last == PREVIOUS and before.get("content") == made.content:
        compared = str(before.get("compared") or "")
    else:
        earlier = _earlier(run, settings, made.results)
        compared = earlier.run_id if isinstance(earlier, Earlier) else ""
    run_id = fingerprint(made.content, compared)
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
        }
        attempt = published.begin(run_id)
        version = made.write(published.stage(run_id), attempt, earlier, facts)
        log.info("results %s are complete in %s", run_id, version.folder.uri)
    published.point(version)
    published.place(version)
    published.trim(settings.retention.versions)


def _earlier(
    run: RunDirectory, settings: Settings, results: str
) -> Earlier | str | None:
    """Earlier results, or why they cannot be used; None if there are none."""
    try:
        return earlier_results(run, settings, results)
    except SettingsError as error:
        # Publish without the comparison: the run itself may have taken hours.
        log.warning("%s", error)
        return str(error)


@dataclasses.dataclass(frozen=True)
class _Results:
    """The stages of a complete run, to be published."""

    run: RunDirectory
    settings: Settings
    manifests: dict[str, Manifest]

    @classmethod
    def of(cls, run: RunDirectory, settings: Settings) -> _Results:
        manifests = {
            name: manifest
            for name in FOLDERS
            if (manifest := run.stage(name).manifest()) is not None
        }
        for name in ("graph", "quantify"):
            if name not in manifests:
                raise StageError(
                    f"{run.uri}: stage {name} is incomplete, so there is nothing to "
                    "report: run again to resume"
                )
        if not manifests["quantify"].named("prevalence-"):
            where = run.stage("quantify").folder.uri
            raise StageError(f"{where} has no prevalence table: run again to resume")
        return cls(run, settings, manifests)

    @cached_property
    def inputs(self) -> dict[str, Any]:
        """Everything the results depend on, without the earlier results."""
        return published_inputs(self.manifests, self.settings)

    @cached_property
    def results(self) -> str:
        """Fingerprint of the stages and of the tables that the last one wrote."""
        return fingerprint({**self.inputs, "settings": None})

    @cached_property
    def content(self) -> str:
        """Fingerprint of `inputs`."""
        return fingerprint(self.inputs)

    def tables(self, name: str) -> Iterator[pa.Table]:
        """The parts of a table of the stage ``quantify``, to be published."""
        stage = self.run.stage("quantify")
        nulls = name == "prevalence" and self.settings.disclosure.table == "nulls"
        for record in self.manifests["quantify"].named(f"{name}-"):
            table = stage.read_table(record, name)
            yield without_values(table) if nulls else table

    def write(
        self,
        stage: Stage,
        attempt: Attempt,
        earlier: Earlier | str | None,
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
        labels = self.manifests["labels"].facts if "labels" in self.manifests else {}
        classes = [str(name) for name in labels.get("classes") or ()]
        counts = list(labels.get("class_counts") or ())
        last = shown_class(classes, counts, settings.report)
        if settings.report.shown_class not in ("auto", last):
            log.warning(
                "report.class = %s is not a class, so the page is about %s: choose one "
                "of %s",
                *(settings.report.shown_class, last, ", ".join(classes[:12])),
            )
        view = PrevalenceView.of(prevalence, classes, last)
        evidence = pa.concat_tables(list(self.tables("evidence")))
        anomalies = compare(view, settings, seen_in(view, evidence))
        if anomalies is not None:
            out.table("anomalies", [anomaly_rows(view, anomalies, settings)])
        result_facts = _result_facts(self.manifests, self.tables("communities"))
        changed = _compared(earlier, view, settings, result_facts)
        if isinstance(changed, Changed):
            out.table("changes", [changed_rows(view, changed, settings)])
        own = NewRun(attempt.id, self.manifests["quantify"].created, self.results)
        history = history_rows(self.run, own, view, changed, result_facts, settings)
        out.table("history", [history])
        stages = {
            name: StageFacts(name, m.seconds, m.facts, m.versions, m.created)
            for name, m in self.manifests.items()
        }
        page_facts = PageFacts(
            view=view,
            stages=stages,
            settings=settings,
            anomalies=anomalies,
            earlier=changed,
            history=History.of(history),
            totals=pa.concat_tables(list(self.tables("totals"))),
            profile=_profile(self.run),
            run_id=attempt.id,
            run=self.run.uri,
        )
        out.bytes("report.html", page(page_facts).encode())
        judged = page_verdict(page_facts)
        quantify = self.manifests["quantify"]
        manifest = stage.commit(
            attempt,
            out.files,
            self.content,
            self.inputs,
            {
                **dataclasses.asdict(result_facts),
                "verdict": dataclasses.asdict(judged),
                "created": quantify.created,
                **facts,
            },
            sum(m.seconds for m in self.manifests.values()),
        )
        return Version(stage, manifest)


@dataclasses.dataclass(frozen=True)
class _Writer:
    """Writes the files of a version."""

    attempt: Attempt
    files: list[FileRecord] = dataclasses.field(default_factory=list)

    def table(self, name: str, pieces: Iterable[pa.Table]) -> None:
        """Write a Parquet file, one part of the table in memory at a time."""
        run_id, file = self.attempt.id, f"{name}.parquet"
        with TableWriter(self.attempt.folder, file, name, run_id) as writer:
            for piece in pieces:
                writer.write(piece)
        self.files.append(writer.record)

    def bytes(self, name: str, data: bytes) -> None:
        """Write a file of any kind."""
        with self.attempt.folder.open_output(name) as sink:
            sink.write(data)
        self.files.append(FileRecord(name, 0, sink.count, sink.checksum()))


def _compared(
    earlier: Earlier | str | None,
    view: PrevalenceView,
    settings: Settings,
    facts: ResultFacts,
) -> Changed | str | None:
    """Comparison with earlier results, or why there is none; None: none exist."""
    if not isinstance(earlier, Earlier):
        return earlier
    reason = why_not(earlier, settings, view.classes, facts)
    if not reason and not view.has_intervals:
        reason = (
            "this run has no intervals, so a change cannot be distinguished from "
            "chance: choose a quantifier that computes intervals"
        )
    if reason:
        log.info("not compared with earlier results: %s", reason)
        return reason
    return compare_with(earlier, view, settings)


def _profile(run: RunDirectory) -> dict[str, Any] | None:
    """The profile of the input tables; None if there is none that can be read."""
    try:
        return run.folder.read_record(PROFILE)
    except DamagedError as error:
        log.warning("%s", error)
        return None


def _result_facts(
    manifests: dict[str, Manifest], detected: Iterator[pa.Table]
) -> ResultFacts:
    """Facts that later runs need for a comparison with this one."""
    source = manifests["quantify"].inputs.get("communities")
    return ResultFacts(str(source or ""), _digest(detected))


def _digest(tables: Iterator[pa.Table]) -> str:
    """Checksum of the rows of detected communities, however the table is divided.

    It is empty if no communities were detected.
    """
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
