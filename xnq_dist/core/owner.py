"""Identifies the process that owns a file, and whether it still runs."""

from __future__ import annotations

import hashlib
import os
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

__all__ = ["Owner", "machine"]

SAME_START = 1.0
"""Maximum difference in seconds between two readings of a process's start time."""


@dataclass(frozen=True)
class Owner:
    """A process, distinguished from a later one with the same number."""

    pid: int
    started: float
    """Seconds since the epoch, by the clock that the process saw."""
    ticks: int = -1
    """Clock ticks from the machine's start to the process's, which do not change when
    the clock is set; -1: unknown."""
    host: str = ""
    namespace: str = ""
    """PID namespace: containers may share a host name but not its processes."""

    @classmethod
    def me(cls) -> Owner:
        """The current process."""
        process = psutil.Process()
        return cls(
            process.pid,
            process.create_time(),
            _ticks(process.pid),
            socket.gethostname(),
            _namespace(),
        )

    @classmethod
    def from_record(cls, values: dict[str, Any]) -> Owner:
        """From the values of `record`; invalid numbers match no process."""
        try:
            pid, ticks = int(values["pid"]), int(values.get("ticks", -1))
            started = float(values.get("process_started", 0.0))
        except (KeyError, TypeError, ValueError):
            pid, started, ticks = -1, 0.0, -1
        host = str(values.get("host", ""))
        return cls(
            pid, started, ticks, host, str(values.get("namespace", _namespace()))
        )

    def record(self) -> dict[str, Any]:
        """As JSON-able values."""
        return {
            "host": self.host,
            "pid": self.pid,
            "process_started": self.started,
            "ticks": self.ticks,
            "namespace": self.namespace,
        }

    @property
    def is_here(self) -> bool:
        """Whether it is or was a process of this machine and namespace."""
        return (self.host, self.namespace) == (socket.gethostname(), _namespace())

    @property
    def lives(self) -> bool:
        """Whether the process, of this machine, still runs."""
        if self.pid <= 0:
            return False
        try:
            process = psutil.Process(self.pid)
            if process.status() == psutil.STATUS_ZOMBIE:
                return False
            if self.ticks >= 0:
                return _ticks(self.pid) == self.ticks
            return abs(process.create_time() - self.started) < SAME_START
        except psutil.Error:
            return False


def machine() -> str:
    """Eight characters that identify this host and PID namespace, for file names."""
    text = f"{socket.gethostname()} {_namespace()}".encode()
    return hashlib.blake2b(text, digest_size=4).hexdigest()


def _namespace() -> str:
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:  # not Linux
        return ""


def _ticks(pid: int) -> int:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:  # it has ended, or this is not Linux
        return -1
    # The name may contain spaces and brackets; the start is the 20th value after it.
    return int(text.rpartition(")")[2].split()[19])
