"""Runs of the command line: progress on the console."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from xnq_dist.core.errors import SettingsError
from xnq_dist.core.settings import Settings
from xnq_dist.graph.sources import Sources
from xnq_dist.monitor.progress import START, log_lines, watching

__all__ = ["console_progress", "run_as_flow"]


def run_as_flow(
    sources: Sources, out: str, settings: Settings, overwrite: bool
) -> dict[str, Any]:
    """Run the flow `nightly` and return its summary; a failed flow raises its error.

    Raises
    ------
    SettingsError
        When Prefect is not installed.
    """
    if find_spec("prefect") is None:
        raise SettingsError(
            "--prefect needs Prefect: run pip install 'xnq-dist[prefect]'"
        )
    # In a wheel the flows are part of the package, in a clone they lie next to it.
    folder = "xnq_dist.flows" if find_spec("xnq_dist.flows") else "flows"
    nightly = import_module(f"{folder}.nightly").nightly
    summary: dict[str, Any] = nightly(
        **sources.paths, out=out, settings=settings, overwrite=overwrite
    )
    return summary


@contextmanager
def console_progress() -> Iterator[None]:
    """Show progress while the block runs: a bar on a terminal, otherwise log lines."""
    with _bar() if sys.stderr.isatty() else log_lines():
        yield


@contextmanager
def _bar() -> Iterator[None]:
    """A bar for the current step, and the time since the run began."""
    from rich.console import Console
    from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bars

    def show(text: str, done: int, total: int) -> None:
        steps = f" {done:,}/{total:,}" if total > 1 else ""
        description = text.removesuffix(f": {START}") + steps
        bars.update(row, description=description, completed=done, total=total)

    with (
        Bars(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            TimeElapsedColumn(),
            console=Console(stderr=True),
            transient=True,
        ) as bars,
        watching(show),
    ):
        row = bars.add_task("starting", total=None)
        yield
