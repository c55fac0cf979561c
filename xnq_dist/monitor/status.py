"""The status of a run, in `_status.json`: where it stands, and how it ended.

The file is replaced every few seconds, and last when the run ends; a run that was
killed leaves it as it was. Writing it never fails or delays a run. `standing` reads it
from outside the run.
"""

from __future__ import annotations

import logging
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from xnq_dist.core.errors import DamagedError, InfrastructureError, XnqError
from xnq_dist.core.failures import explained, place_of
from xnq_dist.core.lock import holder
from xnq_dist.core.redaction import redacted
from xnq_dist.core.store import RUN, RunDirectory, require_run, sealed
from xnq_dist.monitor.progress import watching

__all__ = ["NEXT", "RunStatus", "recorded", "sentence_of", "standing"]

log = logging.getLogger(__name__)

STATUS = "_status.json"
"""Name of the file."""
EVERY, EVERY_IN_STORE = 2.0, 10.0
"""Seconds between two records on a disk, and in an object store."""
NEXT = {
    0: "nothing to do",
    1: "report it, with the traceback that XNQ_DEBUG=1 shows",
    2: "correct the table or setting that the message names, then start the run again",
    3: "change the setting that the message names, then start the run again",
    4: "start the run again: it resumes where it stopped",
}
"""What to do after a run with this exit code."""


@dataclass
class RunStatus:
    """A run: where it stands, and how it ended."""

    run_id: str = field(default_factory=lambda: str(uuid.uuid4()))
    """Id of this start: that of Prefect's flow run, or a random one."""
    host: str = field(default_factory=socket.gethostname)
    state: str = "running"
    """``running``, ``done`` or ``failed``."""
    started: float = field(default_factory=time.time)
    """Seconds since the epoch, like `ended` and `succeeded`."""
    ended: float | None = None
    succeeded: float | None = None
    """End of the last run that was done, this one or an earlier one."""
    stage: str = ""
    step: str = ""
    done: int = 0
    total: int = 0
    message: str = ""
    """Why it failed."""
    exit_code: int | None = None

    @classmethod
    def read(cls, run: RunDirectory) -> RunStatus | None:
        """The last record in a run directory; None if there is none of this version."""
        try:
            values = run.read_record(STATUS)
            return cls(**values) if values else None
        except (DamagedError, TypeError):
            return None

    def place(self) -> str:
        """Stage and step in one line; empty before the first stage."""
        steps = f" {self.done:,}/{self.total:,}" if self.total > 1 else ""
        return f"{self.stage}: {self.step}{steps}" if self.step else self.stage

    def note(self, text: str, done: int, total: int) -> None:
        """Note ``stage: step``, and how many of its parts are done."""
        self.stage, _, self.step = text.partition(": ")
        self.done, self.total = done, total

    def end(self, error: BaseException | None, command: str = "run") -> None:
        """Note the end of the run, by an error or not."""
        self.ended = time.time()
        if error is None:
            self.state, self.exit_code, self.succeeded = "done", 0, self.ended
            return
        self.state = "failed"
        if isinstance(error, Exception):
            message, self.exit_code = sentence_of(error, command)
        else:
            where = f" in stage {self.stage}" if self.stage else ""
            message = f"interrupted{where}: run again to resume"
            self.exit_code = InfrastructureError.exit_code
        self.message = " ".join(str(redacted(message)).split())


@contextmanager
def recorded(
    out: str, command: str = "run", run_id: str | None = None
) -> Iterator[RunStatus]:
    """Record the block's progress and end in a run directory, once it is one.

    Nothing is recorded while another run holds the directory.

    Parameters
    ----------
    command
        Name of what is done, for errors outside of any stage.
    run_id
        Id of the run; None: a random one.
    """
    run, stop = RunDirectory(out), threading.Event()
    status = RunStatus(run_id) if run_id else RunStatus()
    # Asked here, because a place that cannot be opened is the caller's error.
    every = EVERY if run.is_local else EVERY_IN_STORE
    with watching(status.note):

        def write_often() -> None:
            while not stop.wait(every):
                _write(run, status)

        writer = threading.Thread(target=write_often, daemon=True)
        writer.start()
        try:
            yield status
        except BaseException as error:
            status.end(error, command)
            raise
        else:
            status.end(None)
        finally:
            stop.set()
            # Do not wait longer for a file system that does not answer.
            writer.join(EVERY_IN_STORE)
            if not writer.is_alive():
                _write(run, status)


def standing(directory: str) -> dict[str, Any]:
    """Where a run directory stands; nothing is changed.

    Returns
    -------
    dict
        ``state`` (``running``, ``finished``, ``failed``, ``stopped``: its process ended
        without a message, ``empty``), ``next``, ``place`` (stage and step),
        the lock's ``host``, ``pid`` and ``heartbeat_age`` in seconds, ``published``
        (time of the current results), ``report``, and the fields of `RunStatus`. What
        is not known is left out.

    Raises
    ------
    RunDirectoryError
        When it is not a run directory.
    """
    run = RunDirectory(directory)
    held, noted = holder(run), RunStatus.read(run)
    alive = held is not None and held.alive
    if not alive:
        require_run(run)
    elif noted is not None and noted.ended is not None:
        noted = None  # of the run before
    again = NEXT[InfrastructureError.exit_code]
    version = run.current()
    known: dict[str, Any] = {"run": run.uri}
    if noted is None:
        state, todo = ("empty", again) if version is None else ("finished", NEXT[0])
    else:
        known |= asdict(noted)
        if noted.ended is None:
            known["place"] = noted.place()
            state, todo = "stopped", again
        else:
            state = "finished" if noted.state == "done" else "failed"
            todo = NEXT[noted.exit_code or 0]
    if alive:
        state, todo = "running", "wait"
        known.setdefault("place", "beginning")
    known |= {"state": state, "next": todo}
    if held is not None:
        age = abs(time.time() - held.heartbeat)
        known |= {"host": held.host, "pid": held.pid}
        known["heartbeat_age"] = round(age, 1)
    if version is not None:
        known["published"] = version.manifest.created
        known["report"] = run.uri_of("report.html")
    return known


def sentence_of(error: Exception, command: str) -> tuple[str, int]:
    """The message for an error that ended a command, and the exit status."""
    place = place_of(error)
    folder = str(getattr(error, "filename", None) or Path.cwd())
    stage = "" if isinstance(error, XnqError) else command
    known = explained(error, folder, stage)
    if known is not None:
        return str(known), known.exit_code
    return (
        f"internal error{f' in {place}' if place else ''}: {type(error).__name__}: "
        f"{error}; please report it with the traceback that XNQ_DEBUG=1 shows",
        XnqError.exit_code,
    )


def _write(run: RunDirectory, status: RunStatus) -> None:
    # Whatever goes wrong here, the run itself may well go on.
    with suppress(OSError, ValueError, XnqError):
        held = holder(run)
        if held is not None and held.alive and not held.mine:
            return  # the directory of another run
        if status.succeeded is None and (before := RunStatus.read(run)):
            status.succeeded = before.succeeded
        if run.exists(RUN):
            run.write_bytes(STATUS, sealed(asdict(status)).encode())
