"""Reports to Prefect's API, sent by a daemon thread that does not delay the run.

A run of the command line appears in the API as a flow run with one task run per stage,
log lines, progress and table artifacts. Prefect records a run of a deployment by
itself; this module adds the artifacts. A newer report replaces an older one that is
not sent yet, and reports that the API rejects are dropped. If the API does not respond,
the run waits `GRACE` seconds at its end.
"""

from __future__ import annotations

import contextvars
import json
import logging
import math
import platform
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any, TypeVar
from uuid import UUID, uuid4

import httpx
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.exceptions import PrefectException

from xnq_dist.app.json_lines import attached
from xnq_dist.app.run_progress import StageProgress
from xnq_dist.core.errors import SettingsError, XnqError
from xnq_dist.core.progress import Progress
from xnq_dist.core.redaction import redacted
from xnq_dist.core.store import RunDirectory, read_published
from xnq_dist.quantify.checks.quality import without_values
from xnq_dist.report.history import read_history

__all__ = [
    "Artifacts",
    "LogLines",
    "ReportOutbox",
    "RunReport",
    "await_api",
    "check_api",
    "reported",
]

log = logging.getLogger(__name__)

T = TypeVar("T")
Send = Callable[[SyncPrefectClient], None]

GRACE = 5.0
"""Seconds that a finished run waits for an API that does not respond."""
ROWS_SHOWN = 50
"""Rows of the table artifact; the complete table is in the run directory."""
HOST = platform.node()
PATIENCE = 300.0
"""Seconds that a deployment's run waits at its end for an API that is down."""
POLL = 2.0
"""Seconds between two questions to it."""
LOG_LINES = 1000
"""Maximum number of log lines that wait to be sent."""


def check_api() -> None:
    """Check that a Prefect API is configured.

    Raises
    ------
    SettingsError
        When neither the active Prefect profile nor ``PREFECT_API_URL`` names an API.
    """
    from prefect.settings import get_current_settings

    if not get_current_settings().api.url:
        raise SettingsError(
            "--prefect reports to a Prefect API, and none is configured: start one "
            "with `prefect server start` and set PREFECT_API_URL, or remove --prefect"
        )


def await_api(seconds: float = PATIENCE) -> None:
    """Wait until Prefect's API answers, at most `seconds`.

    Prefect's engine reports the end of a run once: a run that has ended well would
    count as failed if the API were down at that moment.
    """
    end, told = time.monotonic() + seconds, False
    with get_client(sync_client=True) as client:
        while error := client.api_healthcheck():
            if not told:
                log.warning(
                    "Prefect's API does not answer (%s): its report of the run's end "
                    "waits up to %g s",
                    redacted(str(error)) or type(error).__name__,
                    seconds,
                )
            told = True
            if time.monotonic() > end:
                return
            time.sleep(POLL)


class ReportOutbox:
    """Sends reports one by one; of reports with the same key only the newest."""

    def __init__(self) -> None:
        self._waiting: dict[str, Send] = {}
        self._sending = False
        self._silent_since: float | None = None
        self._news = threading.Condition()
        # Prefect's settings are in the context of the thread that makes the outbox.
        run = contextvars.copy_context().run
        threading.Thread(
            target=run, args=(self._work,), daemon=True, name="reports to Prefect"
        ).start()

    def post(self, key: str, send: Send) -> None:
        """Queue a report; does not wait for the API."""
        with self._news:
            self._waiting[key] = send
            self._news.notify_all()

    def flush(self, seconds: float = GRACE) -> None:
        """Wait until all is sent, at most `seconds` after the last response."""
        with self._news:
            silent = self._silent_since
            waited = 0.0 if silent is None else time.monotonic() - silent
            if self._news.wait_for(lambda: not self._busy(), max(seconds - waited, 0)):
                return
        log.warning(
            "Prefect's API did not accept the last reports within %g s: the run is "
            "complete, but Prefect may show it as unfinished",
            seconds,
        )

    def _busy(self) -> bool:
        return bool(self._waiting) or self._sending

    def _work(self) -> None:
        refused = False
        with get_client(sync_client=True) as client:
            while True:
                send = self._next()
                try:
                    send(client)
                except (httpx.HTTPError, PrefectException) as error:
                    if not refused:
                        log.warning(
                            "Prefect's API does not accept reports (%s): the run "
                            "continues without them",
                            redacted(str(error)) or type(error).__name__,
                        )
                    refused = True
                    if isinstance(error, httpx.TransportError):
                        with self._news:
                            self._waiting.clear()
                else:
                    self._silent_since = None

    def _next(self) -> Send:
        with self._news:
            self._sending = False
            self._news.notify_all()
            self._news.wait_for(lambda: self._waiting)
            self._sending = True
            self._silent_since = self._silent_since or time.monotonic()
            return self._waiting.pop(next(iter(self._waiting)))


