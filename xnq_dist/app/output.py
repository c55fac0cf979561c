"""Arguments that several commands share, and what commands print."""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Annotated, Any

import typer

from xnq_dist._version import __version__

__all__ = [
    "Config",
    "Directory",
    "Json",
    "Set",
    "begin",
    "elapsed",
    "json_alone",
    "print_json",
    "print_summary",
    "seconds_text",
    "summary_lines",
]

log = logging.getLogger("xnq_dist")

Directory = Annotated[
    str, typer.Argument(metavar="DIR", help="Run directory: --out of run.")
]
Json = Annotated[
    bool,
    typer.Option(
        "--json",
        help="Print one JSON object on stdout, errors too; all text goes to stderr.",
        rich_help_panel="Other",
    ),
]
"""`main` looks for it itself, so that wrong options are reported in JSON, too."""
Config = Annotated[
    list[Path] | None,
    typer.Option(
        help="YAML file with settings; may be repeated.",
        show_default=False,
        rich_help_panel="Settings",
    ),
]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="One setting; may be repeated.",
        rich_help_panel="Settings",
    ),
]

_RESULT: ContextVar[dict[str, Any] | None] = ContextVar("_RESULT", default=None)
"""What a command with ``--json`` prints at its end."""


def elapsed() -> float:
    """Seconds since this process was created, before Python's own start."""
    # psutil rounds the time of the boot to a second.
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    began = int(fields[19]) / os.sysconf("SC_CLK_TCK")
    return round(time.clock_gettime(time.CLOCK_BOOTTIME) - began, 2)


def seconds_text(seconds: float) -> str:
    """A time with its unit; short times with decimals."""
    return f"{seconds:,.{2 if seconds < 10 else 1 if seconds < 100 else 0}f} s"


@contextmanager
def json_alone(requested: bool) -> Iterator[None]:
    """Print the JSON of the block as one object; all other text goes to stderr."""
    if not requested:
        yield
        return
    stdout, values = sys.stdout, dict[str, Any]()
    token = _RESULT.set(values)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        _RESULT.reset(token)
        with suppress(OSError):  # after SIGHUP the terminal cannot be written to
            stdout.write(f"{json.dumps(values, default=str)}\n")
            stdout.flush()


def print_json(values: dict[str, Any]) -> None:
    """Add values to the JSON that a command with ``--json`` prints at its end."""
    result = _RESULT.get()
    if result is not None:
        result.update(values)


def begin(text: str) -> None:
    """Log what a command does first, before slow imports."""
    log.info("xnq-dist %s: %s", __version__, text)


def print_summary(summary: dict[str, Any]) -> None:
    """Print the size of a run, its time, its answer and the paths of its results."""
    summary["seconds"] = elapsed()
    for line in summary_lines(summary):
        typer.echo(line)
    print_json(summary)


def summary_lines(summary: dict[str, Any]) -> list[str]:
    """The size of a run, its time, its answer and the paths of its results."""
    return [
        f"{summary['communities']:,} communities of {summary['nodes']:,} nodes in "
        f"{seconds_text(summary['seconds'])}",
        "",
        *summary["verdict"],
        "",
        f"  table   {summary['prevalence']}",
        f"  report  {summary['report']}",
    ]
