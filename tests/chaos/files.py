"""Damage to the files of a run directory, at seeded places."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from xnq_dist.core.lock import LOCK, _machine
from xnq_dist.core.store import Folder, sealed

__all__ = ["beating_lock", "damage"]

SECTOR = 512


def damage(fault: str, out: Path, other: Path, random: np.random.Generator) -> str:
    """Damage a file; return its place.

    Parameters
    ----------
    fault
        Its name in `cases.FAULTS`.
    out
        A run directory that is not in use.
    other
        A run directory of another graph.
    """
    if fault in ("flip-bit", "truncate", "zero-sector"):
        files = sorted(path for path in out.rglob("*") if path.is_file())
        files = [path for path in files if path.stat().st_size and path.name != LOCK]
        path = files[random.integers(len(files))]
        _hurt(fault, path, random)
        return str(path.relative_to(out))
    if fault == "foreign-manifest":
        names = sorted(path.parent.name for path in out.glob("*/_manifest.json"))
        name = names[random.integers(len(names))]
        source = other / name / "_manifest.json"
        if random.random() < 0.5 or not source.exists():
            # A file of another stage of this run.
            others = [found for found in names if found != name]
            source = out / others[random.integers(len(others))] / "_manifest.json"
        shutil.copyfile(source, out / name / "_manifest.json")
        return f"{name} from {source}"
    if fault == "truncated-run-record":
        record = out / "_run.json"
        os.truncate(record, int(random.integers(record.stat().st_size)))
        return record.name
    if fault == "stale-lock":
        _write_lock(out, host=socket.gethostname(), machine=_machine(Folder.of(out)))
    elif fault == "live-lock":
        pass  # the driver takes it
    elif fault == "dead-lock-of-a-fast-clock":
        _write_lock(out, heartbeat=time.time() + 3600)
    elif fault == "lock-of-a-slow-clock":
        _write_lock(out, heartbeat=time.time() - 3600)
    else:
        raise ValueError(f"there is no damage {fault!r}")
    return LOCK


def _hurt(fault: str, path: Path, random: np.random.Generator) -> None:
    size = path.stat().st_size
    if fault == "truncate":
        os.truncate(path, int(random.integers(size)))
        return
    data = bytearray(path.read_bytes())
    if fault == "flip-bit":
        bit = int(random.integers(8 * size))
        data[bit // 8] ^= 1 << bit % 8
    else:
        first = int(random.integers(size)) // SECTOR * SECTOR
        last = min(first + SECTOR, size)
        data[first:last] = bytes(last - first)
    path.write_bytes(data)


def _write_lock(out: Path, **values: object) -> None:
    record = {
        "token": "chaos",
        "host": "elsewhere",
        "machine": "another",
        "pid": 1,
        "heartbeat": time.time(),
    }
    aside = out / f"{LOCK}.0000000000000000.tmp"
    aside.write_text(sealed(record | values))
    aside.replace(out / LOCK)


@contextlib.contextmanager
def beating_lock(out: Path) -> Iterator[None]:
    """A lock of a running process on another machine whose clock is an hour late."""
    stop = threading.Event()

    def beat() -> None:
        while not stop.wait(2.0):
            _write_lock(out, heartbeat=time.time() - 3600)

    thread = threading.Thread(target=beat)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        (out / LOCK).unlink(missing_ok=True)