@dataclass(frozen=True)
class Artifacts:
    """Artifacts of one flow run and, if there is one, of a task run."""

    outbox: ReportOutbox
    flow_run: Callable[[SyncPrefectClient], UUID | str]
    """Returns the flow run's id; called on the outbox's thread."""
    task_run: UUID | str | None = None
    _sent: dict[str, str] = field(default_factory=dict)
    """Ids of the artifacts that exist, by report key."""

    def progress(self, stage: str, text: str, percent: float) -> None:
        """Report the progress of a stage as a progress artifact."""
        values = {"type": "progress", "description": text, "data": percent}
        self._post(f"progress of {stage}", values)

    def prevalence(self, run: RunDirectory) -> None:
        """Report the first rows, and what changed, as table artifacts."""
        published = read_published(run.location).read("prevalence")
        rows = without_values(published.slice(0, ROWS_SHOWN)).to_pylist()
        self._table("prevalence", f"first rows of {run.uri}", rows)
        changed = read_history(run.location).changed()
        rows = changed.slice(0, ROWS_SHOWN).to_pylist()
        self._table("changes", f"changes since the run before in {run.uri}", rows)

    def _table(self, name: str, text: str, rows: list[dict[str, Any]]) -> None:
        values = {
            "type": "table",
            "key": f"xnq-{name}",
            "description": text,
            "data": json.dumps(_without_nan(rows), default=str),
        }
        self._post(name, values)

    def page(self, text: str) -> None:
        """Report where the run stands, or how it ended, as a Markdown artifact."""
        values = {
            "type": "markdown",
            "key": "xnq-run",
            "description": "Where the run stands, what changed, what is next",
            "data": text,
        }
        self._post("page", values)

    def _post(self, key: str, values: Mapping[str, Any]) -> None:
        self.outbox.post(f"{key} {self.task_run}", partial(self._send, key, values))

    def _send(
        self, key: str, values: Mapping[str, Any], client: SyncPrefectClient
    ) -> None:
        if key in self._sent:
            where = {"id": self._sent[key]}
            newer = {name: values[name] for name in ("description", "data")}
            client.request("PATCH", "/artifacts/{id}", path_params=where, json=newer)
            return
        runs = {"flow_run_id": str(self.flow_run(client))}
        if self.task_run is not None:
            runs["task_run_id"] = str(self.task_run)
        made = client.request("POST", "/artifacts/", json={**values, **runs})
        self._sent[key] = made.json()["id"]


class LogLines(logging.Handler):
    """Sends log records of the package as log lines of a flow run.

    Prefect sends those of its own loggers only. The name of a line is that of the
    logger and the host, which Prefect's page shows after the text.
    """

    def __init__(
        self, outbox: ReportOutbox, flow_run: Callable[[SyncPrefectClient], UUID | str]
    ) -> None:
        super().__init__(logging.INFO)
        self._outbox = outbox
        self._flow_run = flow_run
        self._waiting: deque[dict[str, Any]] = deque(maxlen=LOG_LINES)

    def emit(self, record: logging.LogRecord) -> None:
        """Queue one record; does not wait for the API."""
        self._waiting.append(
            {
                "name": f"{record.name} on {HOST}",
                "level": record.levelno,
                "message": redacted(record.getMessage()),
                "timestamp": datetime.fromtimestamp(record.created, UTC).isoformat(),
            }
        )
        self._outbox.post("log lines", self._send)

    def _send(self, client: SyncPrefectClient) -> None:
        run = str(self._flow_run(client))
        lines = []
        while self._waiting:
            lines.append({**self._waiting.popleft(), "flow_run_id": run})
        client.request("POST", "/logs/", json=lines)


