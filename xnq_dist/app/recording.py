"""Records a run in its run directory while it works: its status.

`_status.json` is replaced every few seconds, and last when the run ends; a run that was
killed leaves it as it was. Writing it never fails or delays a run.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import asdict
from typing import Any

from xnq_dist.app.json_lines import format_dask, json_lines
from xnq_dist.app.peak_memory import peak_memory
from xnq_dist.app.run_progress import START, TimeLeft, Watch, watching
from xnq_dist.app.run_status import STATUS, RunStatus
from xnq_dist.core.errors import XnqError
from xnq_dist.core.lock import holder
from xnq_dist.core.settings import Settings
from xnq_dist.core.store import RUN, RunDirectory, sealed
from xnq_dist.core.waiting import LOOKED

__all__ = ["recorded"]

log = logging.getLogger(__name__)

EVERY, EVERY_IN_STORE = 2.0, 10.0
"""Seconds between two records on a disk, and in an object store."""

CURRENT: ContextVar[RunStatus | None] = ContextVar("CURRENT", default=None)
"""The status of the current block of `recorded`."""


@contextmanager
def recorded(
    out: str, settings: Settings, command: str = "run", run_id: str = ""
) -> Iterator[RunStatus]:
    """Record the block's progress and end in a run directory, once it is one.

    Nothing is recorded while another run holds the directory. Inside another such block
    the status is that block's.

    Parameters
    ----------
    command
        Name of what is done, for errors outside of any stage.
    run_id
        Id of the run; empty: a random one.
    """
    if (there := CURRENT.get()) is not None:
        yield there
        return
    status = RunStatus(run_id or str(uuid.uuid4()))
    with watching() as watch, json_lines(status):
        record = _Record(RunDirectory(out), status, watch)
        watch.shown.append(record.note)
        tokens = LOOKED.set(record.look), CURRENT.set(status)
        try:
            yield status
        except BaseException as error:
            status.end(error, command)
            raise
        else:
            status.end(None, command)
        finally:
            LOOKED.reset(tokens[0])
            CURRENT.reset(tokens[1])
            watch.shown.remove(record.note)
            record.close()


class _Record:
    """Writes a status on a thread, from the first stage on."""

    def __init__(self, run: RunDirectory, status: RunStatus, watch: Watch) -> None:
        self._run = run
        self._status = status
        self._left: TimeLeft = watch.left
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._scheduler, self._seen = "", frozenset[str]()

    def note(self, text: str, done: int, total: int) -> None:
        """Note a step; see `Watch.step`."""
        self._status.note(text, done, total)
        if self._status.step == START:
            format_dask(self._status)
        if self._thread is None:
            self._thread = threading.Thread(target=self._write_often, daemon=True)
            self._thread.start()

    def look(self, scheduler: str, records: Mapping[str, Any]) -> None:
        """Note the workers of a cluster; see `LOOKED`."""
        status, now = self._status, frozenset(records)
        if scheduler == self._scheduler:
            lost = sorted(self._seen - now - {*status.lost_workers})
            status.lost_workers += lost
            if lost:
                names = ", ".join(lost)
                log.warning("lost %s; workers left: %d", names, len(now))
        self._scheduler, self._seen = scheduler, now
        status.workers = len(now)
        measured = (each.get("metrics") or {} for each in records.values())
        peak = max((int(each.get("memory") or 0) for each in measured), default=0)
        peak = max(peak, status.peak_memory.get("worker", 0))
        status.peak_memory = {**status.peak_memory, "worker": peak}

    def close(self) -> None:
        """Write the last record."""
        self._stop.set()
        if self._thread is not None:
            # Do not wait longer for a file system that does not answer.
            self._thread.join(EVERY_IN_STORE)
            if self._thread.is_alive():
                return
        self._write()

    def _write_often(self) -> None:
        every = EVERY if self._run.folder.is_local else EVERY_IN_STORE
        while True:
            self._write()
            if self._stop.wait(every):
                return

    def _write(self) -> None:
        status = self._status
        status.peak_memory = {**status.peak_memory, "client": peak_memory()}
        if status.ended is None:
            status.seconds_left = self._left.left()
        # Whatever goes wrong here, the run itself may well go on.
        with suppress(OSError, ValueError, XnqError):
            if self._is_anothers():
                return
            if status.succeeded is None and (before := RunStatus.read(self._run)):
                status.succeeded = before.succeeded
            if self._run.folder.exists(RUN):
                text = sealed(asdict(status))
                self._run.folder.write_bytes(STATUS, text.encode())

    def _is_anothers(self) -> bool:
        """Whether another run holds the directory."""
        held = holder(self._run.folder)
        return held is not None and held.alive and not held.mine
