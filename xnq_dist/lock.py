"""One run at a time holds a run directory: a lock file with owner and heartbeat."""

from __future__ import annotations

import json
import logging
import os
import socket
import threading
import time
import uuid
from types import TracebackType
from typing import Any

import psutil

from xnq_dist.errors import RunDirectoryError
from xnq_dist.store import Folder

__all__ = ["RunLock"]

log = logging.getLogger(__name__)

LOCK = "_lock.json"
HEARTBEAT = 10.0
"""Seconds between two signs of life."""
STALE = 120.0
"""Seconds without one after which an owner on another machine counts as gone."""


class RunLock:
    """Holds a run directory while a block runs.

    An owner on this machine is alive when its process is (its start time is compared,
    so a reused process number does not count); one on another machine while its
    heartbeat is younger than two minutes.

    Raises
    ------
    RunDirectoryError
        When another run holds the directory, or it cannot be written.
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
            # A folder that does not answer any more is not waited for.
            self._thread.join(HEARTBEAT)
        if self._held():
            self._folder.delete(LOCK)

    def _record(self) -> bytes:
        process = psutil.Process()
        values = {
            "token": self._token,
            "host": socket.gethostname(),
            "pid": process.pid,
            "process_started": process.create_time(),
            "namespace": _namespace(),
            "heartbeat": time.time(),
        }
        return json.dumps(values).encode()

    def _held(self) -> bool:
        found = self._folder.read_json(LOCK)
        return isinstance(found, dict) and found.get("token") == self._token

    def _claim(self) -> None:
        if self._folder.is_local:
            self._claim_on_disk()
            return
        # Object stores have no exclusive creation here: write, let a rival write too,
        # and see whose token is left.
        found = self._folder.read_json(LOCK)
        if isinstance(found, dict) and _alive(found):
            raise _in_use(self._folder, found)
        self._folder.write_bytes(LOCK, self._record())
        time.sleep(1.0)
        if not self._held():
            raise _in_use(self._folder, self._folder.read_json(LOCK) or {})

    def _claim_on_disk(self) -> None:
        path = self._folder.path(LOCK)
        for _ in range(10):
            try:
                handle = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
            except FileExistsError:
                found = self._folder.read_json(LOCK)
                if isinstance(found, dict) and _alive(found):
                    raise _in_use(self._folder, found) from None
                if found is None and _age(path) < 5.0:
                    time.sleep(0.5)  # its owner is between creating and writing it
                    continue
                self._take_away(path, found)
                continue
            except OSError as error:
                raise RunDirectoryError(
                    f"{self._folder.uri} cannot be written ({error.strerror}): choose "
                    "another folder for --out"
                ) from error
            with os.fdopen(handle, "wb") as stream:
                stream.write(self._record())
            return
        raise RunDirectoryError(f"{self._folder.uri} is being taken by another run")

    def _take_away(self, path: str, dead: dict[str, Any] | None) -> None:
        """Remove a dead run's lock, and only that: rivals may be at it too."""
        aside = f"{path}.{self._token}.tmp"
        try:
            os.rename(path, aside)
        except FileNotFoundError:
            return
        taken = self._folder.read_json(f"{LOCK}.{self._token}.tmp")
        if taken != dead and isinstance(taken, dict) and _alive(taken):
            # A rival was faster and this is its lock: give it back.
            os.rename(aside, path)
            raise _in_use(self._folder, taken)
        os.remove(aside)
        log.warning("%s: took over the lock of a dead run", self._folder.uri)

    def _beat(self) -> None:
        while not self._stop.wait(HEARTBEAT):
            try:
                if not self._held():
                    log.warning("%s: the lock was taken away", self._folder.uri)
                    return
                self._folder.write_bytes(LOCK, self._record())
            except (OSError, RunDirectoryError) as error:
                log.warning("%s: no heartbeat written: %s", self._folder.uri, error)


def _alive(record: dict[str, Any]) -> bool:
    here = record.get("host") == socket.gethostname()
    # Containers may share a host's name and not its process numbers.
    if here and record.get("namespace", _namespace()) == _namespace():
        try:
            started = psutil.Process(int(record["pid"])).create_time()
        except (psutil.Error, KeyError, ValueError):
            return False
        return abs(started - float(record.get("process_started", 0))) < 1.0
    return time.time() - float(record.get("heartbeat", 0)) < STALE


def _namespace() -> str:
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:  # not Linux
        return ""


def _age(path: str) -> float:
    try:
        return time.time() - os.stat(path).st_mtime
    except FileNotFoundError:
        return 0.0


def _in_use(folder: Folder, record: dict[str, Any]) -> RunDirectoryError:
    return RunDirectoryError(
        f"{folder.uri} is in use by process {record.get('pid')} on "
        f"{record.get('host')}: wait for it to end, or choose another --out"
    )