class RunReport:
    """A run of the command line as a flow run.

    Parameters
    ----------
    flow
        Name of the flow.
    parameters
        JSON values that the API shows.
    name
        Name of the flow run; None: one that Prefect makes up.
    """

    def __init__(
        self, flow: str, parameters: Mapping[str, Any], name: str | None = None
    ) -> None:
        self._flow = flow
        self._name = name
        self._parameters = redacted(dict(parameters))
        self._outbox = ReportOutbox()
        self._flow_run: UUID | str | None = None
        self.message = ""
        """Of the state when the run is done."""
        self.lines = LogLines(self._outbox, self._flow_run_id)
        self.state("RUNNING")

    def state(self, kind: str, message: str = "") -> None:
        """Report the state of the run: RUNNING, COMPLETED, FAILED or CRASHED."""
        send = partial(self._send_state, _state(kind, message))
        self._outbox.post("flow run", send)

    def flush(self) -> None:
        """Wait a short time until the remaining reports are sent."""
        self._outbox.flush()

    def do(self, stage: str, work: Callable[[Progress], T]) -> T:
        """Run a stage and report it as a task run."""
        task = _TaskRun(self._outbox, self._flow_run_id, stage)
        task.state("RUNNING")
        shown = Artifacts(self._outbox, self._flow_run_id, task.id)
        try:
            value = work(StageProgress(stage, shown.progress))
        except BaseException as error:
            task.state(*_ended(error))
            raise
        task.state("COMPLETED")
        return value

    @property
    def artifacts(self) -> Artifacts:
        """Artifacts of the flow run."""
        return Artifacts(self._outbox, self._flow_run_id)

    def _flow_run_id(self, client: SyncPrefectClient) -> UUID | str:
        """Id of the flow run, which the first report creates."""
        if self._flow_run is None:
            flow = client.create_flow_from_name(self._flow)
            values = {
                "flow_id": str(flow),
                "parameters": self._parameters,
                "state": _state("RUNNING"),
            }
            if self._name:
                values["name"] = self._name
            made = client.request("POST", "/flow_runs/", json=values)
            self._flow_run = str(made.json()["id"])
        return self._flow_run

    def _send_state(self, state: dict[str, Any], client: SyncPrefectClient) -> None:
        where = {"id": self._flow_run_id(client)}
        values = {"state": state, "force": True}
        client.request(
            "POST", "/flow_runs/{id}/set_state", path_params=where, json=values
        )


class _TaskRun:
    """A stage as a task run."""

    def __init__(
        self,
        outbox: ReportOutbox,
        flow_run: Callable[[SyncPrefectClient], UUID | str],
        stage: str,
    ) -> None:
        self.id = uuid4()
        self._outbox = outbox
        self._flow_run = flow_run
        self._stage = stage
        self._made = False

    def state(self, kind: str, message: str = "") -> None:
        send = partial(self._send, _state(kind, message))
        self._outbox.post(f"task run {self.id}", send)

    def _send(self, state: dict[str, Any], client: SyncPrefectClient) -> None:
        if self._made:
            where, values = {"id": self.id}, {"state": state, "force": True}
            client.request(
                "POST", "/task_runs/{id}/set_state", path_params=where, json=values
            )
            return
        values = {
            "id": str(self.id),
            "flow_run_id": str(self._flow_run(client)),
            "name": self._stage,
            "task_key": self._stage,
            "dynamic_key": str(self.id),
            "state": state,
        }
        client.request("POST", "/task_runs/", json=values)
        self._made = True


@contextmanager
def reported(
    flow: str, parameters: Mapping[str, Any], name: str | None = None
) -> Iterator[RunReport]:
    """Report the block as a flow run; see `RunReport`."""
    report = RunReport(flow, parameters, name)
    try:
        with attached(report.lines):
            yield report
    except BaseException as error:
        report.state(*_ended(error))
        raise
    else:
        report.state("COMPLETED", report.message)
    finally:
        report.flush()


def _ended(error: BaseException) -> tuple[str, str]:
    """State and message of a run that an error ended."""
    if isinstance(error, XnqError):
        return "FAILED", str(error)
    return "CRASHED", type(error).__name__


def _without_nan(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows with None for NaN, which JSON does not have."""
    return [
        {
            name: None if isinstance(value, float) and math.isnan(value) else value
            for name, value in row.items()
        }
        for row in rows
    ]


def _state(kind: str, message: str = "") -> dict[str, Any]:
    return {"type": kind, "name": kind.capitalize(), "message": message or None}
