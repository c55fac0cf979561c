"""The command ``xnq-dist label-plan``."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from xnq_dist.app.output import Directory, Json, print_json
from xnq_dist.core.plain_text import plain

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

    The nodes are a probability sample of the unlabelled nodes, by place and features.
    Copy their labels into the node table, and set labels.drawn=by_place. If earlier
    labels may have been chosen by class: also copy the column label_weight, with 1 for
    earlier labels, and set columns.label_weight=label_weight, labels.drawn=weighted.
    """
    from xnq_dist.steps.label_plan import plan_labels, write_plan

    plan = plan_labels(directory, budget, community, worst, seed)
    write_plan(plan, out)
    typer.echo(
        f"{plan.table.num_rows:,} of {plan.unlabelled:,} unlabelled nodes to label, in "
        f"{out}\n\nhalf-widths of intervals in points\n{'community':<32}"
        f"{'labels to add':>14}{'now':>7}{'planned':>9}{'as many random labels':>23}"
        f"{'published':>11}"
    )
    for row in plan.communities:
        now, planned, random, published = (
            f"{100 * half:.1f}"
            for half in (row.now, row.planned, row.random, row.published)
        )
        typer.echo(
            f"{plain(row.community, 31):<32}{row.labels:>14.0f}{now:>7}{planned:>9}"
            f"{random:>23}{published:>11}"
        )
    values = {"out": out, "communities": [asdict(row) for row in plan.communities]}
    print_json(values)
