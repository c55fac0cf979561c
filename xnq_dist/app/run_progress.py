"""Progress of a run, shown on the terminal or log and as Prefect artifacts."""

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
    "START",
    "StageProgress",
    "TimeLeft",
    "Watch",
    "console_progress",
    "current_watch",
    "on_console",
    "seconds_left_text",
    "watching",
]

log = logging.getLogger("xnq_dist.core.progress")

T = TypeVar("T")

START = "start"
"""The first step of every stage."""
LOG_EVERY = 60.0
"""Seconds between two log lines of one stage."""
WORTH_SAYING = 60.0
"""Planned seconds of a run from which the time left is shown: the first run of a
machine compiles kernels for half a minute, which no plan holds."""
SEND_EVERY = 2.0
"""Seconds between two updates of an artifact."""

Send = Callable[[str, str, float], None]
"""Sends stage, text and percent as an artifact; must not block."""


class StageProgress:
    """Progress of one stage.

    Parameters
    ----------
    send
        Also sends it to Prefect, with the time left; None: show it on the terminal or
        log only.
    """

    def __init__(self, stage: str, send: Send | None = None) -> None:
        self._stage = stage
        self._send = send
        self._sent = 0.0
        current_watch().step(f"{stage}: {START}", 0, 1)

    def __call__(self, what: str, done: int, total: int) -> None:
        """Report that `done` of `total` steps are done."""
        text, watch = f"{self._stage}: {what}", current_watch()
        watch.step(text, done, total)
        now = time.monotonic()
        if self._send is None or (now - self._sent < SEND_EVERY and done < total):
            return
        self._sent = now
        text = counted(text, done, total, watch.left)
        self._send(self._stage, text, 100.0 * done / max(1, total))


def on_console(stage: str, work: Callable[[Progress], T]) -> T:
    """Run a stage; its progress is shown on the terminal or in the log."""
    return work(StageProgress(stage))


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
        if not self.planned:
            return None
        left = self._began + self._planned - self._clock()
        left = max(left, self._step_left)
        return left if left > 0 else None

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
        self.shown: list[Progress] = []
        """Called with each step."""

    def step(self, text: str, done: int, total: int) -> None:
        """Note that `done` of `total` parts of ``stage: step`` are done."""
        self.left.step(text, done, total)
        for show in tuple(self.shown):
            show(text, done, total)


WATCH: ContextVar[Watch | None] = ContextVar("WATCH", default=None)


def current_watch() -> Watch:
    """The watch of the current block; if there is none, one that nobody sees."""
    return WATCH.get() or Watch()


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


@contextmanager
def console_progress() -> Iterator[None]:
    """Show progress while the block runs: a bar on a terminal, otherwise log lines."""
    with (
        watching() as watch,
        (_bar if sys.stderr.isatty() else _log_lines)(watch.left) as show,
    ):
        watch.shown.append(show)
        try:
            yield
        finally:
            watch.shown.remove(show)


@contextmanager
def _bar(left: TimeLeft) -> Iterator[Progress]:
    """One bar for the complete run, with the current step and the time left."""
    from rich.console import Console
    from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bars
    from rich.text import Text

    class Left(TextColumn):
        def render(self, task: Any) -> Text:
            if left.planned:
                bars.update(task.id, completed=left.share(), total=1.0)
            return Text(left.text())

    with Bars(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        Left(""),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
    ) as bars:
        row = bars.add_task("starting", total=None)

        def show(text: str, done: int, total: int) -> None:
            steps = f" {done:,}/{total:,}" if total > 1 else ""
            bars.update(row, description=text.removesuffix(f": {START}") + steps)
            if not left.planned:
                bars.update(row, completed=done, total=total)

        yield show


@contextmanager
def _log_lines(left: TimeLeft) -> Iterator[Progress]:
    """One line a stage, when it begins; then one every `LOG_EVERY` seconds."""
    last = time.monotonic()

    def show(text: str, done: int, total: int) -> None:
        nonlocal last
        now, begins = time.monotonic(), text.endswith(f": {START}")
        if begins or now - last >= LOG_EVERY:
            last = now
            log.info("%s", counted(text, done, total, left))

    yield show
