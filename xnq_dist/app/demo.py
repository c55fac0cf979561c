"""The demo: the complete pipeline on generated followers of pages."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from xnq_dist.app.output import elapsed, seconds_text
from xnq_dist.app.running import run_pipeline
from xnq_dist.core.config import load_settings
from xnq_dist.core.settings import Settings
from xnq_dist.core.store import RunDirectory, read_published
from xnq_dist.graph.generate import demo_network
from xnq_dist.graph.tables import Sources, open_table
from xnq_dist.quantify.stage import estimate_with

__all__ = ["DemoResult", "run_demo"]


SETTINGS = (
    # A small reservoir for a small graph, distributed as a large one is.
    *("reservoir.dim=128", "reservoir.supersteps=10", "cluster.workers=2"),
    *("partitions=4", "labels.drawn=random", "report.class=bot"),
    *("report.community=page", "report.node=user"),
    "report.class_names={bot: bots, human: humans}",
)
SHOWN = "bot"
KINDS = {"proportions": "proportions only", "real": "features and links too"}
"""Kinds of pages, and their names in the text."""
BY_CLASS = "auto, drawn by class"
LABELLED = "share of the labelled"
NOTE = (
    "Pages of the first kind are random samples within each class. If your\n"
    "communities are such samples, set memberships.drawn=by_class."
)


@dataclass(frozen=True)
class DemoResult:
    """The demo's result."""

    text: str
    """For a reader."""
    summary: dict[str, Any]
    """Summary of the run, with ``errors`` by estimator and kind of community."""


def run_demo(out: str, seed: int = 0) -> DemoResult:
    """Generate followers of pages, run the pipeline, compare with the truth."""
    folder = Path(out)
    paths = demo_network(folder / "input", seed).paths
    settings = load_settings(overrides=[*SETTINGS, f"seed={seed}"])
    sources = Sources(paths["nodes"], paths["edges"], paths["memberships"])
    summary = run_pipeline(sources, str(folder / "run"), settings)
    errors = _errors(RunDirectory(summary["run"]), sources, settings, paths)
    summary["seconds"] = elapsed()
    return DemoResult(_text(summary, errors), {**summary, "errors": errors})


def _errors(
    run: RunDirectory,
    sources: Sources,
    settings: Settings,
    paths: dict[str, str],
) -> dict[str, dict[str, float]]:
    """Mean absolute error of each estimator on each kind of community."""
    truth = _true_prevalence(paths)
    kinds = json.loads(Path(paths["meta"]).read_text(encoding="utf-8"))["kinds"]
    labels = run.stage("labels").manifest()
    prior = float("nan")
    if labels is not None:
        at = labels.facts["classes"].index(SHOWN)
        prior = labels.facts["class_counts"][at] / labels.facts["n_labelled"]
    drawn = settings.memberships.model_copy(update={"drawn": "by_class"})
    declared = settings.model_copy(update={"memberships": drawn})
    estimates = {
        "auto (the run's)": _published(run),
        BY_CLASS: estimate_with(run, sources, declared, "auto", SHOWN),
        LABELLED: dict.fromkeys(truth, prior),
    }
    result: dict[str, dict[str, float]] = {}
    for name, values in estimates.items():
        result[name] = {}
        for kind in KINDS:
            chosen = [each for each in truth if kinds[each] == kind]
            gaps = [abs(values[each] - truth[each]) for each in chosen]
            result[name][kind] = round(float(np.mean(gaps)), 4)
    return result


def _true_prevalence(paths: dict[str, str]) -> dict[str, float]:
    table = open_table(paths["memberships"], "memberships table")
    batches = table.batches(["community", "node_id"])
    members = pa.Table.from_batches([batch.rows for batch in batches])
    joined = members.join(pq.read_table(paths["truth"]), "node_id")
    is_shown = pc.cast(pc.equal(joined["label"], SHOWN), pa.float64())
    grouped = joined.append_column("share", is_shown).group_by("community")
    shares = grouped.aggregate([("share", "mean")])
    names, means = shares["community"].to_pylist(), shares["share_mean"].to_pylist()
    return dict(zip(names, means, strict=True))


def _published(run: RunDirectory) -> dict[str, float]:
    table = read_published(run.location).read("prevalence")
    rows = table.filter(pc.equal(table["class"], SHOWN))
    names, values = rows["community"].to_pylist(), rows["prevalence"].to_pylist()
    return dict(zip(names, values, strict=True))


def _text(summary: dict[str, Any], errors: dict[str, dict[str, float]]) -> str:
    lines = [
        f"Bots among the followers of pages: {summary['communities']} communities, "
        f"{summary['nodes']:,} nodes, {seconds_text(summary['seconds'])}.",
        "",
        f"Mean absolute error of the share of {SHOWN!r}, by kind of community:",
        "",
        f"{'':<24}" + "".join(f"{title:>25}" for title in KINDS.values()),
    ]
    for name, row in errors.items():
        lines.append(f"{name:<24}" + "".join(f"{row[k]:>25.3f}" for k in KINDS))
    lines += [
        "",
        NOTE,
        "",
        f"  table   {summary['prevalence']}",
        f"  report  {summary['report']}",
    ]
    return "\n".join(lines)
