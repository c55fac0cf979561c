"""Locks a run directory for one run at a time.

On this machine the kernel keeps the lock: `flock` on the directory, which ends with the
process that has it, however that ends. Other machines, to which a file system may not
show an `flock`, and object stores see a file with the owner and a heartbeat.
"""

from __future__ import annotations

import fcntl
import logging
import os
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from xnq_dist.core.errors import DamagedError, InfrastructureError, XnqError
from xnq_dist.core.store import Folder, sealed

__all__ = ["LOCK", "Holder", "holder", "run_lock"]

log = logging.getLogger(__name__)

LOCK = "_lock.json"
HEARTBEAT = 10.0
"""Seconds between two heartbeats."""
STALE = 120.0
"""Seconds without a heartbeat after which an owner on another machine is dead."""
SETTLE = 1.0
"""Seconds in which a rival on another machine, which saw no live owner, writes too."""


@dataclass(frozen=True)
class Holder:
    """The run that holds a lock, read without taking it."""

    host: str
    pid: int
    heartbeat: float
    """Time of the last heartbeat by the owner's clock, in seconds since the epoch."""
    alive: bool
    """Whether its process runs, or on another machine has a young heartbeat."""

    @property
    def mine(self) -> bool:
        """Whether it is this process."""
        return (self.host, self.pid) == (socket.gethostname(), os.getpid())


def holder(folder: Folder) -> Holder | None:
    """The holder of a folder's lock; None: nobody holds it, or its file is damaged."""
    found = _read(folder)
    if found is None:
        return None
    alive = abs(time.time() - found["heartbeat"]) < STALE
    if found["machine"] == _machine(folder):
        try:
            with _flock(folder, fcntl.LOCK_SH) as kept:
                alive = alive and not kept
        except BlockingIOError:
            alive = True
    return Holder(found["host"], found["pid"], found["heartbeat"], alive)


@contextmanager
def run_lock(folder: Folder) -> Iterator[None]:
    """Hold the lock of a run directory during a block.

    An owner on this machine is alive if it has the kernel's lock. A process forked from
    it, without a new program, would keep that lock after its end; Dask's workers are
    new programs. An owner on another machine is alive if its heartbeat is younger than
    two minutes, or changes while waiting: clocks may differ.

    Raises
    ------
    InfrastructureError
        When another run has locked the directory.
    RunDirectoryError
        When it cannot be written.
    """
    folder.create()
    token, stop = uuid.uuid4().hex, threading.Event()
    beat = threading.Thread(target=_beat, args=(folder, token, stop), daemon=True)
    with ExitStack() as held:
        _claim(folder, token, _lock_here(folder, held))
        beat.start()
        try:
            yield
        finally:
            stop.set()
            # Do not wait longer for a file system that does not answer.
            beat.join(HEARTBEAT)


def _lock_here(folder: Folder, held: ExitStack) -> bool:
    """`_flock` against other runs; those that only look let go after a moment."""
    for wait in (0.0, 0.05, 0.1, 0.2, 0.4):
        time.sleep(wait)
        with suppress(BlockingIOError):
            return held.enter_context(_flock(folder, fcntl.LOCK_EX))
    raise _in_use(folder)


@contextmanager
def _flock(folder: Folder, how: int) -> Iterator[bool]:
    """Have the kernel lock a folder during a block; False: it cannot.

    Raises
    ------
    BlockingIOError
        When another descriptor has the lock.
    """
    if not folder.is_local:
        yield False
        return
    handle = os.open(folder.path(), os.O_RDONLY)  # not passed on to new programs
    try:
        try:
            fcntl.flock(handle, how | fcntl.LOCK_NB)
            kept = True
        except BlockingIOError:
            raise
        except OSError:
            kept = False
        yield kept
    finally:
        os.close(handle)


def _claim(folder: Folder, token: str, locked_here: bool) -> None:
    """Write the file for other machines, unless the owner of one there is alive."""
    found = _read(folder)
    if found is None and folder.is_local:
        try:
            Path(folder.path(LOCK)).touch(exist_ok=False)
        except FileExistsError:  # damaged, or its owner is about to write it
            time.sleep(SETTLE)
            found = _read(folder)
        else:
            _write(folder, token)
            return
    if found and _alive(folder, found, locked_here):
        raise _in_use(folder)
    _write(folder, token)
    time.sleep(SETTLE)
    if not _holds(folder, token):
        raise _in_use(folder)
    if found or folder.is_local:
        log.warning("%s: took over the lock of a dead run", folder.uri)


def _alive(folder: Folder, found: dict[str, Any], locked_here: bool) -> bool:
    if locked_here and found["machine"] == _machine(folder):
        return False  # it would have the kernel's lock
    heartbeat = found["heartbeat"]
    if abs(time.time() - heartbeat) < STALE:
        return True
    # Its clock may differ from this one: check whether the heartbeat changes.
    time.sleep(1.5 * HEARTBEAT)
    return bool((_read(folder) or {}).get("heartbeat") != heartbeat)


def _beat(folder: Folder, token: str, stop: threading.Event) -> None:
    """Write a heartbeat every few seconds, and remove the file once it is to stop."""
    ended = False
    while not ended:
        ended = stop.wait(HEARTBEAT)
        try:
            if not _holds(folder, token):
                log.warning("%s: another run took the lock", folder.uri)
                return
            if ended:
                folder.delete(LOCK)
            else:
                _write(folder, token)
        except (OSError, XnqError) as error:
            log.warning("%s: the lock cannot be changed: %s", folder.uri, error)


def _write(folder: Folder, token: str) -> None:
    values = {
        "token": token,
        "heartbeat": time.time(),
        "host": socket.gethostname(),
        "machine": _machine(folder),
        "pid": os.getpid(),
    }
    folder.write_bytes(LOCK, sealed(values).encode())


def _holds(folder: Folder, token: str) -> bool:
    return (_read(folder) or {}).get("token") == token


def _read(folder: Folder) -> dict[str, Any] | None:
    """The values of the lock's file; None: there is none, or it is damaged."""
    try:
        return folder.read_record(LOCK)
    except DamagedError:
        return None


def _in_use(folder: Folder) -> InfrastructureError:
    found = _read(folder)
    who = f"process {found['pid']} on {found['host']}" if found else "another run"
    return InfrastructureError(
        f"{folder.uri} is in use by {who}: wait for it to end, or choose another --out"
    )


def _machine(folder: Folder) -> str:
    """Id of all processes to which an `flock` on the folder shows.

    They are on this machine since its start, in all containers, and have the folder's
    file system from the same mount.
    """
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    device = os.stat(folder.path()).st_dev if folder.is_local else "store"
    return f"{boot} {device}"
