"""Progress of a flow: to the terminal or log, and to Prefect as an artifact."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from xnq_dist.progress import Progress, silent
from xnq_dist.redaction import redacted

__all__ = ["CONSOLE", "StageProgress", "artifact_faults_logged", "console_progress"]

log = logging.getLogger("xnq_dist.progress")

CONSOLE: ContextVar[Progress] = ContextVar("CONSOLE", default=silent)
"""Where a flow started from the command line shows its progress."""

LOG_EVERY = 5.0
"""Seconds between two log lines of one stage."""
ARTIFACT_EVERY = 2.0
"""Seconds between two updates of a Prefect artifact: each is a request."""


class StageProgress:
    """Progress of one stage; a Prefect progress artifact while in a task run."""

    def __init__(self, stage: str) -> None:
        self._stage = stage
        self._artifact: Any = None
        self._sent = 0.0

    def __call__(self, what: str, done: int, total: int) -> None:
        """Tell that `done` of `total` are done."""
        CONSOLE.get()(f"{self._stage}: {what}", done, total)
        now = time.monotonic()
        if now - self._sent < ARTIFACT_EVERY and done < total:
            return
        self._sent = now
        self._send(f"{self._stage}: {what}", 100.0 * done / max(1, total))

    def _send(self, text: str, percent: float) -> None:
        from prefect.artifacts import (
            create_progress_artifact,
            update_progress_artifact,
        )
        from prefect.context import TaskRunContext

        if TaskRunContext.get() is None:
            return
        with artifact_faults_logged():
            if self._artifact is None:
                self._artifact = create_progress_artifact(percent, description=text)
            else:
                update_progress_artifact(self._artifact, percent, description=text)


@contextmanager
def artifact_faults_logged() -> Iterator[None]:
    """An artifact that Prefect's API does not take is logged: the work goes on."""
    import httpx

    try:
        yield
    except httpx.HTTPError as error:
        # The address in it may hold a password.
        log.warning("Prefect's API did not take an artifact: %s", redacted(str(error)))


@contextmanager
def console_progress() -> Iterator[None]:
    """Bars on a terminal, log lines elsewhere, while the block runs."""
    if not sys.stderr.isatty():
        token = CONSOLE.set(_LogLines())
        try:
            yield
        finally:
            CONSOLE.reset(token)
        return
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bars

    with Bars(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed}/{task.total}"),
        TimeElapsedColumn(),
        console=Console(stderr=True),
    ) as bars:
        rows: dict[str, Any] = {}

        def show(what: str, done: int, total: int) -> None:
            if what not in rows:
                rows[what] = bars.add_task(what, total=total)
            bars.update(rows[what], completed=done, total=total)

        token = CONSOLE.set(show)
        try:
            yield
        finally:
            CONSOLE.reset(token)


class _LogLines:
    def __init__(self) -> None:
        self._last: dict[str, float] = {}

    def __call__(self, what: str, done: int, total: int) -> None:
        now = time.monotonic()
        if done < total and now - self._last.get(what, 0.0) < LOG_EVERY:
            return
        self._last[what] = now
        log.info("%s %d/%d", what, done, total)
