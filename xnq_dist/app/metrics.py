"""Metrics of a run directory in OpenMetrics form, for Prometheus and its relatives.

Every metric is a gauge without a time stamp, so that the file is also valid in
Prometheus' text format, which node_exporter's textfile collector reads.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pyarrow.compute as pc

from xnq_dist.app.run_status import RunStatus
from xnq_dist.core.store import FOLDERS, Folder, Published, RunDirectory, Version

__all__ = ["FILE", "METRICS", "changes_of", "metrics_text", "write_metrics"]

FILE = "metrics.prom"
"""The file in the run directory, unless a setting names another."""

METRICS = {
    "xnq_run_running": "1 while the run works, else 0",
    "xnq_run_started_timestamp_seconds": "start of the last run",
    "xnq_run_ended_timestamp_seconds": "end of the last run; not while it works",
    "xnq_run_succeeded_timestamp_seconds": "end of the last run without an error, also "
    "if nothing had changed: alert when it is too old",
    "xnq_run_exit_code": "exit code of the last run; not while it works",
    "xnq_run_retries": "starts of stages in this run after the first of each",
    "xnq_run_lost_workers": "workers that left during the run",
    "xnq_run_workers": "workers when the run last looked",
    "xnq_run_peak_memory_bytes": "maximum resident memory of the client, and of any "
    "one worker (seen once a second), by process",
    "xnq_stage_starts": "starts of a stage in this run, by stage",
    "xnq_stage_seconds": "time that the current files of a stage took, by stage",
    "xnq_stage_bytes": "size of the current files of a stage, by stage",
    "xnq_stage_rows": "rows of the current files of a stage, by stage",
    "xnq_superstep_exchanged_bytes": "bytes that one superstep exchanges",
    "xnq_published_timestamp_seconds": "time of the current results",
    "xnq_published_bytes": "size of the current results",
    "xnq_estimates": "published estimates (community and class), by quality",
    "xnq_anomalous_communities": "communities with an anomalous share of a class",
    "xnq_changed_communities": "communities whose shares changed beyond chance, by "
    "status: both, new, gone",
}
"""Names and meanings; labels are named after ``by``."""


Sample = tuple[str, float, dict[str, str]]
"""Name, value and labels."""


def write_metrics(run: RunDirectory, path: str | None, status: RunStatus) -> None:
    """Replace the metrics file atomically; None: the one in the run directory."""
    folder, name = run.folder, FILE
    if path is not None:
        text = path if "://" in path else str(Path(path).expanduser().absolute())
        place, _, name = text.rpartition("/")
        folder = Folder.of(place)
    folder.write_bytes(name, metrics_text(run, status))


def metrics_text(run: RunDirectory, status: RunStatus) -> bytes:
    """The metrics of a run directory and of its last run, in OpenMetrics form."""
    from prometheus_client import CollectorRegistry, Gauge
    from prometheus_client.openmetrics.exposition import generate_latest

    registry, gauges = CollectorRegistry(), dict[str, Gauge]()
    for name, value, labels in _samples(run, status):
        # Several run directories of one machine may have their files in one folder.
        named = {"run": run.uri, **labels}
        if name not in gauges:
            gauges[name] = Gauge(name, METRICS[name], [*named], registry=registry)
        gauges[name].labels(**named).set(value)
    text: bytes = generate_latest(registry)  # type: ignore[no-untyped-call]
    return text


def _samples(run: RunDirectory, status: RunStatus) -> Iterator[Sample]:
    for name, value in {
        "running": float(status.ended is None),
        "started_timestamp_seconds": status.started,
        "ended_timestamp_seconds": status.ended,
        "succeeded_timestamp_seconds": status.succeeded,
        "exit_code": status.exit_code,
        "retries": status.retries,
        "lost_workers": len(status.lost_workers),
        "workers": status.workers,
    }.items():
        if value is not None:
            yield f"xnq_run_{name}", value, {}
    for process, peak in status.peak_memory.items():
        yield "xnq_run_peak_memory_bytes", peak, {"process": process}
    for stage, count in status.starts.items():
        yield "xnq_stage_starts", count, {"stage": stage}
    for stage in FOLDERS:
        manifest = run.stage(stage).manifest()
        if manifest is None:
            continue
        by, files = {"stage": stage}, manifest.files
        yield "xnq_stage_seconds", manifest.seconds, by
        yield "xnq_stage_bytes", sum(each.bytes for each in files), by
        yield "xnq_stage_rows", sum(each.rows for each in files), by
        exchanged = manifest.facts.get("exchanged_bytes_per_superstep")
        if exchanged is not None:
            yield "xnq_superstep_exchanged_bytes", exchanged, {}
    if (version := Published(run).current()) is not None:
        yield from _of_results(version)


def _of_results(version: Version) -> Iterator[Sample]:
    created = datetime.fromisoformat(version.manifest.created).timestamp()
    yield "xnq_published_timestamp_seconds", created, {}
    size = sum(record.bytes for record in version.manifest.files)
    yield "xnq_published_bytes", size, {}
    quality = version.read("prevalence", ["quality"])["quality"].to_pylist()
    for name, count in Counter(quality).items():
        yield "xnq_estimates", count, {"quality": name or "not rated"}
    for name, count in changes_of(version).items():
        yield "xnq_changed_communities", count, {"status": name}
    if "anomalies" in version.tables():
        rows = version.read("anomalies", ["community", "anomalous"])
        rows = rows.filter(pc.fill_null(rows["anomalous"], False))
        count = pc.count_distinct(rows["community"]).as_py()
        yield "xnq_anomalous_communities", count, {}


def changes_of(version: Version) -> dict[str, int]:
    """Communities changed beyond chance (``both``), new, gone; empty: not compared."""
    if "changes" not in version.tables():
        return {}
    rows = version.read("changes", ["community", "status", "changed"])
    kept = pc.or_(
        pc.fill_null(rows["changed"], False), pc.not_equal(rows["status"], "both")
    )
    rows = rows.filter(kept)
    return {
        name: pc.count_distinct(
            rows.filter(pc.equal(rows["status"], name))["community"]
        ).as_py()
        for name in ("both", "new", "gone")
    }
