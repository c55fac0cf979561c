"""The command ``xnq-dist history``."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import typer

from xnq_dist.app.output import Directory, Json, print_json

__all__ = ["history"]


def history(
    directory: Directory,
    community: Annotated[
        str, typer.Option(help="Name of a community; default: a line for each run.")
    ] = "",
    of_class: Annotated[
        str, typer.Option("--class", help="Name of a class; default: all.")
    ] = "",
    as_json: Json = False,
) -> None:
    """Prevalence by run, and what changed since the run before.

    A change is beyond what another seed or a few changed edges would do.
    """
    from xnq_dist.steps.history import read_history

    found = read_history(directory)
    rows = found.select(community, of_class)
    runs = found.runs()
    if found.others:
        typer.echo(
            "left out, with other settings, classes or detected communities: "
            f"{found.others} of the runs",
            err=True,
        )
    values: dict[str, Any] = {"runs": [asdict(run) for run in runs]}
    if community:
        values["rows"] = rows.to_pylist()
        for row in values["rows"]:
            typer.echo(f"  {row['created'][:16]}  class {row['class']}: {_row(row)}")
    else:
        values["changed"] = found.changed(of_class).to_pylist()
        for run in runs:
            moved = (
                "not compared" if run.changed is None else f"{run.changed:,} changed"
            )
            typer.echo(
                f"  {run.created[:16]}  {run.communities:,} communities, {run.new:,} "
                f"new, {run.gone:,} gone, {moved}"
            )
        for row in values["changed"]:
            typer.echo(f"  {row['community']}, class {row['class']}: {_row(row)}")
    print_json(values)


def _row(row: dict[str, Any]) -> str:
    """One estimate in words."""
    if row["prevalence"] is None:
        return "suppressed" if row["quality"] == "suppressed" else "no value"
    text = f"{100 * row['prevalence']:.1f} %"
    if row["lower"] is not None:
        text += f" ({100 * row['lower']:.1f} to {100 * row['upper']:.1f})"
    if row["effect"] is not None:
        text += (
            f", change {100 * row['effect']:+.1f} points "
            f"({100 * row['effect_lower']:+.1f} to {100 * row['effect_upper']:+.1f})"
        )
    return text + (", changed" if row["changed"] else "")
