"""Reads the stages of a run and publishes its results; the manifest comes last."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from xnq_dist import schemas
from xnq_dist.config import Settings
from xnq_dist.errors import StageError
from xnq_dist.graph.prepare import partitions_table
from xnq_dist.report.compared import anomaly_rows, compare
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

PUBLISHED = "published"
"""Name of the manifest at the top of a run directory."""


def report(run: RunDirectory, settings: Settings) -> None:
    """Publish the tables, plots and page of a whole run.

    At the top of the run directory: ``prevalence.parquet``, ``communities.parquet``
    (when communities were detected), ``anomalies.parquet`` (when there are intervals),
    ``partitions.parquet``, ``plots/*.svg``, ``report.html``, and last
    ``_manifest.json``, which names them. What was published before is removed first.
    The same stages and settings give the same bytes, dates in the manifest aside.

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
    figures = plot_files(view, stages, partitions)
    for name, svg in figures.items():
        files.append(_publish_bytes(run, f"plots/{name}.svg", svg))
    html = page(view, stages, settings, figures, compared)
    files.append(_publish_bytes(run, "report.html", html.encode()))
    _publish_manifest(run, manifests, files, settings)


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
) -> None:
    """From now on the published results are whole."""
    last = manifests["quantify"]
    inputs = {
        "stages": {name: m.fingerprint for name, m in manifests.items()},
        "settings": settings.model_dump(mode="json"),
    }
    published = Manifest(
        stage=PUBLISHED,
        attempt=last.attempt,
        fingerprint=fingerprint(inputs),
        inputs=inputs,
        files=tuple(files),
        facts={},
        seconds=round(sum(m.seconds for m in manifests.values()), 3),
        created=last.created,
        versions=last.versions,
    )
    text = json.dumps(dataclasses.asdict(published), indent=1, sort_keys=True)
    run.publish(MANIFEST, text.encode())
