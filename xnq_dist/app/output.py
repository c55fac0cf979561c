"""Arguments that several commands share, and the summary that they print."""

from __future__ import annotations

import json
import time
from typing import Annotated, Any

import typer

__all__ = ["Directory", "Json", "is_done", "print_json", "print_summary"]

Directory = Annotated[
    str, typer.Argument(metavar="DIR", help="Run directory: --out of run.")
]
Json = Annotated[
    bool, typer.Option("--json", help="Print a machine-readable summary last.")
]


def is_done(out: str, sources: Any, settings: Any, as_json: bool) -> bool:
    """Whether nothing changed since the last results; if so, print their summary."""
    from xnq_dist.due import nothing_changed

    began = time.perf_counter()
    summary = nothing_changed(out, sources, settings)
    if summary is None:
        return False
    summary["seconds"] = round(time.perf_counter() - began, 1)
    typer.echo(f"nothing changed since {summary['since']}: nothing to do")
    print_summary(summary, as_json)
    return True


def print_summary(summary: dict[str, Any], as_json: bool) -> None:
    """Print the size of a run and the paths of its results."""
    typer.echo(
        f"{summary['communities']:,} communities of {summary['nodes']:,} nodes in "
        f"{summary['seconds']:.0f} s\n  table   {summary['prevalence']}\n"
        f"  report  {summary['report']}"
    )
    print_json(summary, as_json)


def print_json(values: Any, as_json: bool) -> None:
    """Print values as one line of JSON if the user requested it."""
    if as_json:
        typer.echo(json.dumps(values, default=str))
