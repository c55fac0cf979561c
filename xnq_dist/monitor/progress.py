"""Progress of a run, for everything that shows it: console, status file, Prefect."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

from xnq_dist.core.progress import Progress

__all__ = [
    "START",
    "TimeLeft",
    "Watch",
    "counted",
    "current_watch",
    "expect",
    "in_view",
    "seconds_left_text",
    "stage_progress",
    "watching",
]

T = TypeVar("T")

START = "start"
"""The first step of every stage."""
WORTH_SAYING = 60.0
"""Planned seconds of a run from which the time left is shown: the first run of a
machine compiles kernels for half a minute, which no plan holds."""
SEND_EVERY = 2.0
"""Seconds between two reports of a stage to `send`."""


def stage_progress(
    stage: str, send: Callable[[str, float], None] | None = None
) -> Progress:
    """Progress of a stage, which begins now.

    Parameters
    ----------
    send
        Also called with a text and a percentage, every few seconds; must not block.
    """
    watch, sent = current_watch(), 0.0
    watch.step(f"{stage}: {START}", 0, 1)

    def progress(what: str, done: int, total: int) -> None:
        nonlocal sent
        text, now = f"{stage}: {what}", time.monotonic()
        watch.step(text, done, total)
        if send is not None and (now - sent >= SEND_EVERY or done >= total):
            sent = now
            send(counted(text, done, total, watch.left), 100.0 * done / max(1, total))

    return progress


def in_view(stage: str, work: Callable[[Progress], T]) -> T:
    """Run a stage; whatever watches the run shows its progress."""
    return work(stage_progress(stage))


def counted(text: str, done: int, total: int, left: TimeLeft) -> str:
    """A step with its count and the time left."""
    more = left.text()
    steps = "" if text.endswith(f": {START}") else f" {done:,}/{total:,}"
    return f"{text}{steps}{more and f', {more}'}"


class TimeLeft:
    """Remaining seconds of a run: those planned, or more by the pace of its step.

    Nothing is known without a plan, or once a run takes longer than planned.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began = self._step_began = clock()
        self._planned = self._step_left = self._shown = 0.0
        self._step = ""

    @property
    def planned(self) -> bool:
        """Whether there is a plan."""
        return self._planned > 0

    def plan(self, seconds: float | None) -> None:
        """Take the expected seconds of the complete run; None: not known."""
        self._planned = seconds or 0.0

    def step(self, text: str, done: int, total: int) -> None:
        """Note that `done` of `total` parts of ``stage: step`` are done."""
        now = self._clock()
        if text != self._step:
            self._step, self._step_began = text, now
        spent = now - self._step_began
        self._step_left = spent * (total - done) / done if done else 0.0

    def left(self) -> float | None:
        """Expected seconds to the end; None if nothing is known."""
        left = self._began + self._planned - self._clock()
        left = max(left, self._step_left)
        return left if self.planned and left > 0 else None

    def share(self) -> float:
        """Share of the time that has passed; it never decreases."""
        spent, left = self._clock() - self._began, self.left()
        if left is not None:
            self._shown = max(self._shown, spent / max(spent + left, 1e-9))
        return self._shown

    def text(self) -> str:
        """The time left in words; empty if nothing is known, or for a short run."""
        if self._planned < WORTH_SAYING:
            return ""
        return seconds_left_text(self.left())


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


class Watch:
    """The progress of a run, for everything that shows it."""

    def __init__(self) -> None:
        self.left = TimeLeft()
        self._shown: list[Progress] = []

    def step(self, text: str, done: int, total: int) -> None:
        """Note that `done` of `total` parts of ``stage: step`` are done."""
        self.left.step(text, done, total)
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


WATCH: ContextVar[Watch | None] = ContextVar("WATCH", default=None)


def current_watch() -> Watch:
    """The watch of the current block; if there is none, one that nobody sees."""
    return WATCH.get() or Watch()


def expect(seconds: float | None) -> None:
    """Note the expected seconds of the current run; None: not known."""
    current_watch().left.plan(seconds)


@contextmanager
def watching() -> Iterator[Watch]:
    """The watch of the current block, made here if there is none."""
    if (there := WATCH.get()) is not None:
        yield there
        return
    token = WATCH.set(Watch())
    try:
        yield current_watch()
    finally:
        WATCH.reset(token)
