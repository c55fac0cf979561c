"""What Prefect is shown of a run, behind one object: `PrefectRun`.

A flow of `flows/` makes one without arguments and ends with its `state_of`. A run of
the command line appears in Prefect as a flow run with one task run per stage. Reports
are sent by a daemon thread that does not delay the run: a newer report replaces an
older one that is not sent yet, and reports that the API rejects are dropped. If the API
does not respond, the run waits `GRACE` seconds at its end.
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
from contextlib import contextmanager, nullcontext, suppress
from contextvars import ContextVar
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote
from uuid import uuid4

import httpx
from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.client.orchestration import get_client
from prefect.client.schemas import State
from prefect.context import FlowRunContext, TaskRunContext
from prefect.events import emit_event
from prefect.exceptions import PrefectException
from prefect.settings import get_current_settings
from prefect.states import Completed, Failed
from pydantic import BaseModel

from xnq_dist.core.config import load_settings, merged
from xnq_dist.core.errors import (
    ConnectionLostError,
    InfrastructureError,
    SettingsError,
    XnqError,
)
from xnq_dist.core.progress import Progress
from xnq_dist.core.redaction import redacted
from xnq_dist.core.settings import Settings
from xnq_dist.core.store import RunDirectory
from xnq_dist.monitor.attempts import limited, repeated
from xnq_dist.monitor.log_lines import attached
from xnq_dist.monitor.news import RunPage, changed_rows, published_rows
from xnq_dist.monitor.progress import current_watch, stage_progress
from xnq_dist.monitor.status import NEXT, recorded

if TYPE_CHECKING:
    from xnq_dist.jobs import Job

__all__ = [
    "PrefectRun",
    "await_api",
    "check_api",
    "check_starts",
    "deployed_settings",
    "stage",
    "warn_of_credentials",
]

log = logging.getLogger(__name__)

T = TypeVar("T")

GRACE = 5.0
"""Seconds that a finished run waits for an API that does not respond."""
PATIENCE, POLL = 300.0, 2.0
"""Seconds that a flow's run waits at its end for an API that is down, and between two
questions to it."""
PAGE_EVERY = 5.0
"""Seconds between two updates of the page."""
ROWS_SHOWN = 50
"""Rows of the table artifact; the complete table is in the run directory."""
LOG_LINES = 1000
"""Maximum number of log lines that wait to be sent."""
STARTS = 4
"""Starts of one flow run; then it fails, because something kills it each time."""


class PrefectRun:
    """What Prefect is shown of a run: stages, progress, log lines, results, its end.

    Parameters
    ----------
    flow, parameters, name
        Flow, parameters and name of the flow run that shows a run which Prefect did not
        start; without them, the run is the current flow run.
    """

    def __init__(
        self,
        flow: str = "",
        parameters: Mapping[str, Any] | None = None,
        name: str | None = None,
    ) -> None:
        self._outbox = _Outbox()
        if flow:
            self._run = _Record("flow_runs", partial(_flow_run, flow, parameters, name))
            self._report(self._run, "RUNNING")
        else:
            flow_run = _current_flow_run()
            self._run = _Record("flow_runs", id=str(flow_run and flow_run.id))

    def state_of(
        self,
        work: Callable[[Settings], T],
        out: str | None = None,
        settings: Callable[[], Settings] = Settings,
        retries: int = 0,
        retry_delay: float = 0.0,
        timeout: float | None = None,
    ) -> State[T]:
        """Do the work of the current flow run; the state that the flow returns.

        An `XnqError` becomes a failed state with its sentence and the next action.

        Parameters
        ----------
        work
            Called with the settings.
        out
            Run directory whose state, results and events are shown; None: there is
            none.
        settings
            Returns the settings.
        retries, retry_delay
            How often `work` is called again when infrastructure was lost, and seconds
            before each time.
        timeout
            Seconds, all calls together, after which the run fails; None: no limit.
        """
        token = CURRENT.set(self)
        try:
            _warn_of_credentials()
            check_starts()
            with attached(_LogLines(self._outbox, self._run)):
                chosen = settings()
                shown = self._directory(out, chosen) if out else nullcontext()
                with shown as page, limited(timeout):
                    found = repeated(partial(work, chosen), retries, retry_delay)
            return Completed(message=page and page.message(), data=found)
        except XnqError as error:
            return Failed(message=_with_next(error), data=error)
        finally:
            CURRENT.reset(token)
            self._outbox.flush()
            await_api()

    def task(self, stage: str, work: Callable[[Progress], T]) -> T:
        """Run a stage as a Prefect task; an `XnqError` fails it without a traceback."""

        def guarded() -> Any:
            context = TaskRunContext.get()
            try:
                return work(self._progress(stage, context and context.task_run.id))
            except XnqError as error:
                return Failed(message=str(error), data=error)

        made: Any = task(
            name=stage,
            cache_policy=NO_CACHE,
            persist_result=False,
            retries=2,
            retry_delay_seconds=5,
            retry_condition_fn=_transient,
        )(guarded)
        value: T = made(return_state=True).result(raise_on_failure=True)
        return value

    @contextmanager
    def reported(
        self, out: str | None = None, settings: Settings | None = None
    ) -> Iterator[None]:
        """Show the block as a flow run that Prefect did not start."""
        message = ""
        try:
            with attached(_LogLines(self._outbox, self._run)):
                if out is None or settings is None:
                    yield
                else:
                    with self._directory(out, settings, in_flow=False) as page:
                        yield
                    message = page.message()
        except BaseException as error:
            self._report(self._run, *_ended(error))
            raise
        else:
            self._report(self._run, "COMPLETED", message)
        finally:
            self._outbox.flush()

    def do(self, stage: str, work: Callable[[Progress], T]) -> T:
        """Run a stage; as `task`, for a run that Prefect did not start."""
        number = str(uuid4())
        shown = _Record("task_runs", partial(self._task_run, stage, number))
        self._report(shown, "RUNNING")
        try:
            value = work(self._progress(stage, number))
        except BaseException as error:
            self._report(shown, *_ended(error))
            raise
        self._report(shown, "COMPLETED")
        return value

    @contextmanager
    def _directory(
        self, out: str, settings: Settings, in_flow: bool = True
    ) -> Iterator[RunPage]:
        """Show where a run directory stands, then how it ended and its results."""
        run = RunDirectory(out)
        with recorded(out, run_id=self._run.id) as status:
            page = RunPage(run, status, settings.watch.address)
            shown, last = self._artifact("xnq-run", "markdown"), 0.0
            text = "Where the run stands, what changed, what is next"

            def show(_text: str, _done: int, _total: int) -> None:
                nonlocal last
                if time.monotonic() - last >= PAGE_EVERY:
                    last = time.monotonic()
                    shown(text, page.text())

            try:
                with current_watch().shown(show):
                    yield page
            except BaseException as error:
                status.end(error)
                if in_flow and isinstance(error, XnqError):
                    log.error("%s", _with_next(error))
                raise
            else:
                status.end(None)
            finally:
                # An error here must not take the place of the run's.
                with suppress(OSError, XnqError):
                    shown(text, page.text())
        self._tables(run)
        if in_flow and (version := page.published()):
            report = version.folder.uri_of("report.html")
            emit_event(
                event="xnq.run.published",
                resource={"prefect.resource.id": f"xnq.run.{quote(run.uri, safe='')}"},
                payload={"report": report, "news": page.news(version)},
            )

    def _tables(self, run: RunDirectory) -> None:
        """Show the first rows of the results, and what changed."""
        for key, text, rows in (
            ("xnq-prevalence", "first rows of", published_rows),
            ("xnq-changes", "changes since the run before in", changed_rows),
        ):
            values = json.dumps(_without_nan(rows(run, ROWS_SHOWN)), default=str)
            self._artifact(key, "table")(f"{text} {run.uri}", values)

    def _progress(self, stage: str, task_run: Any) -> Progress:
        return stage_progress(stage, self._artifact(None, "progress", str(task_run)))

    def _artifact(
        self, key: str | None, kind: str, task_run: str | None = None
    ) -> Callable[[str, Any], None]:
        """A function that shows a text and data as an artifact."""

        def fixed(client: Any) -> dict[str, Any]:
            known = {"type": kind, "key": key, "flow_run_id": self._run.made(client)}
            return known | ({"task_run_id": task_run} if task_run else {})

        record = _Record("artifacts", fixed)

        def show(text: str, data: Any) -> None:
            values = {"description": text, "data": data}
            self._outbox.post(record, partial(record.send, values))

        return show

    def _report(self, record: _Record, kind: str, message: str = "") -> None:
        """Report the state of a flow run or task run."""
        state = {"type": kind, "name": kind.capitalize(), "message": message or None}
        self._outbox.post(record, partial(record.send, {"state": state}))

    def _task_run(self, stage: str, number: str, client: Any) -> dict[str, Any]:
        names = {"name": stage, "task_key": stage, "dynamic_key": number}
        return {**names, "id": number, "flow_run_id": self._run.made(client)}


CURRENT: ContextVar[PrefectRun | None] = ContextVar("CURRENT", default=None)
"""The object of the current flow run."""


def stage(name: str, work: Callable[[Job, Progress], Any]) -> Callable[[Job], None]:
    """A stage of a job as a Prefect task of the current flow run, if it is due."""

    def do(job: Job) -> None:
        shown = CURRENT.get()
        if shown is None:
            raise RuntimeError(f"the stage {name} needs the `state_of` of a flow run")
        job.do(name, work, shown.task)

    return do


def _transient(_task: Any, _run: Any, state: State[Any]) -> bool:
    """Whether a stage failed because of the network, so that a retry can help."""
    error = state.result(raise_on_failure=False)
    return isinstance(error, ConnectionLostError | httpx.TransportError)


def _with_next(error: XnqError) -> str:
    return f"{error}. Next: {NEXT[error.exit_code]}."


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


def _flow_run(
    flow: str, parameters: Mapping[str, Any] | None, name: str | None, client: Any
) -> dict[str, Any]:
    values = {
        "flow_id": str(client.create_flow_from_name(flow)),
        "parameters": redacted(dict(parameters or {})),
    }
    return values | ({"name": name} if name else {})


class _Record:
    """A record of Prefect's API: its first report makes it, later ones change it.

    Parameters
    ----------
    kind
        ``flow_runs``, ``task_runs`` or ``artifacts``.
    fixed
        Returns the values that stay; called on the outbox's thread.
    id
        Of a record that exists.
    """

    def __init__(
        self,
        kind: str,
        fixed: Callable[[Any], dict[str, Any]] = lambda client: {},
        id: str | None = None,  # noqa: A002
    ) -> None:
        self._kind, self._fixed, self.id = kind, fixed, id

    def made(self, client: Any) -> str:
        """The id of the record, which is made if it does not exist."""
        if self.id is None:
            self.send({}, client)
        return str(self.id)

    def send(self, values: dict[str, Any], client: Any) -> None:
        """Make the record with these values, or change them."""
        path = f"/{self._kind}/"
        if self.id is None:
            values = {**self._fixed(client), **values}
            self.id = str(client.request("POST", path, json=values).json()["id"])
        elif self._kind == "artifacts":
            client.request("PATCH", f"{path}{self.id}", json=values)
        elif values:
            values = {**values, "force": True}
            client.request("POST", f"{path}{self.id}/set_state", json=values)


class _LogLines(logging.Handler):
    """Sends log records of the package as log lines of a flow run.

    Prefect sends those of its own loggers only. The name of a line is that of the
    logger and the host, which Prefect's page shows after the text.
    """

    def __init__(self, outbox: _Outbox, run: _Record) -> None:
        super().__init__(logging.INFO)
        self._outbox, self._run = outbox, run
        self._waiting: deque[dict[str, Any]] = deque(maxlen=LOG_LINES)

    def emit(self, record: logging.LogRecord) -> None:
        """Queue one record; does not wait for the API."""
        self._waiting.append(
            {
                "name": f"{record.name} on {platform.node()}",
                "level": record.levelno,
                "message": redacted(record.getMessage()),
                "timestamp": datetime.fromtimestamp(record.created, UTC).isoformat(),
            }
        )
        self._outbox.post(self, self._send)

    def _send(self, client: Any) -> None:
        run = {"flow_run_id": self._run.made(client)}
        lines = []
        while self._waiting:
            lines.append(self._waiting.popleft() | run)
        client.request("POST", "/logs/", json=lines)


class _Outbox:
    """Sends reports one by one; of reports with the same key only the newest."""

    def __init__(self) -> None:
        self._waiting: dict[object, Callable[[Any], None]] = {}
        self._sending = False
        self._silent_since: float | None = None
        self._news = threading.Condition()
        # Prefect's settings are in the context of the thread that makes the outbox.
        run = contextvars.copy_context().run
        threading.Thread(
            target=run, args=(self._work,), daemon=True, name="reports to Prefect"
        ).start()

    def post(self, key: object, send: Callable[[Any], None]) -> None:
        """Queue a report; does not wait for the API."""
        with self._news:
            self._waiting[key] = send
            self._news.notify_all()

    def flush(self, seconds: float = GRACE) -> None:
        """Wait until all is sent, at most `seconds` after the last response."""
        with self._news:
            silent = self._silent_since
            waited = 0.0 if silent is None else time.monotonic() - silent
            if self._news.wait_for(
                lambda: not (self._waiting or self._sending), max(seconds - waited, 0)
            ):
                return
        log.warning(
            "Prefect's API did not accept the last reports within %g s: the run is "
            "complete, but Prefect may show it as unfinished",
            seconds,
        )

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

    def _next(self) -> Callable[[Any], None]:
        with self._news:
            self._sending = False
            self._news.notify_all()
            self._news.wait_for(lambda: self._waiting)
            self._sending = True
            self._silent_since = self._silent_since or time.monotonic()
            return self._waiting.pop(next(iter(self._waiting)))


def check_api() -> None:
    """Check that a Prefect API is configured.

    Raises
    ------
    SettingsError
        When neither the active Prefect profile nor ``PREFECT_API_URL`` names an API.
    """
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
    end, warned = time.monotonic() + seconds, False
    with get_client(sync_client=True) as client:
        while error := client.api_healthcheck():
            if not warned:
                log.warning(
                    "Prefect's API does not answer (%s): its report of the run's end "
                    "waits up to %g s",
                    redacted(str(error)) or type(error).__name__,
                    seconds,
                )
            warned = True
            if time.monotonic() > end:
                return
            time.sleep(POLL)


def _current_flow_run() -> Any:
    context = FlowRunContext.get()
    return context.flow_run if context else None


def _warn_of_credentials() -> None:
    context = FlowRunContext.get()
    warn_of_credentials(**((context and context.parameters) or {}))


def warn_of_credentials(**parameters: Any) -> None:
    """Log a warning for each parameter whose addresses contain credentials."""
    for name, value in parameters.items():
        plain = value.model_dump() if isinstance(value, BaseModel) else value
        if redacted(plain) != plain:
            log.warning(
                "parameter %s of this flow run holds credentials, which Prefect stores "
                "and shows: set them in the worker's environment instead, for example "
                "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
                name,
            )


def deployed_settings(given: Settings | None) -> Settings:
    """Settings of the deployment, if there is one, and over them those of this run.

    Prefect replaces a parameter of a deployment as a whole when a run gives it.
    Settings are laid over the deployment's here, key by key.

    Parameters
    ----------
    given
        The parameter ``settings`` as validated; used where no deployment is.

    Raises
    ------
    SettingsError
        When the two together are not valid.

    Examples
    --------
    A deployment with ``{"seed": 0, "reservoir": {"dim": 64}}`` and a run with
    ``{"reservoir": {"supersteps": 5}}`` have seed 0, 64 columns and 5 supersteps.
    """
    flow_run = _current_flow_run()
    if flow_run is None or flow_run.deployment_id is None:
        return given or Settings()
    with get_client(sync_client=True) as client:
        deployment = client.read_deployment(flow_run.deployment_id)
    layers = (deployment.parameters, flow_run.parameters)
    return load_settings(base=merged(*(each.get("settings") or {} for each in layers)))


def check_starts() -> None:
    """Check that this flow run has not been started too often.

    Raises
    ------
    InfrastructureError
        After `STARTS` starts of this flow run.
    """
    flow_run = _current_flow_run()
    if flow_run is not None and flow_run.run_count > STARTS:
        raise InfrastructureError(
            f"this flow run was started {STARTS} times and ended each time without a "
            "result, for example because its process was killed: look at the memory "
            "and the logs of its machine, and start it again"
        )
