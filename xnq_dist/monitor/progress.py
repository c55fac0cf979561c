"""Progress and log lines of a run, for everything that shows them."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

from xnq_dist.core.progress import Progress

__all__ = [
    "CONSOLE",
    "START",
    "Console",
    "attached",
    "expecting",
    "in_view",
    "log_lines",
    "watching",
]

log = logging.getLogger(__name__)

T = TypeVar("T")

START = "start"
"""The first step of every stage."""
WORTH_SAYING = 60.0
"""Planned seconds of a run from which they are logged: the first run of a machine
compiles kernels for half a minute, which no plan holds."""
LOG_EVERY = 60.0
"""Seconds between two log lines of one stage."""

SHOWN_BY: ContextVar[tuple[Progress, ...]] = ContextVar("SHOWN_BY", default=())
"""What shows the steps of the current block."""

LOGGER = logging.getLogger("xnq_dist")
"""The package's logger."""


@contextmanager
def expecting(seconds: float | None) -> Iterator[None]:
    """Log the expected time of the block, and if it took more than twice as long.

    Nothing is logged if a short time is expected; None: not known.
    """
    began, expected = time.monotonic(), seconds or 0.0
    if expected >= WORTH_SAYING:
        log.info("expected time: %.0f min", expected / 60)
    yield
    spent = time.monotonic() - began
    if WORTH_SAYING <= expected < spent / 2:
        log.warning("the run took %.0f s instead of %.0f", spent, expected)


def in_view(stage: str, work: Callable[[Progress], T]) -> T:
    """Run a stage; whatever watches the run shows its progress."""
    shown_by = SHOWN_BY.get()

    def progress(what: str, done: int, total: int) -> None:
        for show in shown_by:
            show(f"{stage}: {what}", done, total)

    progress(START, 0, 1)
    return work(progress)


@contextmanager
def watching(show: Progress) -> Iterator[None]:
    """Call `show` with each step, ``stage: step``, of the stages in the block."""
    token = SHOWN_BY.set((*SHOWN_BY.get(), show))
    try:
        yield
    finally:
        SHOWN_BY.reset(token)


@contextmanager
def log_lines() -> Iterator[None]:
    """Log each stage of the block when it begins, then every `LOG_EVERY` seconds."""
    last = time.monotonic()

    def show(text: str, done: int, total: int) -> None:
        nonlocal last
        now, begins = time.monotonic(), text.endswith(f": {START}")
        if begins or now - last >= LOG_EVERY:
            last = now
            log.info("%s%s", text, "" if begins else f" {done:,}/{total:,}")

    with watching(show):
        yield


class Console(logging.StreamHandler[Any]):
    """Logs to the current sys.stderr, which tests and progress bars replace."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write one line."""
        self.stream = sys.stderr
        super().emit(record)


CONSOLE = Console()
"""The handler that logs to stderr."""
CONSOLE.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%H:%M:%S"))


@contextmanager
def attached(handler: logging.Handler) -> Iterator[None]:
    """Give the package's records from INFO on to one more handler."""
    level = LOGGER.level
    LOGGER.addHandler(handler)
    if not LOGGER.isEnabledFor(logging.INFO):
        LOGGER.setLevel(logging.INFO)
    try:
        yield
    finally:
        LOGGER.removeHandler(handler)
        LOGGER.setLevel(level)
