"""A Dask cluster as processes that a test may kill or stop."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.conftest import free_port, started

__all__ = ["Cluster"]


class Cluster:
    """Context manager: a scheduler and workers that a run uses by address.

    Workers have no nannies, which would restart them.
    """

    def __init__(self, folder: Path, workers: int) -> None:
        port = str(free_port())
        self.address = f"tcp://127.0.0.1:{port}"
        self.scheduler = self._dask("scheduler", "--port", port)
        options = ("--nthreads", "1", "--no-nanny", "--death-timeout", "60")
        place = ("--local-directory", str(folder))
        self.workers = [
            self._dask("worker", self.address, *place, *options) for _ in range(workers)
        ]

    def _dask(self, *command: str) -> subprocess.Popen[bytes]:
        here = ("--host", "127.0.0.1", "--no-dashboard")
        # As a user whose workers may hang would set it.
        env = os.environ | {"DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL": "10s"}
        return started(sys.executable, "-m", "dask", *command, *here, env=env)

    def __enter__(self) -> Cluster:
        from distributed import Client

        try:
            with Client(self.address, timeout=60) as client:
                client.wait_for_workers(len(self.workers), timeout=60)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for process in (self.scheduler, *self.workers):
            process.kill()
            process.wait(60)
