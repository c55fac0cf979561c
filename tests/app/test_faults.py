"""Killed clients: the run resumes from its checkpoint with the same results."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pyarrow.parquet as pq
import pytest

from tests.app.commands import PROGRAM, executed, run_words
from tests.conftest import write_graph

SETTINGS = (
    "method=xnq",
    "reservoir.dim=32",
    "reservoir.supersteps=40",
    "reservoir.recurrent_scale=3.0",
    "reservoir.input_scale=0.5",
    "checkpoint.every=5",
    "partitions=3",
    "readout.C=1.0",
    "cluster.workers=2",
    "cluster.threads=1",
)


def command(graph: Path, out: Path) -> list[str]:
    return [*run_words(graph, out, *SETTINGS), "--json"]


def finish(graph: Path, out: Path, environment: dict[str, str]) -> tuple[dict, str]:
    """Run to the end; return the summary and the log."""
    done = executed(*command(graph, out), env=environment)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.strip().splitlines()[-1]), done.stderr


def kill_after_a_checkpoint(
    graph: Path, out: Path, environment: dict[str, str], number: signal.Signals
) -> list[psutil.Process]:
    """Start a run and send it a signal once a checkpoint is complete."""
    with subprocess.Popen(
        [*PROGRAM, *command(graph, out)],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as running:
        end = time.monotonic() + 120
        while not list(out.glob("checkpoints/step-*/_manifest.json")):
            assert running.poll() is None, "ended before its first checkpoint"
            assert time.monotonic() < end
            time.sleep(0.02)
        children = psutil.Process(running.pid).children(recursive=True)
        os.kill(running.pid, number)
        status = running.wait(60)
    assert status != 0
    return children


@pytest.fixture(scope="module")
def graph(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("faults") / "input"
    write_graph(folder, nodes=3000, edges=9000)
    return folder


@pytest.fixture(scope="module")
def calm(graph, server_environment, deployed) -> dict:
    """The same run without interruption, with a running Prefect server.

    The fixture `deployed` is requested so that its cron run starts during these tests.
    """
    summary, _ = finish(graph, graph.parent / "calm", server_environment)
    return summary


@pytest.mark.faults
@pytest.mark.server
@pytest.mark.parametrize(
    "number", [signal.SIGKILL, signal.SIGTERM], ids=lambda n: n.name
)
def test_killed_client_resumes_from_its_checkpoint(
    graph, calm, server_environment, tmp_path, number
):
    out = tmp_path / "run"
    children = kill_after_a_checkpoint(graph, out, server_environment, number)
    assert not (out / "prevalence.parquet").exists()
    assert not (out / "embeddings" / "_manifest.json").exists()
    # Its workers have ended too.
    _, alive = psutil.wait_procs(children, timeout=60)
    assert alive == []
    summary, log = finish(graph, out, server_environment)
    assert "stage graph: complete, nothing to do" in log
    assert "resuming after superstep" in log
    expected = pq.read_table(calm["prevalence"])
    assert pq.read_table(summary["prevalence"]).equals(expected)


@pytest.mark.faults
@pytest.mark.server
def test_a_finished_run_stays_as_it_is(graph, calm, server_environment):
    before = sorted(p.name for p in Path(calm["run"]).glob("*/*.parquet"))
    _, log = finish(graph, Path(calm["run"]), server_environment)
    assert "nothing changed since" in log
    assert "stage" not in log
    assert before == sorted(p.name for p in Path(calm["run"]).glob("*/*.parquet"))


LOSES_ITS_SIGNAL = """
import os, signal, sys, time
from xnq_dist.app import cli

class Finalised:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(1)  # the handler raises in here, where nobody can catch it

def work(args, *name, **options):
    Finalised()
    time.sleep(20)

cli.app = work
cli.main([])
"""


def test_signal_raised_in_a_finaliser_still_ends_the_run():
    done = subprocess.run(
        [sys.executable, "-c", LOSES_ITS_SIGNAL],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 4, done.stderr
    assert "interrupted by SIGTERM: run again to resume" in done.stderr
