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

    The nodes are a probability sample of the unlabelled nodes. Copy their column
    label_weight into the node table with their labels, give earlier labelled nodes
    weight 1, and set columns.label_weight = label_weight and labels.drawn = weighted.
    """
    from xnq_dist.quantify.default.label_plan import plan_labels, write_plan

    plan = plan_labels(directory, budget, community, worst, seed)
    write_plan(plan, out)
    typer.echo(
        f"{plan.table.num_rows:,} of {plan.unlabelled:,} unlabelled nodes to label, in "
        f"{out}\n  half-widths of intervals in percentage points: published; as if the "
        "labels were a random sample; with this plan; with as many random labels"
    )
    for row in plan.communities:
        halves = row.published, row.now, row.planned, row.random
        shown = "".join(f"{100 * half:6.1f}" for half in halves)
        typer.echo(f"  {row.community:<24}{shown}   ({row.labels:.0f} labels)")
    values = {"out": out, "communities": [asdict(row) for row in plan.communities]}
    print_json(values, as_json)
