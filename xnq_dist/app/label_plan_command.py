"""The command ``xnq-dist label-plan``."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from xnq_dist.app.output import Directory, Json, print_json

__all__ = ["label_plan"]


def label_plan(
    directory: Directory,
    budget: Annotated[int, typer.Option(help="Number of nodes to label.")],
    out: Annotated[
        str, typer.Option(help="Table of the nodes: .parquet or .csv.")
    ] = "label_plan.parquet",
    community: Annotated[
        list[str] | None,
        typer.Option(
            help="Name of a community whose interval matters; may be repeated. "
            "Without it, those with the widest intervals."
        ),
    ] = None,
    worst: Annotated[
        int, typer.Option(help="Number of communities with the widest intervals.")
    ] = 20,
    seed: Annotated[int, typer.Option(help="Seed of the choice.")] = 0,
    as_json: Json = False,
) -> None:
    """Which nodes to label next, so that the widest intervals shrink most.

    The nodes are a probability sample of the unlabelled ones. Put their column
    label_weight into the node table with their labels, give nodes labelled before the
    weight 1, and set columns.label_weight = label_weight and labels.drawn = weighted.
    """
    from xnq_dist.quantify.default.label_plan import plan_labels, write_plan

    plan = plan_labels(directory, budget, community, worst, seed)
    write_plan(plan, out)
    typer.echo(
        f"{plan.table.num_rows:,} of {plan.unlabelled:,} unlabelled nodes to label, in "
        f"{out}\n  half-widths of intervals in points: now, with this plan, with as "
        "many labels at random (predicted)"
    )
    for row in plan.communities:
        typer.echo(
            f"  {row.community:<24}{100 * row.now:6.1f}{100 * row.planned:6.1f}"
            f"{100 * row.random:6.1f}   ({row.labels:.0f} labels)"
        )
    values = {"out": out, "communities": [asdict(row) for row in plan.communities]}
    print_json(values, as_json)
