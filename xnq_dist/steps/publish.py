"""Publishes the results of a run as a version: its tables, and what steps make."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pyarrow as pa

from xnq_dist.core.settings import Settings
from xnq_dist.core.stages import STAGES
from xnq_dist.core.store import (
    FileRecord,
    RunDirectory,
    TableWriter,
    Version,
    fingerprint,
)
from xnq_dist.graph.prepare import partitions_table
from xnq_dist.quantify.quality import without_values
from xnq_dist.steps import STEPS
from xnq_dist.steps.history import series_of
from xnq_dist.steps.results import Results, estimates

__all__ = ["publish"]

log = logging.getLogger(__name__)


def publish(run: RunDirectory, settings: Settings) -> None:
    """Publish the tables of a complete run, and what the steps make of them.

    A version is a folder ``versions/<run_id>/`` with ``prevalence.parquet``,
    ``totals.parquet``, ``communities.parquet`` (when communities were detected),
    ``partitions.parquet``, the files of the steps (`STEPS`) and a manifest. When the
    version is complete, ``published.json`` is updated to name it, its files appear at
    their usual paths in the run directory, and versions older than `retention` allows
    are removed.

    The run_id is a fingerprint of the stages, the settings and the results before.
    Equal inputs give equal bytes (except dates), and nothing is written if they are
    published already. The page reports why earlier results cannot be compared.

    Raises
    ------
    StageError
        When the stage ``graph`` or ``quantify`` is not complete, or a table is damaged.
    """
    stages = run.manifests()
    stages |= {name: run.complete(name) for name in ("graph", "quantify")}
    inputs = STAGES["published"].made_from(stages, {}, settings)
    content = fingerprint(inputs)
    results = fingerprint({**inputs, "settings": None})
    version, earlier = run.current(), None
    if version is None or version.manifest.facts.get("content") != content:
        known = run.history()
        others = (v for v in known if v.manifest.facts.get("results") != results)
        before = next(others, None)
        earlier = before if settings.anomalies.last == "previous" else None
        # Results that come back are a version of their own: its history goes on.
        run_id = fingerprint(content, before.run_id if before else "")
        version = run.version(run_id)
    if version is None:
        quantify = stages["quantify"]
        tables = {name: estimates(quantify, name) for name in ("prevalence", "totals")}
        if settings.disclosure.table == "nulls":
            tables["prevalence"] = without_values(tables["prevalence"])
        numbers = (each.number for each in run.history())
        facts = {
            "content": content,
            "results": results,
            "number": max(numbers, default=0) + 1,
            "source": quantify.inputs["communities"],
            "detected": quantify.facts["detected"],
            "created": quantify.created,
        }
        made = Results(tables, settings, run, stages, run_id, earlier, facts)
        facts["series"] = series_of(settings, facts, made.view.classes)
        version = _write(made, inputs)
        log.info("results %s are complete in %s", run_id, version.stage.uri)
    elif faults := version.stage.damages():
        raise faults[0]
    run.publish(version)
    run.trim(settings.retention.versions)


def _write(results: Results, inputs: dict[str, Any]) -> Version:
    """Write a version: its files, then its manifest."""
    settings, facts, stages = results.settings, results.facts, results.stages
    attempt = results.directory.stage_of(results.run_id).begin(results.run_id)
    files: list[FileRecord] = []

    def write(name: str, table: pa.Table) -> None:
        file = f"{name}.parquet"
        with TableWriter(attempt, file, name, attempt.id) as writer:
            writer.write(table)
        files.append(writer.record)

    for name, table in results.tables.items():
        write(name, table)
    if facts["detected"]:
        write("communities", estimates(stages["quantify"], "communities"))
    dim = results.of("embeddings").get("dim") or settings.reservoir.dim
    itemsize = np.dtype(settings.exchange.dtype).itemsize
    write("partitions", partitions_table(stages["graph"], itemsize, dim))
    for step in STEPS:
        for name, made in STEPS.module_of(step).make(results).items():
            if isinstance(made, pa.Table):
                results.tables[name] = made
                write(name, made)
            elif isinstance(made, bytes):
                with attempt.open_output(name) as sink:
                    sink.write(made)
                files.append(sink.record(name, 0))
            else:
                facts[name] = made
    return Version(attempt, attempt.commit(files, inputs, facts))
