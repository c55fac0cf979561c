"""Runs whose workers read the edges: the results of a run in one process."""

from __future__ import annotations

import logging
import os
from contextlib import nullcontext
from pathlib import Path

import pytest

from tests.conftest import (
    SmallGraph,
    published_values,
    small_settings,
)
from tests.graph.tasks import small_tasks
from tests.graph.test_prepare import digests
from tests.test_pipeline import made_once, run
from xnq_dist import jobs, pipeline
from xnq_dist.core import leftovers
from xnq_dist.core.config import load_settings
from xnq_dist.core.leftovers import owned_name, sweep_run
from xnq_dist.core.store import Manifest, RunDirectory
from xnq_dist.graph import edge_tasks
from xnq_dist.plan import GraphSize, Plan, of_tables
from xnq_dist.plan.of_tables import estimate, estimate_counts

__all__ = ["made_once", "run"]


@pytest.fixture
def by_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any graph is large enough, and any row group is a task."""
    monkeypatch.setattr(of_tables, "MIN_EDGES", 0)
    small_tasks(monkeypatch)


def graph_of(out: Path) -> Manifest:
    manifest = RunDirectory(out).stage("graph").manifest()
    assert manifest is not None
    return manifest


def test_a_run_has_the_same_results(
    tmp_path: Path,
    small_graph: SmallGraph,
    run: RunDirectory,
    monkeypatch: pytest.MonkeyPatch,
    by_workers: None,
) -> None:
    opened = []
    real = jobs.cluster.open_cluster

    def counted(*arguments: object) -> object:
        opened.append(arguments)
        return real(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(jobs.cluster, "open_cluster", counted)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    settings = small_settings(f"scratch={scratch}", "cluster.kind=local")
    jobs.run_all(small_graph.sources, str(tmp_path / "workers"), settings)
    plan = Plan.read(RunDirectory(tmp_path / "workers"))
    assert plan is not None
    assert plan.ingest_workers == 2
    # One cluster reads the edges and does the later stages.
    assert len(opened) == 1
    alone, found = graph_of(Path(run.uri)), graph_of(tmp_path / "workers")
    assert digests(found) == digests(alone)
    assert found.facts == alone.facts
    assert published_values(tmp_path / "workers").equals(published_values(run.uri))
    assert list(scratch.iterdir()) == []


def test_workers_elsewhere_share_the_run_directory(
    tmp_path: Path,
    small_graph: SmallGraph,
    client: object,
    tls_settings: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    by_workers: None,
) -> None:
    where = [f"cluster.{name}={value}" for name, value in tls_settings.items()]
    settings = small_settings("partitions=3", "cluster.kind=address", *where)
    seen = []
    real = edge_tasks.read_edges

    def spied(*arguments: object) -> object:
        seen.extend(path.name for path in (tmp_path / "run").iterdir())
        return real(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr("xnq_dist.graph.prepare.read_edges", spied)
    with pipeline.open_run(str(tmp_path / "run"), small_graph.sources) as run:
        pipeline.prepare(
            *(run, small_graph.sources, settings),
            connect=lambda: nullcontext(client),
        )
    folders = [name for name in seen if name.startswith(leftovers.TEMPORARY)]
    assert len(folders) == 1
    assert folders[0] not in run.names()


def test_what_a_killed_run_shared_is_removed(tmp_path: Path) -> None:
    folder = RunDirectory(tmp_path / "run")
    folder.create()
    own, other = (tmp_path / "run" / owned_name() for _ in range(2))
    shared = other.with_name(other.name.replace(f"-{os.getpid()}-", "-1-"))
    own.mkdir()
    shared.mkdir()
    (shared / "ids").touch()
    sweep_run(folder)
    assert not shared.exists()
    assert own.exists()


def test_a_table_that_workers_cannot_read_is_read_in_one_process(
    tmp_path: Path,
    small_graph: SmallGraph,
    monkeypatch: pytest.MonkeyPatch,
    client: object,
    by_workers: None,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("xnq_dist.graph.prepare.visible", lambda *_: False)
    run = RunDirectory(tmp_path / "run")
    run.create()
    with caplog.at_level(logging.WARNING):
        pipeline.prepare(
            *(run, small_graph.sources, small_settings("partitions=3")),
            connect=lambda: nullcontext(client),
        )
    assert "edges are read in this process" in caplog.text
    assert graph_of(tmp_path / "run").facts["n_nodes"] == 600


def test_a_small_graph_is_read_in_one_process(small_graph: SmallGraph) -> None:
    assert estimate(small_graph.sources, small_settings()).ingest_workers == 0


@pytest.mark.parametrize(
    ("workers", "threads", "kind", "found"),
    [(16, 4, "local", 16), (2, 1, "local", 0), (1, 8, "local", 0), (8, 1, "cuda", 0)],
)
def test_many_workers_read_a_large_graph(
    workers: int, threads: int, kind: str, found: int
) -> None:
    size = GraphSize(nodes=50_000_000, edges=1_600_000_000, features=8)
    settings = load_settings(
        overrides=[
            f"cluster.kind={kind}",
            f"cluster.workers={workers}",
            f"cluster.threads={threads}",
            "cluster.memory_limit=64 GiB",
            "cluster.device_memory=64 GiB",
        ]
    )
    figures = estimate_counts(size, settings)
    assert figures.ingest_workers == found
    assert ("edges read by" in dict(figures.lines())) == bool(found)
