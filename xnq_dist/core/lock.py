"""Locks a run directory for one run at a time, by a file with owner and heartbeat."""

from __future__ import annotations

import logging
import os
import threading
import time
import uuid
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from xnq_dist.core.errors import (
    DamagedError,
    InfrastructureError,
    RunDirectoryError,
    XnqError,
)
from xnq_dist.core.owner import Owner
from xnq_dist.core.store import Folder, sealed

__all__ = ["LOCK", "Holder", "RunLock", "holder"]

log = logging.getLogger(__name__)

LOCK = "_lock.json"
HEARTBEAT = 10.0
"""Seconds between two heartbeats."""
STALE = 120.0
"""Seconds without a heartbeat after which an owner on another machine is dead."""
UNWRITTEN = 5.0
"""Seconds after which a lock file without a record belongs to a dead process."""
TRIES = 20
"""Attempts, half a second apart, while a lock is being written or removed."""


@dataclass(frozen=True)
class Holder:
    """The run that holds a lock, read without taking it."""

    owner: Owner
    heartbeat: float
    """Time of the last heartbeat by the owner's clock, in seconds since the epoch."""
    age: float
    """Seconds since the file was written, by the clock of its disk or store."""

    @property
    def alive(self) -> bool:
        """Whether the owner runs, or on another machine has a young heartbeat."""
        if self.owner.is_here:
            return self.owner.lives
        return abs(time.time() - self.heartbeat) < STALE or abs(self.age) < STALE


def holder(folder: Folder) -> Holder | None:
    """The holder of a folder's lock; None: nobody holds it, or its file is damaged."""
    try:
        found = folder.read_record(LOCK)
    except DamagedError:
        return None
    if found is None:
        return None
    beat = found.get("heartbeat")
    beat = float(beat) if isinstance(beat, int | float) else 0.0
    return Holder(Owner.from_record(found), beat, folder.age(LOCK))


class RunLock:
    """Holds the lock of a run directory during a block.

    An owner on this machine is alive if its process is; start times are compared, so a
    reused process number does not count. An owner on another machine is alive if its
    heartbeat is younger than two minutes, or changes while waiting: clocks may differ.

    Raises
    ------
    InfrastructureError
        When another run has locked the directory.
    RunDirectoryError
        When it cannot be written.
    """

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._token = uuid.uuid4().hex
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> RunLock:
        self._folder.create()
        self._claim()
        self._thread = threading.Thread(target=self._beat, daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        if self._thread is not None:
            # Do not wait longer for a file system that does not answer.
            self._thread.join(HEARTBEAT)
        try:
            if self._held():
                self._folder.delete(LOCK)
        except OSError as error:
            if value is None:
                raise
            # The error that ended the run takes precedence.
            log.warning("%s: the lock cannot be removed: %s", self._folder.uri, error)

    def _record(self) -> dict[str, Any]:
        values = {"token": self._token, "heartbeat": time.time()}
        return {**values, **Owner.me().record()}

    def _held(self) -> bool:
        return (self._read() or {}).get("token") == self._token

    def _read(self, name: str = LOCK) -> dict[str, Any] | None:
        """The lock's record; None if there is none or it is damaged."""
        try:
            return self._folder.read_record(name)
        except DamagedError:
            return None

    def _write(self) -> None:
        self._folder.write_bytes(LOCK, sealed(self._record()).encode())

    def _claim(self) -> None:
        if self._folder.is_local:
            self._claim_on_disk()
            return
        # pyarrow.fs has no exclusive creation on object stores: write, give a rival
        # time to write too, and check whose token is there.
        found = self._read()
        if found and self._alive(found):
            raise _in_use(self._folder, found)
        self._write()
        time.sleep(1.0)
        if not self._held():
            raise _in_use(self._folder, self._read() or {})

    def _claim_on_disk(self) -> None:
        path = self._folder.path(LOCK)
        for _ in range(TRIES):
            try:
                handle = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
            except FileExistsError:
                found = self._read()
                if found and self._alive(found):
                    raise _in_use(self._folder, found) from None
                if found is None and _age(path) < UNWRITTEN:
                    time.sleep(0.5)  # its owner has created but not yet written it
                    continue
                self._remove_dead(path, found)
                continue
            except OSError as error:
                raise RunDirectoryError(
                    f"{self._folder.uri} cannot be written ({error.strerror}): choose "
                    "another folder for --out"
                ) from error
            try:
                with os.fdopen(handle, "wb") as stream:
                    stream.write(sealed(self._record()).encode())
            except OSError:
                os.remove(path)  # the disk is full: do not leave an empty lock
                raise
            return
        raise InfrastructureError(
            f"{self._folder.uri} is being locked by another run: wait for it to end, "
            "or choose another --out"
        )

    def _remove_dead(self, path: str, dead: dict[str, Any] | None) -> None:
        """Remove a dead run's lock, but not that of a rival which may do the same."""
        aside = f"{path}.{self._token}.tmp"
        try:
            os.rename(path, aside)
        except FileNotFoundError:
            return
        taken = self._read(f"{LOCK}.{self._token}.tmp")
        if taken != dead and taken and self._alive(taken):
            # A rival was faster and this is its lock: restore it.
            os.rename(aside, path)
            raise _in_use(self._folder, taken)
        os.remove(aside)
        log.warning("%s: took over the lock of a dead run", self._folder.uri)

    def _alive(self, record: dict[str, Any]) -> bool:
        owner = Owner.from_record(record)
        if owner.is_here:
            return owner.lives
        heartbeat = record.get("heartbeat")
        if not isinstance(heartbeat, int | float):
            return False
        if abs(time.time() - heartbeat) < STALE:
            return True
        # Its clock may differ from this one: check whether the heartbeat changes.
        time.sleep(1.5 * HEARTBEAT)
        found = self._read()
        return found is not None and found.get("heartbeat") != heartbeat

    def _beat(self) -> None:
        while not self._stop.wait(HEARTBEAT):
            try:
                if not self._held():
                    log.warning("%s: another run took the lock", self._folder.uri)
                    return
                self._write()
            except (OSError, XnqError) as error:
                log.warning("%s: no heartbeat written: %s", self._folder.uri, error)


def _age(path: str) -> float:
    try:
        return time.time() - os.stat(path).st_mtime
    except FileNotFoundError:
        return 0.0


def _in_use(folder: Folder, record: dict[str, Any]) -> InfrastructureError:
    return InfrastructureError(
        f"{folder.uri} is in use by process {record.get('pid')} on "
        f"{record.get('host')}: wait for it to end, or choose another --out"
    )
