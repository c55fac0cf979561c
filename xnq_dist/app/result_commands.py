"""The commands ``history`` and ``label-plan``, which read finished runs."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import typer

from xnq_dist.app.output import Directory, Json, print_json
from xnq_dist.core.redaction import plain

__all__ = ["history", "label_plan"]


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
            typer.echo(f"  {row['created'][:16]}Z  class {row['class']}: {_row(row)}")
    else:
        values["changed"] = found.changed(of_class).to_pylist()
        for run in runs:
            moved = (
                "not compared" if run.changed is None else f"{run.changed:,} changed"
            )
            typer.echo(
                f"  {run.created[:16]}Z  {run.communities:,} communities, {run.new:,} "
                f"new, {run.gone:,} gone, {moved}"
            )
        for row in values["changed"]:
            typer.echo(f"  {row['community']}, class {row['class']}: {_row(row)}")
    print_json(values)


def label_plan(
    directory: Directory,
    budget: Annotated[int, typer.Option(help="Number of nodes to label.")],
    out: Annotated[
        str, typer.Option(help="File for the table of nodes: .parquet or .csv.")
    ] = "label_plan.parquet",
    community: Annotated[
        list[str] | None,
        typer.Option(
            help="Name of a community whose interval is to shrink; may be repeated. "
            "Default: the communities with the widest intervals."
        ),
    ] = None,
    worst: Annotated[
        int, typer.Option(help="Number of communities with the widest intervals.")
    ] = 20,
    seed: Annotated[int, typer.Option(help="Seed of the random sample.")] = 0,
    as_json: Json = False,
) -> None:
    """Choose the nodes to label next, so that the widest intervals shrink most.

    The nodes are a probability sample of the unlabelled nodes, by place and features.
    Copy their labels into the node table, and set labels.drawn=by_place. If earlier
    labels may have been chosen by class: also copy the column label_weight, with 1 for
    earlier labels, and set columns.label_weight=label_weight, labels.drawn=weighted.
    """
    from xnq_dist.steps.label_plan import plan_labels, plan_writer

    write = plan_writer(out)
    plan = plan_labels(directory, budget, community, worst, seed)
    write(plan)
    typer.echo(
        f"{plan.table.num_rows:,} of {plan.unlabelled:,} unlabelled nodes to label, in "
        f"{out}\n\nhalf-widths of intervals in points\n{'community':<32}"
        f"{'labels to add':>14}{'now':>7}{'planned':>9}{'as many random labels':>23}"
        f"{'published':>11}"
    )
    for row in plan.communities:
        now, planned, random, published = (
            f"{100 * row[half]:.1f}"
            for half in ("now", "planned", "random", "published")
        )
        typer.echo(
            f"{plain(row['community'], 31):<32}{row['labels']:>14.0f}{now:>7}"
            f"{planned:>9}{random:>23}{published:>11}"
        )
    print_json({"out": out, "communities": plan.communities})


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
