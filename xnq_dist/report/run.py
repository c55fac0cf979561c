"""Reads the stages of a run and publishes its results; the manifest comes last."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from xnq_dist import schemas
from xnq_dist.config import Settings
from xnq_dist.errors import SettingsError, StageError
from xnq_dist.graph.prepare import partitions_table
from xnq_dist.redaction import redacted
from xnq_dist.report.changed import Changed, changed_rows, compare_with
from xnq_dist.report.compared import anomaly_rows, compare
from xnq_dist.report.earlier import OwnFacts, earlier_results, why_not
from xnq_dist.report.page import StageFacts, page, plot_files
from xnq_dist.report.view import PrevalenceView
from xnq_dist.store import (
    MANIFEST,
    STAGES,
    FileRecord,
    Manifest,
    RunDirectory,
    Stage,
    fingerprint,
)

__all__ = ["report"]

log = logging.getLogger(__name__)

PUBLISHED = "published"
"""Name of the manifest at the top of a run directory."""


def report(run: RunDirectory, settings: Settings) -> None:
    """Publish the tables, plots and page of a whole run.

    At the top of the run directory: ``prevalence.parquet``, ``communities.parquet``
    (when communities were detected), ``anomalies.parquet`` (when there are intervals),
    ``changes.parquet`` (when there are earlier results to compare with),
    ``partitions.parquet``, ``plots/*.svg``, ``report.html``, and last
    ``_manifest.json``, which names them. What was published before is removed first.
    The same stages, settings and earlier results give the same bytes, dates in the
    manifest aside. Earlier results that cannot be compared are named in the page, and
    why not.

    Raises
    ------
    StageError
        When the stage ``graph`` or ``quantify`` is not whole, or a table is damaged.
    """
    manifests = {
        name: found
        for name in STAGES
        if (found := run.stage(name).manifest()) is not None
    }
    for name in ("graph", "quantify"):
        if name not in manifests:
            raise StageError(
                f"{run.uri}: stage {name} is not whole, there is nothing to report: "
                "run again to resume"
            )
    stages = {
        name: StageFacts(name, m.seconds, m.facts, m.versions, m.created)
        for name, m in manifests.items()
    }
    quantify, stage = manifests["quantify"], run.stage("quantify")
    records = quantify.named("prevalence-")
    if not records:
        raise StageError(f"{stage.folder.uri}: no prevalence table; run again")
    run.unpublish()
    files = [_publish_tables(run, stage, records, "prevalence")]
    detected = quantify.named("communities-")
    if detected:
        files.append(_publish_tables(run, stage, detected, "communities"))
    embeddings = manifests.get("embeddings")
    dim = embeddings.facts.get("dim") if embeddings else None
    itemsize = np.dtype(settings.exchange.dtype).itemsize
    partitions = partitions_table(
        manifests["graph"], itemsize, dim or settings.reservoir.dim
    )
    files.append(_publish_table(run, "partitions", iter([partitions])))

    prevalence = pa.concat_tables(list(_tables(stage, records, "prevalence")))
    graph = manifests["graph"].facts
    classes = [str(name) for name in graph.get("classes") or ()]
    view = PrevalenceView.of(prevalence, classes)
    compared = compare(view, settings)
    if compared is not None:
        table = anomaly_rows(view, compared, settings)
        files.append(_publish_table(run, "anomalies", iter([table])))
    own = _own_facts(manifests, _tables(stage, detected, "communities"))
    earlier = _earlier(run, view, settings, own)
    if isinstance(earlier, Changed):
        table = changed_rows(view, earlier, settings)
        files.append(_publish_table(run, "changes", iter([table])))
    figures = plot_files(view, stages, partitions, settings, compared)
    for name, svg in figures.items():
        files.append(_publish_bytes(run, f"plots/{name}.svg", svg))
    html = page(view, stages, settings, figures, compared, earlier)
    files.append(_publish_bytes(run, "report.html", html.encode()))
    _publish_manifest(run, manifests, files, settings, own)


def _earlier(
    run: RunDirectory, view: PrevalenceView, settings: Settings, own: OwnFacts
) -> Changed | str | None:
    """Earlier results beside these, or why they cannot be; None: there are none."""
    try:
        found = earlier_results(run, settings)
    except SettingsError as error:
        # Hours of work are not thrown away for want of a comparison.
        log.warning("%s", error)
        return str(error)
    if found is None:
        return None
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
    graph, quantify = manifests["graph"].inputs, manifests["quantify"].inputs
    tables = [(graph.get(name) or {}).get("files") for name in ("nodes", "edges")]
    tables.append(quantify.get("memberships"))
    contents = [[file["digest"] for file in files or ()] for files in tables]
    return OwnFacts(
        source=str(quantify.get("communities") or ""),
        detected=_digest(detected),
        data=fingerprint(contents) if all(contents[:2]) else "",
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


def _tables(stage: Stage, records: list[FileRecord], schema: str) -> Iterator[pa.Table]:
    for record in records:
        yield stage.read_table(record, schema)


def _publish_tables(
    run: RunDirectory, stage: Stage, records: list[FileRecord], schema: str
) -> FileRecord:
    return _publish_table(run, schema, _tables(stage, records, schema))


def _publish_table(
    run: RunDirectory, schema: str, tables: Iterator[pa.Table]
) -> FileRecord:
    """One Parquet file from the pieces of a table, one piece in memory at a time."""
    name = f"{schema}.parquet"
    buffer = io.BytesIO()
    writer: pq.ParquetWriter | None = None
    rows = 0
    for table in tables:
        checked = schemas.conform(table, schema, f"{run.uri}/{name}")
        if writer is None:
            writer = pq.ParquetWriter(buffer, checked.schema, compression="zstd")
        writer.write_table(checked)
        rows += checked.num_rows
    if writer is not None:
        writer.close()
    return _publish_bytes(run, name, buffer.getvalue(), rows)


def _publish_bytes(
    run: RunDirectory, name: str, data: bytes, rows: int = 0
) -> FileRecord:
    run.publish(name, data)
    digest = hashlib.blake2b(data, digest_size=16).hexdigest()
    return FileRecord(name, rows, len(data), digest)


def _publish_manifest(
    run: RunDirectory,
    manifests: dict[str, Manifest],
    files: list[FileRecord],
    settings: Settings,
    own: OwnFacts,
) -> None:
    """From now on the published results are whole."""
    last = manifests["quantify"]
    inputs = {
        "stages": {name: m.fingerprint for name, m in manifests.items()},
        "settings": redacted(settings.model_dump(mode="json")),
    }
    published = Manifest(
        stage=PUBLISHED,
        attempt=last.attempt,
        fingerprint=fingerprint(inputs),
        inputs=inputs,
        files=tuple(files),
        facts=dataclasses.asdict(own),
        seconds=round(sum(m.seconds for m in manifests.values()), 3),
        created=last.created,
        versions=last.versions,
    )
    text = json.dumps(dataclasses.asdict(published), indent=1, sort_keys=True)
    run.publish(MANIFEST, text.encode())
