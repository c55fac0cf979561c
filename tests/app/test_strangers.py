"""Those who have no credentials of a running job have no access to it.

Its files are its owner's alone (`core/test_cluster.py`), so that other users of the
machine have none either.
"""

from __future__ import annotations

import asyncio
import http.client
import os
import signal
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from distributed import LocalCluster, Security
from distributed.core import connect
from distributed.protocol.pickle import dumps

from tests.app.commands import PROGRAM, SHORT, run_words
from tests.conftest import started, wait_until, write_graph

pytestmark = pytest.mark.slow

PAGES = ("/", "/info/main/workers.html", "/json/identity.json", "/metrics")
SECONDS = 10
"""That an answer may take."""


def listening(pid: int) -> set[int]:
    """Ports that a process and its children listen at."""
    process = psutil.Process(pid)
    return {
        connection.laddr.port
        for each in (process, *process.children(recursive=True))
        for connection in each.net_connections("tcp")
        if connection.status == psutil.CONN_LISTEN
    }


async def request(address: str, op: str, file: Path, arguments: Any) -> None:
    """Ask for a new file, as Dask's processes ask each other to run a function."""
    message = {
        "op": op,
        "function": dumps(Path.touch),
        "args": dumps((file,)),
        "kwargs": dumps({}),
        "wait": True,
        "reply": True,
    }

    async def asked() -> None:
        comm = await connect(address, timeout=SECONDS, **arguments)
        try:
            await comm.write(message)
            await comm.read()
        finally:
            comm.abort()

    # `connect` has no timeout for a peer that accepts and sends nothing.
    with suppress(OSError, TimeoutError, ValueError, EOFError):
        await asyncio.wait_for(asked(), SECONDS)


async def executed(folder: Path, ports: set[int]) -> set[str]:
    """Operations that ports executed, without credentials and with others."""
    folder.mkdir()
    own = Security.temporary().get_connection_args("client")
    tries = [
        request(f"{scheme}://127.0.0.1:{port}", op, folder / f"{scheme} {op}", more)
        for port in ports
        for scheme, more in (("tcp", {}), ("tls", own))
        for op in ("run_function", "run")
    ]
    await asyncio.gather(*tries)
    return {file.name for file in folder.iterdir()}


def pages(ports: set[int]) -> set[int]:
    """HTTP status of the pages at all ports that are of web servers."""
    found = set()
    for port in ports:
        for page in PAGES:
            url = f"http://127.0.0.1:{port}{page}"
            try:
                with urllib.request.urlopen(url, timeout=SECONDS) as answer:
                    found.add(answer.status)
            except urllib.error.HTTPError as error:
                found.add(error.code)
            except (OSError, ValueError, http.client.HTTPException):
                break
    return found


@contextmanager
def running_job(folder: Path, home: dict[str, str]) -> Iterator[int]:
    """A job that is running its supersteps."""
    write_graph(folder / "input", nodes=200, edges=700)
    settings = (
        *("reservoir.supersteps=10000", "checkpoint.every=5", "partitions=4"),
        *("cluster.workers=2", "cluster.threads=1"),
    )
    words = run_words(folder / "input", folder / "run", *SHORT, *settings)
    environment = {k: v for k, v in home.items() if k != "PREFECT_API_URL"}
    checkpoints = folder / "run" / "checkpoints"
    with started(*PROGRAM, *words, env=environment) as job:
        try:
            wait_until(lambda: [*checkpoints.glob("*/_manifest.json")])
            yield job.pid
        finally:
            job.send_signal(signal.SIGTERM)
            job.wait(120)


def test_a_cluster_with_credentials_refuses_those_without(tmp_path, prefect_home):
    with running_job(tmp_path, prefect_home) as pid:
        ports = listening(pid)
        # Scheduler, two nannies, two workers; the pages of three.
        assert len(ports) == 8
        assert asyncio.run(executed(tmp_path / "made", ports)) == set()
        assert pages(ports) <= {404}
        assert listening(pid) == ports  # nothing ended, nothing opened
    assert (tmp_path / "run").stat().st_mode & 0o777 == 0o700


def test_a_cluster_without_credentials_obeys_everyone(tmp_path):
    """On an open cluster, the attack of the test above succeeds."""
    with LocalCluster(
        n_workers=1, threads_per_worker=1, dashboard_address="127.0.0.1:0"
    ):
        ports = listening(os.getpid())
        ran = asyncio.run(executed(tmp_path / "made", ports))
        assert {200, 404} <= pages(ports)
    assert ran == {"tcp run_function", "tcp run"}
