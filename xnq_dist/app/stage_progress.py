"""Progress of a stage, shown on the terminal or log and as a Prefect artifact."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

from xnq_dist.core.progress import Progress, silent

__all__ = ["CONSOLE", "StageProgress", "console_progress", "on_console"]

log = logging.getLogger("xnq_dist.core.progress")

T = TypeVar("T")

CONSOLE: ContextVar[Progress] = ContextVar("CONSOLE", default=silent)
"""Where a flow started from the command line shows its progress."""

LOG_EVERY = 5.0
"""Seconds between two log lines of one stage."""
SEND_EVERY = 2.0
"""Seconds between two updates of an artifact."""

Send = Callable[[str, str, float], None]
"""Sends stage, text and percent as an artifact; must not block."""


class StageProgress:
    """Progress of one stage.

    Parameters
    ----------
    send
        Also sends it to Prefect; None: show it on the terminal or log only.
    """

    def __init__(self, stage: str, send: Send | None = None) -> None:
        self._stage = stage
        self._send = send
        self._sent = 0.0

    def __call__(self, what: str, done: int, total: int) -> None:
        """Report that `done` of `total` steps are done."""
        text = f"{self._stage}: {what}"
        CONSOLE.get()(text, done, total)
        now = time.monotonic()
        if self._send is None or (now - self._sent < SEND_EVERY and done < total):
            return
        self._sent = now
        self._send(self._stage, text, 100.0 * done / max(1, total))


def on_console(stage: str, work: Callable[[Progress], T]) -> T:
    """Run a stage; its progress is shown on the terminal or in the log."""
    return work(StageProgress(stage))


@contextmanager
def console_progress() -> Iterator[None]:
    """Show progress while the block runs: bars on a terminal, otherwise log lines."""
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
