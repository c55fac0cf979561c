"""The status of a run: where it stands, what it lost, how it ended."""

from __future__ import annotations

import socket
import time
from dataclasses import dataclass, field, fields

from xnq_dist.app.ending import sentence_of
from xnq_dist.app.run_progress import START
from xnq_dist.core.errors import DamagedError, InfrastructureError
from xnq_dist.core.redaction import redacted
from xnq_dist.core.store import RunDirectory

__all__ = ["NEXT", "STATUS", "RunStatus"]

STATUS = "_status.json"
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
    """A run: where it stands, what it lost, how it ended."""

    run_id: str = ""
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
    seconds_left: float | None = None
    starts: dict[str, int] = field(default_factory=dict)
    """How often each stage was started: more than once after a failure."""
    workers: int = 0
    lost_workers: list[str] = field(default_factory=list)
    """Addresses of workers that left during the run."""
    peak_memory: dict[str, int] = field(default_factory=dict)
    """Maximum resident bytes of the ``client``, and of a ``worker`` as seen once a
    second."""
    message: str = ""
    """Why it failed."""
    exit_code: int | None = None

    @classmethod
    def read(cls, run: RunDirectory) -> RunStatus | None:
        """The last record in a run directory; None if there is none."""
        try:
            values = run.folder.read_record(STATUS)
        except DamagedError:
            return None
        if values is None:
            return None
        known = {each.name for each in fields(cls)}
        return cls(**{name: value for name, value in values.items() if name in known})

    @property
    def retries(self) -> int:
        """Starts of stages after the first of each."""
        return sum(self.starts.values()) - len(self.starts)

    def place(self, left: str = "") -> str:
        """Stage, step and time left in one line; empty before the first stage."""
        steps = f" {self.done:,}/{self.total:,}" if self.total > 1 else ""
        text = f"{self.stage}: {self.step}{steps}" if self.step else self.stage
        return text + (left and f", {left}")

    def note(self, text: str, done: int, total: int) -> None:
        """Note a step of a stage; see `Watch.step`."""
        self.stage, _, self.step = text.partition(": ")
        self.done, self.total = done, total
        if self.step == START:
            # A new mapping: a thread may be writing the old one.
            count = self.starts.get(self.stage, 0) + 1
            self.starts = {**self.starts, self.stage: count}

    def end(self, error: BaseException | None, command: str) -> None:
        """Note the end of the run, by an error or not, unless it is noted already."""
        if self.ended is not None:
            return
        self.ended = time.time()
        self.seconds_left = None
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
