"""Exit status of real commands that are interrupted or lose their infrastructure."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.chaos.processes import Cluster, Launch, Running, marked
from tests.conftest import wait_until, write_graph

pytestmark = [pytest.mark.faults, pytest.mark.server]

SETTINGS = [
    "method=xnq",
    "quantifier=sld",
    "reservoir.dim=8",
    "reservoir.supersteps=20",
    "reservoir.recurrent_scale=1.0",
    "reservoir.input_scale=0.5",
    "checkpoint.every=5",
    "readout.C=1.0",
    "partitions=2",
    "intervals.resamples=20",
    "cluster.workers=1",
    "cluster.threads=1",
    "cluster.timeout=20",
]


@pytest.fixture(scope="module")
def tables(tmp_path_factory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("exit-codes")
    write_graph(folder, nodes=240, edges=900)
    members = {"community": [node // 30 for node in range(240)]}
    members["node_id"] = list(range(240))
    pq.write_table(pa.table(members), folder / "memberships.parquet")
    names = ("nodes", "edges", "memberships")
    return {name: str(folder / f"{name}.parquet") for name in names}


@pytest.fixture
def launch(tables, tmp_path, server_environment) -> Launch:
    (tmp_path / "tmp").mkdir()
    return Launch(tmp_path.name, tables, tmp_path / "tmp", server_environment)


def at(running: Running, stage: str) -> None:
    """Wait until a run has reached a stage."""
    order = ("start", "graph", "embed", "readout", "quantify", "publish")
    wanted = order.index(stage)
    wait_until(
        lambda: running.over or order.index(running.reached()) >= wanted, 120, 0.002
    )
    assert not running.over, "".join(running.lines)


def ended(running: Running, status: int) -> str:
    """The error message of a run, which is also the only JSON on stdout."""
    assert running.end(120) == status, "".join(running.lines)
    (sentence,) = running.sentences()
    assert not any(line.startswith("Traceback (") for line in running.lines)
    found = json.loads("".join(running.out))
    assert found == {"error": sentence.removeprefix("xnq-dist: "), "exit_code": status}
    return sentence


def whole(running: Running, out: Path) -> pa.Table:
    """The published values of a run without interruption."""
    assert running.end(180) == 0, "".join(running.lines)
    assert not running.sentences()
    return pq.read_table(out / "prevalence.parquet")


def test_signals_at_any_stage_end_with_status_4_and_the_next_run_resumes(
    launch, tmp_path
):
    """A run that is interrupted in every stage is completed, its processes end."""
    out = tmp_path / "run"
    killed = launch.start(out, SETTINGS)
    at(killed, "embed")
    os.kill(killed.process.pid, signal.SIGKILL)
    assert killed.end(120) == -signal.SIGKILL
    wait_until(lambda: not marked(launch.mark), 60)
    for stage, number in (
        ("graph", signal.SIGINT),
        ("embed", signal.SIGTERM),
        ("quantify", signal.SIGHUP),
    ):
        running = launch.start(out, SETTINGS)
        at(running, stage)
        # To all its processes, as a terminal or batch system does.
        os.killpg(running.process.pid, number)
        sentence = ended(running, 4)
        assert f"interrupted by {number.name}" in sentence
        assert "run again to resume" in sentence
        wait_until(lambda: not marked(launch.mark), 30)
        assert not (out / "_lock.json").exists()
    found = whole(launch.start(out, SETTINGS), out)
    assert found.equals(
        whole(launch.start(tmp_path / "calm", SETTINGS), tmp_path / "calm")
    )
    assert list(launch.temporary.glob("xnq-dist-*")) == []


def test_lost_scheduler_ends_with_status_4(launch, tmp_path):
    with Cluster(tmp_path, 1, launch.environ()) as cluster:
        where = ["cluster.kind=address", f"cluster.address={cluster.address}"]
        running = launch.start(tmp_path / "run", [*SETTINGS, *where])
        at(running, "embed")
        cluster.scheduler.kill()
        assert "run again" in ended(running, 4)


@pytest.mark.parametrize("stage", ["embed", "quantify"])
def test_a_command_whose_workers_are_killed_recovers_or_names_it(
    launch, tmp_path, stage
):
    two = [*SETTINGS, "cluster.workers=2"]
    running = launch.start(tmp_path / "run", two)
    at(running, stage)
    for worker in running.workers:
        worker.kill()
    if status := running.end(240):
        assert status in (3, 4)
        ended(running, status)
    found = whole(launch.start(tmp_path / "run", two), tmp_path / "run")
    calm = tmp_path / "calm"
    assert found.equals(whole(launch.start(calm, two), calm))
    wait_until(lambda: not marked(launch.mark), 30)


def test_ignored_hang_up_stays_ignored(launch, tmp_path):
    """As under `nohup`."""
    code = "import signal, sys; signal.signal(signal.SIGHUP, signal.SIG_IGN); "
    code += "import xnq_dist.app.cli as cli, time; "
    code += "cli.app = lambda *_, **__: time.sleep(1); "
    code += "import os, threading; "
    code += "threading.Timer(.3, os.kill, (os.getpid(), signal.SIGHUP)).start(); "
    code += "cli.main([])"
    done = subprocess.run(
        [sys.executable, "-c", code], env=launch.environ(), check=False, timeout=60
    )
    assert done.returncode == 0
