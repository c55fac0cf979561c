"""Workers and schedulers that die or stop, as real processes of a cluster of one's own.

Other workers repeat the work of a lost worker, with the same bits; without workers the
stage ends with an error. Neither takes longer than `cluster.timeout` + 60 s.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.conftest import SmallGraph, small_settings, write_graph
from tests.graph.test_prepare import digests
from xnq_dist import pipeline
from xnq_dist.core import cluster, waiting
from xnq_dist.core.errors import InfrastructureError
from xnq_dist.core.settings import Settings
from xnq_dist.core.store import RunDirectory
from xnq_dist.graph import edge_tasks
from xnq_dist.plan import ingest

TIMEOUT = 6.0
"""`cluster.timeout` of these tests; workers import modules in less."""

SETTINGS = ("partitions=4", f"cluster.timeout={TIMEOUT:g}", "cluster.kind=address")

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:distributed.*")


@dataclass
class Processes:
    """A scheduler and two workers."""

    address: str
    scheduler: subprocess.Popen[bytes]
    workers: list[subprocess.Popen[bytes]]

    def settings(self, *more: str) -> Settings:
        """Settings that name this cluster."""
        return small_settings(*SETTINGS, f"cluster.address={self.address}", *more)


@contextmanager
def _process(*arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "dask", *arguments]
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as started:
        try:
            yield started
        finally:
            started.kill()


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    """A cluster without nannies, which would restart workers."""
    file = tmp_path / "scheduler.json"
    own = ("--host", "127.0.0.1", "--port", "0", "--no-dashboard")
    with ExitStack() as started:
        scheduler = started.enter_context(
            _process("scheduler", *own, "--scheduler-file", str(file))
        )
        end = time.monotonic() + 60
        while not file.exists() or not file.read_text():
            assert time.monotonic() < end, "the scheduler did not start"
            time.sleep(0.05)
        address = json.loads(file.read_text())["address"]
        worker = ("worker", address, "--no-nanny", "--nthreads", "1", "--no-dashboard")
        found = [
            started.enter_context(
                _process(*worker, "--local-directory", str(tmp_path / f"worker-{n}"))
            )
            for n in range(2)
        ]
        with cluster.connect(cluster.Connection(address), 60.0) as client:
            while len(cluster.workers(client)) < 2:
                assert time.monotonic() < end + 60, "the workers did not start"
                time.sleep(0.1)
        yield Processes(address, scheduler, found)


@dataclass
class Done:
    """A run without faults."""

    folder: Path
    graph: SmallGraph


@pytest.fixture(scope="module")
def calm(
    tmp_path_factory: pytest.TempPathFactory,
    cluster_connection: cluster.Connection,
    tls_settings: dict[str, str],
) -> Done:
    folder = tmp_path_factory.mktemp("calm")
    graph = write_graph(folder / "input", nodes=200, edges=800)
    members = {"community": [f"c{v % 7}" for v in range(200)], "node_id": range(200)}
    path = folder / "input" / "memberships.parquet"
    pq.write_table(pa.table({k: list(v) for k, v in members.items()}), path)
    graph = replace(graph, sources=replace(graph.sources, memberships=str(path)))
    run = RunDirectory(folder / "run")
    run.folder.create()
    where = [f"cluster.{name}={value}" for name, value in tls_settings.items()]
    settings = small_settings(*SETTINGS, *where)
    pipeline.prepare(run, graph.sources, settings)
    with cluster.connect(cluster_connection) as client:
        pipeline.embed(run, settings, client)
        pipeline.fit_readout(run, settings, client)
        pipeline.posteriors(run, settings, client)
        pipeline.quantify(run, graph.sources, settings, client)
    return Done(folder / "run", graph)


def begun(calm: Done, folder: Path, *stages: str) -> RunDirectory:
    """A copy of the run without faults that has only these stages."""
    shutil.copytree(calm.folder, folder)
    for stage in ("embeddings", "readout", "posteriors", "quantify"):
        if stage not in stages:
            shutil.rmtree(folder / stage, ignore_errors=True)
    return RunDirectory(folder)


def values(folder: Path, stage: str) -> list[bytes]:
    """Every value of a stage's tables."""
    found = []
    for file in sorted((folder / stage).glob("*.parquet")):
        table = pq.read_table(file)
        found += [repr(table[name].to_pylist()).encode() for name in table.column_names]
    return found


