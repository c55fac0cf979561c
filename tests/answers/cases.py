"""Settings of the runs whose answers are recorded, each of a small graph in `data`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

__all__ = ["CASES", "Case", "arguments"]


@dataclass(frozen=True)
class Case:
    """The settings of a run."""

    settings: tuple[str, ...] = ()
    memberships: bool = False
    """Whether the run is passed the table of communities."""
    workers: int = 1
    """Local worker processes; 1: this process does all stages."""


SMALL = (
    "reservoir.dim=24",
    "reservoir.supersteps=6",
    "intervals.resamples=50",
)
XNQ = ("method=xnq", "reservoir.recurrent_scale=2.0", "reservoir.input_scale=0.5")

CASES = {
    "plain": Case(),
    "default_size": Case(("reservoir.dim=256", "reservoir.supersteps=auto")),
    "weighted": Case(("partitions=3",)),
    # Weighted, and some edges are in the table twice.
    "directed": Case(
        ("input.directed=true", "input.duplicates=sum", "partitions=3"),
    ),
    "string_ids": Case(("partitions=5",), memberships=True),
    "hubs": Case(("partitions=3",), memberships=True),
    "isolated": Case(),
    "seven_classes": Case(("partitions=3",), memberships=True),
    "rare_class": Case(memberships=True),
    "by_place": Case(("labels.drawn=by_place",), memberships=True),
    "by_class": Case(("labels.drawn=by_class",), memberships=True),
    "weighted_labels": Case(
        ("labels.drawn=weighted", "columns.label_weight=chance"), memberships=True
    ),
    "communities_by_class": Case(("memberships.drawn=by_class",), memberships=True),
    "community_column": Case(("communities=column:town", "labelled=exclude")),
    "few_labels": Case(memberships=True),
    "text_features": Case(
        ("columns.features=[x0,x1,x2,town,member]", "features.scale=robust")
    ),
    "graph_alone": Case(("columns.features=null",)),
    "roles_xnq": Case((*XNQ, "quantifier=sld", "partitions=3")),
    "half_precision_xnq": Case(
        (
            *XNQ,
            "quantifier=pacc",
            "exchange.dtype=float16",
            "reservoir.matrix=dense",
            "partitions=5",
        ),
        memberships=True,
    ),
    "searched_scales": Case(("method=xnq", "quantifier=pcc"), memberships=True),
    "streamed": Case(("partitioner=stream", "partitions=5"), memberships=True),
    "two_workers": Case(("partitions=3", "checkpoint.every=2"), True, workers=2),
    "many_on_two_workers": Case(("partitions=20", "partitioner=contiguous"), workers=2),
}
"""Cases by name; a case is recorded once and then only read."""


def arguments(
    case: Case, folder: Path, out: Path, cluster: dict[str, str] | None = None
) -> list[str]:
    """Arguments of the command line that run a case on its tables.

    `cluster` has the settings of running workers; None: the case starts its own.
    """
    words = ["run", "--nodes", str(folder / "nodes.parquet")]
    words += ["--edges", str(folder / "edges.parquet"), "--out", str(out)]
    if case.memberships:
        words += ["--memberships", str(folder / "memberships.parquet")]
    if case.workers > 1 and cluster is None:
        cluster = {"kind": "local", "workers": str(case.workers)}
    where = (f"cluster.{name}={value}" for name, value in (cluster or {}).items())
    for setting in (*SMALL, *where, *case.settings):
        words += ["--set", setting]
    return words
