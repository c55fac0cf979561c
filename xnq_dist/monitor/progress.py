"""Progress of a run, for everything that shows it: console, status file, Prefect."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

from xnq_dist.core.progress import Progress

__all__ = [
    "START",
    "Watch",
    "current_watch",
    "expect",
    "in_view",
    "log_lines",
    "seconds_left_text",
    "warn_if_late",
    "watching",
]

log = logging.getLogger(__name__)

T = TypeVar("T")

START = "start"
"""The first step of every stage."""
WORTH_SAYING = 60.0
"""Planned seconds of a run from which the time left is shown: the first run of a
machine compiles kernels for half a minute, which no plan holds."""
LOG_EVERY = 60.0
"""Seconds between two log lines of one stage."""


class Watch:
    """The progress of a run: its steps, for all that show them, and its time left."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began = clock()
        self._shown: list[Progress] = []
        self.planned = 0.0
        """Expected seconds of the complete run; 0: not known."""

    def step(self, text: str, done: int, total: int) -> None:
        """Note that `done` of `total` parts of ``stage: step`` are done."""
        for show in tuple(self._shown):
            show(text, done, total)

    @contextmanager
    def shown(self, show: Progress) -> Iterator[None]:
        """Call `show` with each step of the block."""
        self._shown.append(show)
        try:
            yield
        finally:
            self._shown.remove(show)

    def spent(self) -> float:
        """Seconds since the run began."""
        return self._clock() - self._began

    def left(self) -> float | None:
        """Planned seconds to the end; None without a plan, or once they are over."""
        left = self.planned - self.spent()
        return left if left > 0 else None

    def left_text(self) -> str:
        """The time left in words; empty if nothing is known, or for a short run."""
        return seconds_left_text(self.left()) if self.planned >= WORTH_SAYING else ""


def seconds_left_text(left: float | None) -> str:
    """A time left in words; empty for None."""
    if left is None:
        return ""
    if left < 100:
        return f"about {max(1, round(left))} s left"
    minutes = round(left / 60)
    if minutes < 100:
        return f"about {minutes} min left"
    return f"about {left / 3600:.1f} h left"


WATCH: ContextVar[Watch | None] = ContextVar("WATCH", default=None)


def current_watch() -> Watch:
    """The watch of the current block; if there is none, one that nobody sees."""
    return WATCH.get() or Watch()


def expect(seconds: float | None) -> None:
    """Note the expected seconds of the current run; None: not known."""
    current_watch().planned = seconds or 0.0


def warn_if_late() -> None:
    """Log if the current run took more than twice the expected time, from a minute."""
    watch = current_watch()
    if WORTH_SAYING <= watch.planned < watch.spent() / 2:
        log.warning("the run took %.0f s instead of %.0f", watch.spent(), watch.planned)


def in_view(stage: str, work: Callable[[Progress], T]) -> T:
    """Run a stage; whatever watches the run shows its progress."""
    watch = current_watch()

    def progress(what: str, done: int, total: int) -> None:
        watch.step(f"{stage}: {what}", done, total)

    progress(START, 0, 1)
    return work(progress)


@contextmanager
def watching() -> Iterator[Watch]:
    """The watch of the current block, made here if there is none."""
    watch = current_watch()
    token = WATCH.set(watch)
    try:
        yield watch
    finally:
        WATCH.reset(token)


@contextmanager
def log_lines() -> Iterator[None]:
    """Log each stage of the block when it begins, then every `LOG_EVERY` seconds."""
    last = time.monotonic()

    def show(text: str, done: int, total: int) -> None:
        nonlocal last
        now, begins = time.monotonic(), text.endswith(f": {START}")
        if begins or now - last >= LOG_EVERY:
            last, left = now, watch.left_text()
            steps = "" if begins else f" {done:,}/{total:,}"
            log.info("%s", f"{text}{steps}{left and f', {left}'}")

    with watching() as watch, watch.shown(show):
        yield