def do(
    stage: str,
    run: RunDirectory,
    calm: Done,
    processes: Processes,
    fault: Callable[[], None],
    *more: str,
) -> float:
    """Run a stage and inject a fault at its first progress; return the seconds."""
    settings = processes.settings(*more)
    injected = False

    def progress(what: str, done: int, total: int) -> None:
        nonlocal injected
        if not injected and what not in ("communities",):
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
                sources = calm.graph.sources
                pipeline.quantify(run, sources, settings, client, progress)
    finally:
        assert injected
        assert time.monotonic() - began < TIMEOUT + 60
    return time.monotonic() - began


BEFORE = {
    "embeddings": (),
    "posteriors": ("embeddings",),
    "quantify": ("embeddings", "readout", "posteriors"),
}


@pytest.mark.faults
@pytest.mark.parametrize("stage", ["embeddings", "posteriors", "quantify"])
def test_a_stopped_worker_is_replaced_by_the_others(
    stage, calm, processes, tmp_path, caplog
):
    run = begun(calm, tmp_path / "run", *BEFORE[stage])
    stopped = processes.workers[0]
    try:
        do(stage, run, calm, processes, lambda: os.kill(stopped.pid, signal.SIGSTOP))
    finally:
        with suppress(ProcessLookupError):
            os.kill(stopped.pid, signal.SIGCONT)
    assert values(tmp_path / "run", stage) == values(calm.folder, stage)
    assert "no sign of life" in caplog.text or "has not answered" in caplog.text


def test_edges_of_a_lost_worker_are_read_again(calm, processes, tmp_path, monkeypatch):
    monkeypatch.setattr(ingest, "MIN_EDGES", 0)
    monkeypatch.setattr(edge_tasks, "ROWS", 1)
    monkeypatch.setattr(edge_tasks, "PAIRS", 1)
    run = RunDirectory(tmp_path / "run")
    run.folder.create()
    killed = []

    def progress(what: str, done: int, total: int) -> None:
        if what == "read edges" and not killed:
            killed.append(processes.workers[0])
            processes.workers[0].kill()

    at = cluster.Connection(processes.address)
    found = pipeline.prepare(
        *(run, calm.graph.sources, processes.settings(), progress),
        connect=lambda: cluster.connect(at, TIMEOUT),
    )
    assert killed
    graph = RunDirectory(calm.folder).stage("graph").manifest()
    assert digests(found) == digests(graph)
    assert found.facts == graph.facts


@pytest.mark.faults
def test_all_workers_dead_in_the_readout_end_it_in_a_sentence(
    calm, processes, tmp_path
):
    run = begun(calm, tmp_path / "run", "embeddings")

    def kill() -> None:
        for worker in processes.workers:
            worker.kill()

    with pytest.raises(
        InfrastructureError, match=r"no Dask worker.*run again to resume"
    ):
        do("posteriors", run, calm, processes, kill)


@pytest.mark.faults
def test_all_workers_stopped_in_quantify_end_it_in_a_sentence(
    calm, processes, tmp_path, monkeypatch
):
    # These workers are not restarted, so a shorter wait is enough.
    monkeypatch.setattr(waiting, "RETURN", 3.0)
    run = begun(calm, tmp_path / "run", *BEFORE["quantify"])

    def stop() -> None:
        for worker in processes.workers:
            os.kill(worker.pid, signal.SIGSTOP)

    with pytest.raises(
        InfrastructureError, match=r"no Dask worker.*run again to resume"
    ):
        do("quantify", run, calm, processes, stop)


@pytest.mark.parametrize(
    ("stage", "number"),
    [
        ("posteriors", signal.SIGKILL),
        pytest.param("quantify", signal.SIGKILL, marks=pytest.mark.faults),
        pytest.param("quantify", signal.SIGSTOP, marks=pytest.mark.faults),
    ],
    ids=["readout-killed", "quantify-killed", "quantify-stopped"],
)
def test_a_lost_scheduler_ends_the_stage_in_a_sentence(
    stage, number, calm, processes, tmp_path
):
    run = begun(calm, tmp_path / "run", *BEFORE[stage])
    with pytest.raises(InfrastructureError, match=r"scheduler.*run again to resume"):
        do(stage, run, calm, processes, lambda: processes.scheduler.send_signal(number))


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
