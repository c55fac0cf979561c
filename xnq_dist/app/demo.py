"""The demo: the complete pipeline on one of three generated data sets."""

from __future__ import annotations

import json
from collections.abc import Callable
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
from xnq_dist.core.errors import SettingsError
from xnq_dist.core.settings import Settings
from xnq_dist.core.store import RunDirectory, read_published
from xnq_dist.graph.examples import infections, votes
from xnq_dist.graph.generate import demo_network
from xnq_dist.graph.tables import Sources, open_table
from xnq_dist.quantify.stage import estimate_with

__all__ = ["EXAMPLES", "DemoResult", "Example", "run_demo"]


@dataclass(frozen=True)
class Example:
    """One generated data set, and what is asked of it."""

    make: Callable[[Path, int], dict[str, str]]
    """Writes the tables for a seed; returns their paths."""
    title: str
    shown: str
    """The class that the text is about."""
    kinds: dict[str, str]
    """Kinds of communities, and their names in the text."""
    settings: tuple[str, ...]
    note: str
    """What to know about the comparison."""
    compared: tuple[str, ...] = ()
    """Estimates under ``memberships.drawn=by_class`` are compared for these."""


SMALL = ("reservoir.dim=128", "reservoir.supersteps=10", "cluster.workers=2")
"""A small reservoir for a small graph, distributed as a large one is."""

EXAMPLES = {
    "bots": Example(
        lambda folder, seed: demo_network(folder, seed).paths,
        "Bots among the followers of pages",
        "bot",
        {"proportions": "proportions only", "real": "features and links too"},
        (
            *(*SMALL, "partitions=4", "labels.drawn=random"),
            *("report.community=page", "report.node=user"),
            "report.class_names={bot: bots, human: humans}",
        ),
        "Pages of the first kind are random samples within each class. If your\n"
        "communities are such samples, set memberships.drawn=by_class.",
        ("auto, drawn by class",),
    ),
    "votes": Example(
        votes,
        "Votes for the Greens by county, from an exit poll in every third county",
        "Greens",
        {"polled": "polled", "not polled": "not polled"},
        (
            *(*SMALL, "partitions=2", "labels.drawn=by_place"),
            *("report.community=[county, counties]", "report.node=voter"),
        ),
        "Counties without a poll are estimated from the features and contacts of\n"
        "their voters; the intervals show how much less is known about them.",
    ),
    "infections": Example(
        infections,
        "Infections by district, from tests of mainly infected people",
        "infected",
        {"district": "districts", "commuting area": "commuting areas"},
        (
            *(*SMALL, "partitions=2", "labels.drawn=by_class"),
            *("report.community=area", "report.node=[person, people]"),
            "report.class_names={infected: infected people}",
        ),
        "Infected people were tested nine times as often as others, so the share\n"
        "among the tested is far too high everywhere.",
    ),
}


@dataclass(frozen=True)
class DemoResult:
    """The demo's result."""

    text: str
    """For a reader."""
    summary: dict[str, Any]
    """Summary of the run, with ``errors`` by estimator and kind of community."""


def run_demo(out: str, seed: int = 0, name: str = "bots") -> DemoResult:
    """Generate a data set, run the pipeline and compare estimates with the truth.

    Raises
    ------
    SettingsError
        For an unknown name.
    """
    if name not in EXAMPLES:
        raise SettingsError(f"there is no demo {name!r}: choose {', '.join(EXAMPLES)}")
    example, folder = EXAMPLES[name], Path(out)
    paths = example.make(folder / "input", seed)
    overrides = [*example.settings, f"seed={seed}", f"report.class={example.shown}"]
    settings = load_settings(overrides=overrides)
    sources = Sources(paths["nodes"], paths["edges"], paths["memberships"])
    summary = run_pipeline(sources, str(folder / "run"), settings)
    errors = _errors(RunDirectory(summary["run"]), sources, settings, example, paths)
    summary["seconds"] = elapsed()
    text = _text(example, summary, errors)
    return DemoResult(text, {**summary, "errors": errors})


def _errors(
    run: RunDirectory,
    sources: Sources,
    settings: Settings,
    example: Example,
    paths: dict[str, str],
) -> dict[str, dict[str, float]]:
    """Mean absolute error of each estimator on each kind of community."""
    truth = _true_prevalence(paths, example.shown)
    kinds = json.loads(Path(paths["meta"]).read_text(encoding="utf-8"))["kinds"]
    labels = run.stage("labels").manifest()
    prior = float("nan")
    if labels is not None:
        at = labels.facts["classes"].index(example.shown)
        prior = labels.facts["class_counts"][at] / labels.facts["n_labelled"]
    drawn = settings.memberships.model_copy(update={"drawn": "by_class"})
    declared = settings.model_copy(update={"memberships": drawn})
    estimates = {
        "auto (the run's)": _published(run, example.shown),
        **{
            name: estimate_with(run, sources, declared, "auto", example.shown)
            for name in example.compared
        },
        "share of the labelled": dict.fromkeys(truth, prior),
    }
    result: dict[str, dict[str, float]] = {}
    for name, values in estimates.items():
        result[name] = {}
        for kind in example.kinds:
            chosen = [each for each in truth if kinds[each] == kind]
            gaps = [abs(values[each] - truth[each]) for each in chosen]
            result[name][kind] = round(float(np.mean(gaps)), 4)
    return result


def _true_prevalence(paths: dict[str, str], shown: str) -> dict[str, float]:
    table = open_table(paths["memberships"], "memberships table")
    batches = table.batches(["community", "node_id"])
    members = pa.Table.from_batches([batch.rows for batch in batches])
    joined = members.join(pq.read_table(paths["truth"]), "node_id")
    is_shown = pc.cast(pc.equal(joined["label"], shown), pa.float64())
    grouped = joined.append_column("share", is_shown).group_by("community")
    shares = grouped.aggregate([("share", "mean")])
    names, means = shares["community"].to_pylist(), shares["share_mean"].to_pylist()
    return dict(zip(names, means, strict=True))


def _published(run: RunDirectory, shown: str) -> dict[str, float]:
    table = read_published(run.location).read("prevalence")
    rows = table.filter(pc.equal(table["class"], shown))
    names, values = rows["community"].to_pylist(), rows["prevalence"].to_pylist()
    return dict(zip(names, values, strict=True))


def _text(
    example: Example, summary: dict[str, Any], errors: dict[str, dict[str, float]]
) -> str:
    titles = example.kinds.values()
    lines = [
        f"{example.title}: {summary['communities']} communities, "
        f"{summary['nodes']:,} nodes, {seconds_text(summary['seconds'])}.",
        "",
        f"Mean absolute error of the share of {example.shown!r}, by kind of community:",
        "",
        f"{'':<24}" + "".join(f"{title:>25}" for title in titles),
    ]
    for name, row in errors.items():
        lines.append(f"{name:<24}" + "".join(f"{row[k]:>25.3f}" for k in example.kinds))
    lines += [
        "",
        example.note,
        "",
        f"  table   {summary['prevalence']}",
        f"  report  {summary['report']}",
    ]
    return "\n".join(lines)
