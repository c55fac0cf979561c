"""Prefect APIs for the flow tests: the in-process test harness and a real server."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import psutil
import pytest
import yaml

from tests.conftest import (
    free_port,
    small_settings,
    started,
    wait_until,
    write_graph,
)
from xnq_dist.app.environment import DEFAULTS
from xnq_dist.jobs import run_all
from xnq_dist.monitor.status import recorded

ROOT = Path(__file__).parents[2]
PREFECT = str(Path(sys.executable).with_name("prefect"))


@pytest.fixture(scope="session")
def finished_run(tmp_path_factory) -> Path:
    """A finished run that was recorded; tests change copies of it."""
    folder = tmp_path_factory.mktemp("finished")
    graph = write_graph(folder / "input", nodes=150, edges=500)
    settings = small_settings("cluster.workers=1", "reservoir.supersteps=3")
    with recorded(str(folder / "run")):
        run_all(graph.sources, str(folder / "run"), settings)
    return folder / "run"


@pytest.fixture
def run_copy(finished_run, tmp_path) -> Path:
    """A copy of a finished run."""
    subprocess.run(
        ["cp", "-a", str(finished_run), str(tmp_path / "run")], check=True, timeout=60
    )
    return tmp_path / "run"


@pytest.fixture(scope="session")
def prefect_api() -> Iterator[None]:
    """Prefect's test harness: a server with a temporary database."""
    from prefect.testing.utilities import prefect_test_harness

    with prefect_test_harness(server_startup_timeout=120):
        yield


@pytest.fixture(scope="session")
def prefect_home(tmp_path_factory) -> dict[str, str]:
    """An environment with a separate folder for Prefect's files."""
    home = tmp_path_factory.mktemp("prefect")
    kept = {k: v for k, v in os.environ.items() if not k.startswith("PREFECT_")}
    return kept | DEFAULTS | {"PREFECT_HOME": str(home)}


@contextmanager
def running_server(
    environment: dict[str, str],
) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """A `prefect server`: the URL of its API, and its process."""
    port = free_port()
    url = f"http://127.0.0.1:{port}/api"
    where = ("--host", "127.0.0.1", "--port", str(port))
    server = started(PREFECT, "server", "start", *where, env=environment)

    def answers() -> bool:
        assert server.poll() is None, "the server ended"
        try:
            return httpx.get(f"{url}/health", timeout=5).is_success
        except httpx.HTTPError:
            return False

    try:
        wait_until(answers, 300)
        yield url, server
    finally:
        server.terminate()
        server.wait(30)


@pytest.fixture(scope="session")
def server_environment(prefect_home) -> Iterator[dict[str, str]]:
    """The environment of a job that uses a running `prefect server`."""
    with running_server(prefect_home) as (url, _):
        yield prefect_home | {"PREFECT_API_URL": url}


def end_all(process: subprocess.Popen[bytes]) -> None:
    """Kill a process, then all that it started."""
    children = []
    if process.poll() is None:
        children = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    for child in children:
        with suppress(psutil.NoSuchProcess):
            child.kill()
    process.wait(60)


def deploy(
    environment: dict[str, str], folder: Path, schedule: dict[str, object], **settings
) -> Path:
    """Deploy `nightly` of `deploy/prefect.yaml` for a small graph; return its run.

    Parameters
    ----------
    folder
        Where the graph, the file and the run directory go.
    settings
        Sections of the settings that replace those for a very short run.
    """
    if not (folder / "input").exists():
        write_graph(folder / "input", nodes=200, edges=700)
    description = yaml.safe_load((ROOT / "deploy" / "prefect.yaml").read_text())
    nightly = description["deployments"][0]
    nightly["schedules"] = [schedule]
    short = {
        "reservoir": {
            "dim": 8,
            "supersteps": 2,
            "recurrent_scale": 1.0,
            "input_scale": 0.5,
        },
        "readout": {"C": 1.0},
        "cluster": {"workers": 1, "threads": 1},
    }
    nightly["parameters"] = {
        "nodes": str(folder / "input" / "nodes.parquet"),
        "edges": str(folder / "input" / "edges.parquet"),
        "out": str(folder / "run"),
        "settings": short | settings,
    }
    file = folder / "prefect.yaml"
    file.write_text(yaml.safe_dump(description))
    environment = environment | {"XNQ_ROOT": str(ROOT)}
    prefect(environment, "work-pool", "create", "--type", "process", "xnq")
    prefect(
        environment,
        *("--no-prompt", "deploy", "--prefect-file", str(file), "--name", "nightly"),
    )
    return folder / "run"


def prefect(environment: dict[str, str], *words: str) -> str:
    """The output of a command of Prefect, run at the root of the clone."""
    done = subprocess.run(
        [PREFECT, *words],
        env=environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def start_worker(environment: dict[str, str], *options: str) -> subprocess.Popen[bytes]:
    """A worker of the pool `xnq`."""
    command = (PREFECT, "worker", "start", "--pool", "xnq", *options)
    return started(*command, env=environment | {"XNQ_ROOT": str(ROOT)}, cwd=ROOT)
