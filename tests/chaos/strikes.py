"""Faults that are injected into a running process."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import numpy as np

from tests.chaos.processes import Cluster, Running, send, wait_until
from tests.disks import SmallDisk

__all__ = ["strike"]

SIGNALS = {
    "kill-client": signal.SIGKILL,
    "terminate-client": signal.SIGTERM,
    "interrupt-client": signal.SIGINT,
    "hang-up-client": signal.SIGHUP,
}


def strike(
    fault: str,
    running: Running,
    cluster: Cluster | None,
    disk: SmallDisk | None,
    random: np.random.Generator,
) -> bool:
    """Inject the fault; False if no target is left."""
    if fault in SIGNALS:
        return _signal_client(SIGNALS[fault], running, random)
    if fault in ("kill-worker", "kill-all-workers", "stop-worker"):
        return _hurt_workers(fault, running, random)
    if cluster is not None:
        hurt = [cluster.scheduler] if fault == "kill-scheduler" else cluster.workers
        for process in hurt:
            process.kill()
    elif disk is not None and fault == "full-disk":
        disk.fill()
    elif disk is not None:
        # Refused while a file is being written: try again.
        return wait_until(lambda: _made_read_only(disk) or running.over, 20, 0.005)
    return True


def _made_read_only(disk: SmallDisk) -> bool:
    try:
        disk.set_read_only()
    except subprocess.CalledProcessError:
        return False
    return True


def _signal_client(
    number: signal.Signals, running: Running, random: np.random.Generator
) -> bool:
    # Before it handles signals, it has nothing to leave behind.
    ready = number == signal.SIGKILL or wait_until(
        lambda: running.over or _catches(running.process.pid, number), 60
    )
    if running.over or not ready:
        return False
    # To one process as from `kill`, or to all as from a terminal or batch system.
    if number != signal.SIGKILL and random.random() < 0.5:
        os.killpg(running.process.pid, number)
    else:
        os.kill(running.process.pid, number)
    return True


def _catches(pid: int, number: signal.Signals) -> bool:
    """Whether a process has a handler for a signal."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
    found = next(line for line in status.splitlines() if line.startswith("SigCgt"))
    return bool(int(found.split()[1], 16) >> (number - 1) & 1)


def _hurt_workers(fault: str, running: Running, random: np.random.Generator) -> bool:
    if not wait_until(lambda: bool(running.workers) or running.over, 60):
        return False
    workers = running.workers
    if not workers:
        return False
    if fault != "kill-all-workers":
        workers = [workers[random.integers(len(workers))]]
    send(signal.SIGSTOP if fault == "stop-worker" else signal.SIGKILL, workers)
    return True
