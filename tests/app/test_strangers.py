"""Other users of the machine have no access to a running job."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from distributed import LocalCluster

from tests.app.commands import PROGRAM, SHORT, run_words
from tests.conftest import write_graph

STRANGER = Path(__file__).with_name("stranger.py")
NOBODY = 65534
"""Whom the stranger is where the tests are run by root; else the same user, who has
the credentials of nothing."""


def ask(folder: Path, ports: list[int]) -> dict[int, dict[str, Any]]:
    """Responses to another user from each port."""
    folder.mkdir(exist_ok=True)
    folder.chmod(0o777)
    user = NOBODY if os.getuid() == 0 else os.getuid()
    done = subprocess.run(
        [sys.executable, str(STRANGER), str(user), str(folder), *map(str, ports)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        cwd="/",
        env={"PATH": os.environ["PATH"], "HOME": str(folder)},
    )
    assert done.returncode == 0, done.stderr
    return {int(port): answers for port, answers in json.loads(done.stdout).items()}


def listening(pid: int) -> dict[int, int]:
    """Ports that a process and its children listen at, with their owners."""
    process = psutil.Process(pid)
    return {
        connection.laddr.port: each.pid
        for each in (process, *process.children(recursive=True))
        for connection in each.net_connections("tcp")
        if connection.status == psutil.CONN_LISTEN
    }


@pytest.fixture
def open_folder(tmp_path_factory) -> Iterator[Path]:
    """A folder that every user can write to."""
    import tempfile

    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@contextmanager
def running_job(folder: Path, home: dict[str, str]) -> Iterator[int]:
    """A job that is running its supersteps."""
    write_graph(folder / "input", nodes=200, edges=700)
    settings = (
        *("reservoir.supersteps=10000", "checkpoint.every=5", "partitions=4"),
        *("cluster.workers=2", "cluster.threads=1"),
    )
    words = run_words(folder / "input", folder / "run", *SHORT, *settings)
    command = [*PROGRAM, *words]
    environment = {k: v for k, v in home.items() if k != "PREFECT_API_URL"}
    log = (folder / "log").open("w")
    with log, subprocess.Popen(command, env=environment, stderr=log) as job:
        try:
            checkpoints = folder / "run" / "checkpoints"
            end = time.monotonic() + 240
            while not any(checkpoints.glob("*/_manifest.json")):
                assert job.poll() is None, (folder / "log").read_text()
                assert time.monotonic() < end, (folder / "log").read_text()
                time.sleep(0.2)
            yield job.pid
        finally:
            job.send_signal(signal.SIGTERM)
            job.wait(120)


@pytest.mark.slow
def test_a_cluster_with_credentials_refuses_other_users(
    tmp_path, open_folder, prefect_home
):
    with running_job(tmp_path, prefect_home) as pid:
        ports = listening(pid)
        answers = ask(open_folder / "stranger", list(ports))
        assert set(listening(pid)) == set(ports)  # nothing ended, nothing opened
    # Scheduler, two nannies, two workers; the pages of three.
    assert len(ports) == 8
    for answer in answers.values():
        assert not answer["ran"]
        assert set(answer["pages"].values()) <= {404}
    assert (tmp_path / "run").stat().st_mode & 0o777 == 0o700


@pytest.mark.slow
def test_a_cluster_without_credentials_obeys_other_users(open_folder):
    """On an open cluster, the attack of the test above succeeds."""
    with LocalCluster(
        n_workers=1, threads_per_worker=1, dashboard_address="127.0.0.1:0"
    ) as cluster:
        ports = listening(os.getpid())
        answers = ask(open_folder / "stranger", list(ports))
        scheduler = int(cluster.scheduler_address.rsplit(":", 1)[1])
    assert answers[scheduler]["ran"] == ["tcp run_function"]
    others = [a["ran"] for port, a in answers.items() if port != scheduler]
    assert ["tcp run"] in others
    assert {200, 404} <= {s for a in answers.values() for s in a["pages"].values()}
