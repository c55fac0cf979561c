"""What Prefect shows of a flow run: stages, log lines and state.

A flow of `flows/` names its stages with `stage` and returns the state of `state_of`.
"""

from __future__ import annotations

import copy
import logging
import time
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.client.orchestration import get_client
from prefect.client.schemas import State
from prefect.context import FlowRunContext
from prefect.logging.handlers import APILogHandler
from prefect.states import Completed, Failed
from pydantic import BaseModel

from xnq_dist.core.config import load_settings, merged
from xnq_dist.core.errors import InfrastructureError, XnqError
from xnq_dist.core.progress import Progress
from xnq_dist.core.redaction import redacted
from xnq_dist.core.settings import Settings
from xnq_dist.core.store import RunDirectory
from xnq_dist.monitor.attempts import limited, repeated
from xnq_dist.monitor.progress import attached, in_view, log_lines
from xnq_dist.monitor.status import NEXT, recorded
from xnq_dist.steps.history import read_history

__all__ = [
    "await_api",
    "check_starts",
    "deployed_settings",
    "results_text",
    "stage",
    "state_of",
    "warn_of_credentials",
]

log = logging.getLogger(__name__)

T = TypeVar("T")

PATIENCE, POLL = 300.0, 2.0
"""Seconds that a flow's run waits at its end for an API that is down, and between two
questions to it."""
STARTS = 4
"""Starts of one flow run; then it fails, because something kills it each time."""


def state_of(
    work: Callable[[Settings], T],
    out: str,
    settings: Callable[[], Settings],
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
        Run directory.
    settings
        Returns the settings.
    retries, retry_delay
        How often `work` is called again when infrastructure was lost, and seconds
        before each time.
    timeout
        Seconds, all calls together, after which the run fails; None: no limit.
    """
    run_id, run = str(_flow_run().id), RunDirectory(out)
    try:
        warn_of_credentials(**(_flow_run().parameters or {}))
        check_starts()
        before = run.current_id()
        with attached(_LogLines(run_id)):
            chosen = settings()
            with recorded(out, run_id=run_id), log_lines(), limited(timeout):
                found = repeated(partial(work, chosen), retries, retry_delay)
        message = results_text(run, before, chosen.watch.address)
        state: State[T] = Completed(message=message, data=found)
    except XnqError as error:
        state = Failed(message=f"{error}. Next: {NEXT[error.exit_code]}.", data=error)
    finally:
        await_api()
    return state


def stage(name: str) -> Callable[[Any], None]:
    """A stage of a `Job` as a Prefect task of the current flow run, if it is due."""
    return lambda job: job.do(name, _as_task)


def _flow_run() -> Any:
    """The current flow run; None outside of a flow."""
    context: Any = FlowRunContext.get()
    return context and context.flow_run


def _as_task(stage: str, work: Callable[[Progress], T]) -> T:
    """Run a stage as a Prefect task; an `XnqError` fails it without a traceback."""

    def guarded() -> Any:
        try:
            return in_view(stage, work)
        except XnqError as error:
            return Failed(message=str(error), data=error)

    made: Any = task(name=stage, cache_policy=NO_CACHE, persist_result=False)(guarded)
    value: T = made(return_state=True).result(raise_on_failure=True)
    return value


class _LogLines(APILogHandler):
    """Sends the package's log records as log lines of a flow run, from any thread."""

    def __init__(self, run_id: str) -> None:
        super().__init__(logging.INFO)
        self._run_id = run_id

    def emit(self, record: logging.LogRecord) -> None:
        """Queue one record; does not wait for the API."""
        shown = copy.copy(record)
        shown.msg, shown.args = redacted(record.getMessage()), ()
        shown.flow_run_id = self._run_id
        super().emit(shown)


def results_text(run: RunDirectory, before: str | None, address: str | None) -> str:
    """What changed since the results before, and the place of the report.

    Parameters
    ----------
    before
        Run id of the results before; None: there were none.
    address
        The setting `watch.address`.
    """
    version = run.current()
    if version is None:
        return "No results are published."
    place = run.uri_of("report.html")
    if address:
        place = f"{address.rstrip('/')}/report.html"
    report = f"Report: {place} ({version.manifest.created})"
    if version.run_id == before:
        return f"Nothing changed since the last results. {report}"
    if "changes" not in version.tables():
        return f"First results, or not comparable with those before. {report}"
    last = read_history(run.location).runs()[-1]
    return (
        f"{last.changed:,} communities changed beyond chance, {last.new:,} new, "
        f"{last.gone:,} gone. {report}"
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
    flow_run = _flow_run()
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
    if _flow_run().run_count > STARTS:
        raise InfrastructureError(
            f"this flow run was started {STARTS} times and ended each time without a "
            "result, for example because its process was killed: look at the memory "
            "and the logs of its machine, and start it again"
        )
