"""Runs of the command line: progress on the console, and in Prefect if requested."""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

from xnq_dist.app.environment import prepare_environment
from xnq_dist.core.errors import SettingsError
from xnq_dist.core.progress import Progress
from xnq_dist.core.settings import Settings
from xnq_dist.graph.tables import Sources
from xnq_dist.jobs import Do, Request, requantify, run_all
from xnq_dist.monitor.progress import (
    START,
    TimeLeft,
    counted,
    expect,
    in_view,
    watching,
)
from xnq_dist.monitor.status import recorded

__all__ = ["console_progress", "reporting", "run_pipeline", "run_requantify"]

log = logging.getLogger("xnq_dist.core.progress")

LOG_EVERY = 60.0
"""Seconds between two log lines of one stage."""


def run_pipeline(
    sources: Sources,
    out: str,
    settings: Settings,
    overwrite: bool = False,
    prefect: bool = False,
) -> dict[str, Any]:
    """Run the complete pipeline; errors of stages are raised.

    Parameters
    ----------
    prefect
        Report to the Prefect API of the active profile; if false, report only if
        ``PREFECT_API_URL`` is set.

    Returns
    -------
    dict
        Summary of the run.
    """
    shown = {**vars(sources), "out": out, "overwrite": overwrite}
    with (
        recorded(out) as status,
        reporting(prefect, "xnq-dist", shown, out, settings, status.run_id) as do,
    ):
        return run_all(sources, out, settings, overwrite, do, expect)


def run_requantify(request: Request, prefect: bool = False) -> dict[str, Any]:
    """Estimate with new labels or memberships; errors of stages are raised."""
    out, settings = request.out, request.settings
    shown = {"run": request.base, "out": out, "labels": request.labels}
    shown["memberships"] = request.sources.memberships
    with (
        recorded(out, "requantify") as status,
        reporting(prefect, "xnq-requantify", shown, out, settings, status.run_id) as do,
    ):
        return requantify(request, do=do)


@contextmanager
def reporting(
    prefect: bool,
    flow: str,
    parameters: Mapping[str, Any],
    out: str | None = None,
    settings: Settings | None = None,
    name: str | None = None,
) -> Iterator[Do]:
    """Yield the function that runs stages; it reports to Prefect's API if requested.

    The run reports if `prefect` is true or ``PREFECT_API_URL`` is set. An API that does
    not respond delays the end by a few seconds and has no other effect.

    Parameters
    ----------
    out, settings
        Run directory whose state and results Prefect shows, and its settings.
    """
    if not _reports(prefect):
        yield in_view
        return
    prepare_environment()
    from xnq_dist.monitor.on_prefect import PrefectRun, check_api

    check_api()
    shown = PrefectRun(flow, parameters, name)
    with shown.reported(out, settings):
        yield shown.do


def _reports(prefect: bool) -> bool:
    """Whether a run reports to Prefect; `prefect` requests it."""
    if not prefect and not os.environ.get("PREFECT_API_URL"):
        return False
    if find_spec("prefect") is not None:
        return True
    install = "is not installed: run pip install 'xnq-dist[prefect]'"
    if prefect:
        raise SettingsError(f"--prefect needs Prefect, which {install}")
    log.warning("PREFECT_API_URL is set, but Prefect %s", install)
    return False


@contextmanager
def console_progress() -> Iterator[None]:
    """Show progress while the block runs: a bar on a terminal, otherwise log lines."""
    kind = _bar if sys.stderr.isatty() else _log_lines
    with watching() as watch, kind(watch.left) as show, watch.shown(show):
        yield


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
