"""What a flow run has beyond its parameters: the deployment's settings, more attempts.

Prefect replaces a parameter of a deployment as a whole when a run gives it. Settings
are laid over the deployment's here, key by key. A run whose infrastructure was lost is
started again in this process; one whose process was killed is scheduled again by the
automation in `deploy/automations.yaml`, and refused here after `STARTS` starts.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from prefect.client.orchestration import get_client
from prefect.context import FlowRunContext
from pydantic import BaseModel

from xnq_dist.core.config import load_settings, merged
from xnq_dist.core.errors import InfrastructureError
from xnq_dist.core.failures import place_of
from xnq_dist.core.redaction import redacted
from xnq_dist.core.settings import Settings

__all__ = [
    "check_starts",
    "deployed_settings",
    "limited",
    "repeated",
    "warn_of_credentials",
]

log = logging.getLogger(__name__)

T = TypeVar("T")

STARTS = 4
"""Starts of one flow run; then it fails, because something kills it each time."""

CLEANUP = 300.0
"""Seconds after the timeout for workers to end; then this process is ended."""


class _TimedOut(BaseException):
    """No `Exception`, which a stage would explain or a retry would answer."""


@contextmanager
def limited(seconds: float | None) -> Iterator[None]:
    """End the block after some time, wherever it is; None: never.

    An alarm raises an exception in the main thread, so that workers are closed and the
    lock is released. A thread that does not return from foreign code cannot raise it:
    its process ends `CLEANUP` seconds later, and so do its workers.

    Raises
    ------
    InfrastructureError
        When the time is over.
    """
    if seconds is None or threading.current_thread() is not threading.main_thread():
        yield
        return

    def ring(_number: int, _frame: Any) -> None:
        raise _TimedOut

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    last = threading.Timer(
        seconds + CLEANUP, os._exit, (InfrastructureError.exit_code,)
    )
    last.daemon = True
    last.start()
    try:
        yield
    except _TimedOut as error:
        place = place_of(error) or "the run"
        raise InfrastructureError(
            f"{place} was ended because the run took longer than its parameter timeout "
            f"({seconds:g} s): if its log lines show progress set timeout to more, and "
            "start the run again to resume"
        ) from error
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        last.cancel()


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


def _flow_run() -> Any:
    context = FlowRunContext.get()
    return context.flow_run if context else None


def check_starts() -> None:
    """Check that this flow run has not been started too often.

    Raises
    ------
    InfrastructureError
        After `STARTS` starts of this flow run.
    """
    flow_run = _flow_run()
    if flow_run is not None and flow_run.run_count > STARTS:
        raise InfrastructureError(
            f"this flow run was started {STARTS} times and ended each time without a "
            "result, for example because its process was killed: look at the memory "
            "and the logs of its machine, and start it again"
        )


def repeated(work: Callable[[], T], retries: int, delay: float) -> T:
    """Call `work`, and again if infrastructure was lost; it resumes where it stopped.

    Parameters
    ----------
    retries
        Calls after the first.
    delay
        Seconds before each of them.

    Raises
    ------
    XnqError
        Of the last call; of the first, if it is not an `InfrastructureError`.
    """
    for left in range(retries, 0, -1):
        try:
            return work()
        except InfrastructureError as error:
            text, at = "%s; starting again in %g s (%d of %d)", retries - left + 1
            log.warning(text, error, delay, at, retries)
            time.sleep(delay)
    return work()
