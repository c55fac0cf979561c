"""Faults that are injected into a running flow run and what runs it."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psutil

from tests.chaos.deployments.stack import SILENCE, Stack
from tests.chaos.processes import Cluster, marked, send, wait_until
from tests.disks import SmallDisk

__all__ = ["Target"]


@dataclass
class Target:
    """One running case, with all that a fault can hurt."""

    stack: Stack
    run: str
    """Id of the flow run."""
    mark: str
    """Of the processes of its flow runs."""
    out: Path
    random: np.random.Generator
    disk: SmallDisk | None = None
    cluster: Cluster | None = None
    change: Callable[[], None] = lambda: None
    """Changes an input table."""

    def strike(self, kind: str) -> bool:
        """Inject a fault; what an administrator would repair is repaired later.

        Returns
        -------
        bool
            False if nothing is left to hurt.
        """
        hurt: Callable[[], bool] = getattr(self, "_" + kind.replace("-", "_"))
        return hurt()

    def repair(self) -> None:
        """End what the fault would leave behind for good."""
        if self.disk is not None:
            self.disk.empty()
        send(signal.SIGCONT, marked(self.mark))

    def _flow(self) -> list[psutil.Process]:
        return self._found("prefect.engine") or self._found("_workspace_supervisor")

    def _dask_workers(self) -> list[psutil.Process]:
        wait_until(lambda: bool(self._found("spawn_main")) or not self._flow(), 30)
        return sorted(self._found("spawn_main"), key=lambda process: process.pid)

    def _found(self, words: str) -> list[psutil.Process]:
        found = []
        for process in marked(self.mark):
            with contextlib.suppress(psutil.Error):
                if words in " ".join(process.cmdline()):
                    found.append(process)
        return found

    def _kill_flow(self) -> bool:
        return send(signal.SIGKILL, self._flow())

    def _terminate_flow(self) -> bool:
        return send(signal.SIGTERM, self._flow())

    def _pause_flow(self) -> bool:
        struck = send(signal.SIGSTOP, self._flow())
        time.sleep(float(self.random.uniform(2, 25)))
        self.repair()
        return struck

    def _stop_flow(self) -> bool:
        struck = send(signal.SIGSTOP, self._flow())
        if struck:  # until another process has been started for the same run
            before = self.stack.flow_run(self.run)["run_count"]
            wait_until(lambda: self._started_again(before), 2 * SILENCE + 90, 1.0)
            time.sleep(float(self.random.uniform(0, 20)))
        self.repair()
        return struck

    def _started_again(self, before: int) -> bool:
        return int(self.stack.flow_run(self.run)["run_count"]) > before

    def _kill_worker(self) -> bool:
        return self._end_worker(signal.SIGKILL)

    def _terminate_worker(self) -> bool:
        return self._end_worker(signal.SIGTERM)

    def _end_worker(self, number: signal.Signals) -> bool:
        self.stack.worker.send_signal(number)
        self.stack.worker.wait(120)
        time.sleep(float(self.random.uniform(0, 3)))
        self.stack.start_worker()
        return True

    def _lose_power(self, server: bool = False) -> bool:
        # The worker first, which would otherwise report the end of the flow run.
        lost = [self.stack.worker, *([self.stack.server] if server else [])]
        for process in lost:
            process.kill()
        struck = send(signal.SIGKILL, marked(self.mark))
        for process in lost:
            process.wait(120)
        time.sleep(float(self.random.uniform(0, 3)))
        if server:
            self.stack.start_server()
        self.stack.start_worker()
        return struck

    def _lose_all(self) -> bool:
        return self._lose_power(server=True)

    def _kill_dask_worker(self) -> bool:
        return send(signal.SIGKILL, self._one(self._dask_workers()))

    def _kill_all_dask_workers(self) -> bool:
        return send(signal.SIGKILL, self._dask_workers())

    def _stop_dask_worker(self) -> bool:
        return send(signal.SIGSTOP, self._one(self._dask_workers()))

    def _one(self, processes: list[psutil.Process]) -> list[psutil.Process]:
        return processes and [processes[self.random.integers(len(processes))]]

    def _kill_scheduler(self) -> bool:
        if self.cluster is None:
            return False
        self.cluster.scheduler.kill()
        return True

    def _full_disk(self) -> bool:
        if self.disk is None:
            return False
        self.disk.fill()
        return True

    def _kill_api(self) -> bool:
        self.stack.server.kill()
        self.stack.server.wait(120)
        time.sleep(float(self.random.uniform(0, 10)))
        self.stack.start_server()
        return True

    def _pause_api(self) -> bool:
        self.stack.server.send_signal(signal.SIGSTOP)
        time.sleep(float(self.random.uniform(2, 40)))
        self.stack.server.send_signal(signal.SIGCONT)
        return True

    def _change_input(self) -> bool:
        self.change()
        return True


def replaced(new: Path, table: Path, at_once: bool) -> None:
    """Put a new table in the place of another.

    Parameters
    ----------
    at_once
        Rename it; otherwise write it over the old one, in two halves.
    """
    if at_once:
        aside = table.with_suffix(".new")
        shutil.copyfile(new, aside)
        aside.replace(table)
        return
    data = new.read_bytes()
    with table.open("wb") as stream:
        stream.write(data[: len(data) // 2])
        stream.flush()
        os.fsync(stream.fileno())
        time.sleep(1.0)
        stream.write(data[len(data) // 2 :])
