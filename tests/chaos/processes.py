"""Runs as processes, which are watched through their log and found by a mark."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import psutil

from tests.conftest import started, wait_until

__all__ = ["Cluster", "Launch", "Running", "marked"]

ROOT = Path(__file__).parents[2]
MARK = "XNQ_CHAOS_CASE"
REACHING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
WITH_SIGNALS = f"""
import os, signal, sys
for number in {[int(number) for number in REACHING]}:
    signal.signal(number, signal.SIG_DFL)
os.execv(sys.argv[1], sys.argv[1:])
"""


def marked(mark: str) -> list[psutil.Process]:
    """All descendant processes that have this mark."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get(MARK) == mark and process.status() != "zombie":
                found.append(process)
    return found


@dataclass(frozen=True)
class Launch:
    """Settings for starting the runs of one case."""

    mark: str
    tables: dict[str, str]
    temporary: Path
    """Folder for their temporary files, used by nothing else."""
    environment: dict[str, str | None] = field(default_factory=dict)
    """Environment variables to set; None: to remove."""

    def start(self, out: Path, overrides: list[str]) -> Running:
        """Start a run."""
        command = ["-m", "xnq_dist.app.cli", "run", "--out", str(out), "--json"]
        for name, path in self.tables.items():
            command += [f"--{name}", path]
        command += [f"--set={setting}" for setting in overrides]
        return Running([sys.executable, *command], self.environ())

    def environ(self) -> dict[str, str]:
        """The environment of its processes."""
        path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
        values = {
            **os.environ,
            "PYTHONPATH": path.strip(os.pathsep),
            "PYTHONUNBUFFERED": "1",
            "TMPDIR": str(self.temporary),
            MARK: self.mark,
            **self.environment,
        }
        return {name: value for name, value in values.items() if value is not None}


class Running:
    """A process whose lines on stderr are recorded."""

    def __init__(self, command: list[str], environment: dict[str, str]) -> None:
        self.began = time.monotonic()
        if any(signal.getsignal(number) == signal.SIG_IGN for number in REACHING):
            # Under `nohup` or a shell's `&`, a run would ignore these signals.
            command = [sys.executable, "-c", WITH_SIGNALS, *command]
        self.process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.lines: list[str] = []
        self.out: list[str] = []
        # A pipe stays open as long as a child of the run: threads are not joined.
        for source, kept in (
            (self.process.stderr, self.lines),
            (self.process.stdout, self.out),
        ):
            threading.Thread(target=_keep, args=(source, kept), daemon=True).start()

    def reached(self) -> str:
        """The stage in the last line."""
        for line in reversed(self.lines):
            for stage in ("graph", "embed", "readout", "quantify"):
                if f"{stage}: " not in line:
                    continue
                _, _, count = line.rpartition(" ")
                done, _, total = count.strip().partition("/")
                if stage == "quantify" and done == total and "communities" not in line:
                    return "publish"
                return stage
        return "start"

    @property
    def over(self) -> bool:
        """Whether it has ended."""
        return self.process.poll() is not None

    def children(self, what: str) -> list[psutil.Process]:
        """Descendant processes whose command line contains the text."""
        found = []
        with contextlib.suppress(psutil.NoSuchProcess):
            for child in psutil.Process(self.process.pid).children(recursive=True):
                with contextlib.suppress(psutil.NoSuchProcess):
                    if what in " ".join(child.cmdline()):
                        found.append(child)
        return found

    @property
    def workers(self) -> list[psutil.Process]:
        """Its local workers, oldest first."""
        found = self.children("spawn_main")
        return sorted(found, key=lambda process: process.pid)

    def sentences(self) -> list[str]:
        """Its last message to the user."""
        return [line.strip() for line in self.lines if line.startswith("xnq-dist: ")]

    def end(self, seconds: float) -> int | None:
        """Its exit status; None if it is still running after `seconds`."""
        try:
            status = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None
        time.sleep(0.1)  # the threads read the remaining lines
        return status


def _keep(source: IO[str], kept: list[str]) -> None:
    with source:
        for line in source:
            kept.append(line)


class Cluster:
    """Context manager: a scheduler and workers that a run uses by address.

    Workers have no nannies, which would restart them.
    """

    def __init__(
        self, folder: Path, workers: int, environment: dict[str, str] | None = None
    ) -> None:
        self._environment = environment
        self._file = folder / "scheduler.json"
        self.scheduler = self._dask("scheduler", "--port", "0")
        options = ("--nthreads", "1", "--no-nanny", "--death-timeout", "60")
        place = ("--local-directory", str(folder))
        self.workers = [self._dask("worker", *place, *options) for _ in range(workers)]

    def _dask(self, *command: str) -> subprocess.Popen[bytes]:
        shared = ["--scheduler-file", str(self._file), "--host", "127.0.0.1"]
        words = ("-m", "dask", *command, *shared, "--no-dashboard")
        return started(sys.executable, *words, env=self._environment)

    def __enter__(self) -> Cluster:
        from distributed import Client

        try:
            wait_until(self._written, 60)
            with Client(self.address, timeout=60) as client:
                client.wait_for_workers(len(self.workers), timeout=60)
        except BaseException:
            self.__exit__()
            raise
        return self

    def _written(self) -> bool:
        """Whether the scheduler's file is complete."""
        try:
            json.loads(self._file.read_text())
        except (FileNotFoundError, ValueError):
            return False
        return True

    @property
    def address(self) -> str:
        """Of the scheduler."""
        return str(json.loads(self._file.read_text())["address"])

    def __exit__(self, *_: object) -> None:
        for process in (self.scheduler, *self.workers):
            process.kill()
            process.wait(60)
