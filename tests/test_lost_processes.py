"""Workers and schedulers that die or stop, as real processes of a cluster of one's own.

Other workers repeat the work of a lost worker, with the same bits; without workers the
stage ends with an error. Neither takes longer than `cluster.timeout` + 60 s.
"""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.chaos.processes import Cluster
from tests.conftest import small_settings, write_graph
from tests.graph.tasks import small_tasks
from tests.graph.test_prepare import digests
from xnq_dist import jobs, pipeline
from xnq_dist.core import cluster, waiting
from xnq_dist.core.errors import InfrastructureError
from xnq_dist.core.settings import Settings
from xnq_dist.core.store import RunDirectory
from xnq_dist.graph.sources import Sources
from xnq_dist.plan import of_tables

TIMEOUT = 10.0
"""`cluster.timeout` of these tests; workers import modules in less."""

SETTINGS = ("partitions=4", f"cluster.timeout={TIMEOUT:g}", "cluster.kind=address")

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:distributed.*")


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path, 2) as started:
        yield started


def settings_on(processes: Cluster) -> Settings:
    """Settings that name this cluster."""
    return small_settings(*SETTINGS, f"cluster.address={processes.address}")


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Sources]:
    """The directory of a run without faults, in one process, and its tables."""
    folder = tmp_path_factory.mktemp("calm")
    graph = write_graph(folder / "input", nodes=200, edges=800)
    nodes = np.arange(200)
    members = pa.table({"community": nodes % 7, "node_id": nodes})
    path = str(folder / "input" / "memberships.parquet")
    pq.write_table(members, path)
    sources = replace(graph.sources, memberships=path)
    single = small_settings("partitions=4", "cluster.workers=1")
    jobs.run_all(sources, str(folder / "run"), single)
    return folder / "run", sources


def begun(calm: tuple[Path, Sources], folder: Path, *stages: str) -> RunDirectory:
    """A copy of the run without faults that has only these stages."""
    shutil.copytree(calm[0], folder)
    for stage in ("embeddings", "readout", "posteriors", "quantify"):
        if stage not in stages:
            shutil.rmtree(folder / stage, ignore_errors=True)
    return RunDirectory(folder)


def values(folder: Path, stage: str) -> list[pa.Table]:
    """The tables of a stage."""
    return [pq.read_table(file) for file in sorted((folder / stage).glob("*.parquet"))]


def do(
    stage: str,
    run: RunDirectory,
    calm: tuple[Path, Sources],
    processes: Cluster,
    fault: Callable[[], None],
) -> None:
    """Run a stage and inject a fault at its first progress."""
    settings = settings_on(processes)
    injected = False

    def progress(what: str, done: int, total: int) -> None:
        nonlocal injected
        if not injected and what != "communities":
            injected = True
            fault()

    began = time.monotonic()
    try:
        with cluster.connect(cluster.Connection(processes.address), TIMEOUT) as client:
            if stage == "embeddings":
                pipeline.embed(run, settings, client, progress)
            elif stage == "posteriors":
                pipeline.fit_readout(run, settings, client, progress)
                pipeline.posteriors(run, settings, client, progress)
            else:
                pipeline.quantify(run, calm[1], settings, client, progress)
    finally:
        assert injected
        assert time.monotonic() - began < TIMEOUT + 60


BEFORE = {
    "embeddings": (),
    "posteriors": ("embeddings",),
    "quantify": ("embeddings", "readout", "posteriors"),
}


@pytest.mark.faults
@pytest.mark.parametrize("stage", ["embeddings", "posteriors", "quantify"])
def test_a_stopped_worker_is_replaced_by_the_others(stage, calm, processes, tmp_path):
    run = begun(calm, tmp_path / "run", *BEFORE[stage])
    stopped = processes.workers[0]
    try:
        do(stage, run, calm, processes, lambda: os.kill(stopped.pid, signal.SIGSTOP))
    finally:
        with suppress(ProcessLookupError):
            os.kill(stopped.pid, signal.SIGCONT)
    assert values(tmp_path / "run", stage) == values(calm[0], stage)


def test_edges_of_a_lost_worker_are_read_again(calm, processes, tmp_path, monkeypatch):
    monkeypatch.setattr(of_tables, "MIN_EDGES", 0)
    small_tasks(monkeypatch)
    run = RunDirectory(tmp_path / "run")
    run.create()
    killed = []

    def progress(what: str, done: int, total: int) -> None:
        if what == "read edges" and not killed:
            killed.append(processes.workers[0])
            processes.workers[0].kill()

    at = cluster.Connection(processes.address)
    found = pipeline.prepare(
        *(run, calm[1], settings_on(processes), progress),
        connect=lambda: cluster.connect(at, TIMEOUT),
    )
    assert killed
    graph = RunDirectory(calm[0]).stage("graph").manifest()
    assert digests(found) == digests(graph)
    assert found.facts == graph.facts


@pytest.mark.faults
@pytest.mark.parametrize(
    ("stage", "number"),
    [("posteriors", signal.SIGKILL), ("quantify", signal.SIGSTOP)],
    ids=["readout-killed", "quantify-stopped"],
)
@pytest.mark.parametrize(
    ("lost", "words"), [("workers", "no Dask worker"), ("scheduler", "scheduler")]
)
def test_loss_of_all_workers_or_the_scheduler_ends_the_stage_in_a_sentence(
    stage, number, lost, words, calm, processes, tmp_path
):
    run = begun(calm, tmp_path / "run", *BEFORE[stage])

    def lose() -> None:
        ends = processes.workers if lost == "workers" else [processes.scheduler]
        for process in ends:
            process.send_signal(number)

    with pytest.raises(InfrastructureError, match=f"{words}.*run again to resume"):
        do(stage, run, calm, processes, lose)


@pytest.mark.faults
def test_work_of_three_times_the_timeout_is_waited_for(cluster_connection):
    with cluster.connect(cluster_connection, 2.0) as client:
        began = time.monotonic()
        computing = client.submit(_compute, 6.5, pure=False)
        assert waiting.result(client, computing) > 0
        assert time.monotonic() - began > 6


def _compute(seconds: float) -> float:
    """Work in Python and NumPy, as a task does; it never sleeps."""
    end = time.monotonic() + seconds
    total, rows = 0.0, np.ones((300, 300))
    while time.monotonic() < end:
        total += float((rows @ rows).sum()) + sum(range(1000))
    return total
