"""Exit status of real commands that are interrupted or lose their infrastructure."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.chaos.processes import Cluster, Launch, Running, marked, wait_until
from tests.conftest import write_graph

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
    assert wait_until(
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
    assert wait_until(lambda: not marked(launch.mark), 60)
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
        assert wait_until(lambda: not marked(launch.mark), 30)
        assert not (out / "_lock.json").exists()
    found = whole(launch.start(out, SETTINGS), out)
    assert found.equals(
        whole(launch.start(tmp_path / "calm", SETTINGS), tmp_path / "calm")
    )
    assert list(launch.temporary.glob("xnq-dist-*")) == []


def test_a_terminated_command_resumes_after_its_last_superstep(launch, tmp_path):
    """SIGTERM to all its processes, as from systemd or Prefect."""
    longer = [*SETTINGS, "reservoir.supersteps=4000", "checkpoint.every=1000"]
    running = launch.start(tmp_path / "run", longer)
    periodic = tmp_path / "run/checkpoints/step-01000/_manifest.json"
    assert wait_until(lambda: running.over or periodic.exists(), 120, 0.002)
    time.sleep(0.2)
    os.killpg(running.process.pid, signal.SIGTERM)
    began = time.monotonic()
    assert "interrupted by SIGTERM" in ended(running, 4)
    assert time.monotonic() - began < 30  # of Kubernetes and SLURM, then SIGKILL
    words = "checkpoint after superstep", "resuming after superstep"
    (written,) = steps(words[0], running)
    assert 1000 < written < 4000
    again = launch.start(tmp_path / "run", longer)
    found = whole(again, tmp_path / "run")
    assert steps(words[1], again) == [written]
    calm = tmp_path / "calm"
    assert found.equals(whole(launch.start(calm, longer), calm))


def steps(words: str, running: Running) -> list[int]:
    """Numbers of supersteps that a run's log lines name."""
    return [int(n) for n in re.findall(rf"{words} (\d+)", "".join(running.lines))]


def test_lost_scheduler_ends_with_status_4(launch, tmp_path):
    with Cluster(launch, 1) as cluster:
        where = ["cluster.kind=address", f"cluster.address={cluster.address}"]
        running = launch.start(tmp_path / "run", [*SETTINGS, *where])
        at(running, "embed")
        cluster.scheduler.kill()
        assert "run again" in ended(running, 4)


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
