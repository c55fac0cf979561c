"""The demo: the complete pipeline on a generated social network with bots."""

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
from xnq_dist.core.config import Settings, load_settings
from xnq_dist.core.store import RunDirectory, read_published
from xnq_dist.graph.generate import demo_network
from xnq_dist.graph.tables import Sources
from xnq_dist.quantify.stage import estimate_with

__all__ = ["DEMO_SETTINGS", "DemoResult", "run_demo"]

DEMO_SETTINGS = [
    "reservoir.dim=128",
    "reservoir.supersteps=10",
    "partitions=4",
    "labels.drawn=random",
]
"""A small reservoir for a small graph, whose labels are a random sample."""
UNDECLARED, DECLARED = "auto (the run's)", "auto, drawn by class"
"""The default estimator, and the one with memberships.drawn = by_class (SLD)."""


@dataclass(frozen=True)
class DemoResult:
    """The demo's result."""

    text: str
    """For a reader."""
    summary: dict[str, Any]
    """Summary of the run, with ``errors`` by estimator and kind of page."""


def run_demo(out: str, seed: int = 0) -> DemoResult:
    """Generate a network, run the pipeline and compare the estimates with the truth."""
    folder = Path(out)
    made = demo_network(folder / "input", seed)
    settings = load_settings(overrides=[*DEMO_SETTINGS, f"seed={seed}"])
    sources = Sources(
        made.paths["nodes"], made.paths["edges"], made.paths["memberships"]
    )
    summary = run_pipeline(sources, str(folder / "run"), settings)
    errors = _errors(RunDirectory(summary["run"]), sources, settings, made.paths)
    summary["seconds"] = elapsed()
    return DemoResult(_text(summary, errors), {**summary, "errors": errors})


def _errors(
    run: RunDirectory, sources: Sources, settings: Settings, paths: dict[str, str]
) -> dict[str, dict[str, float]]:
    """Mean absolute error of each estimator on the two kinds of pages."""
    truth = _true_prevalence(paths)
    kinds = json.loads(Path(paths["meta"]).read_text(encoding="utf-8"))["kinds"]
    readout = run.stage("readout").manifest()
    prior = readout.facts["prior"][1] if readout else float("nan")
    drawn = settings.memberships.model_copy(update={"drawn": "by_class"})
    declared = settings.model_copy(update={"memberships": drawn})
    estimates = {
        UNDECLARED: _published(run),
        DECLARED: estimate_with(run, sources, declared, "auto", "1"),
        "training prior": dict.fromkeys(truth, prior),
    }
    result: dict[str, dict[str, float]] = {}
    for name, values in estimates.items():
        result[name] = {}
        for kind in ("proportions", "real"):
            pages = [page for page in truth if kinds[page] == kind]
            gaps = [abs(values[page] - truth[page]) for page in pages]
            result[name][kind] = round(float(np.mean(gaps)), 4)
    return result


def _true_prevalence(paths: dict[str, str]) -> dict[str, float]:
    members = pq.read_table(paths["memberships"])
    joined = members.join(pq.read_table(paths["truth"]), "node_id")
    bots = joined.append_column("bot", pc.cast(joined["label"], pa.float64()))
    shares = bots.group_by("community").aggregate([("bot", "mean")])
    names, means = shares["community"].to_pylist(), shares["bot_mean"].to_pylist()
    return dict(zip(names, means, strict=True))


def _published(run: RunDirectory) -> dict[str, float]:
    table = read_published(run.location).read("prevalence")
    bots = table.filter(pc.equal(table["class"], "1"))
    names, values = bots["community"].to_pylist(), bots["prevalence"].to_pylist()
    return dict(zip(names, values, strict=True))


def _closest(errors: dict[str, dict[str, float]], kind: str) -> str:
    return min(errors, key=lambda name: errors[name][kind])


def _text(summary: dict[str, Any], errors: dict[str, dict[str, float]]) -> str:
    lines = [
        f"Bots among the followers of {summary['communities']} pages, "
        f"{summary['nodes']:,} users, {seconds_text(summary['seconds'])}.",
        "",
        "Mean absolute error of a page's share of bots, by what makes pages differ:",
        "",
        f"{'':<24}{'proportions only':>18}{'features and links too':>26}",
    ]
    for name, row in errors.items():
        lines.append(f"{name:<24}{row['proportions']:>18.3f}{row['real']:>26.3f}")
    lines += [
        "",
        f"Smallest error where proportions alone differ: "
        f"{_closest(errors, 'proportions')}; where features and links differ too: "
        f"{_closest(errors, 'real')}.",
        "Pages of the first kind are random samples within each class. If your",
        "communities are such samples, set memberships.drawn=by_class.",
        "",
        f"  table   {summary['prevalence']}",
        f"  report  {summary['report']}",
    ]
    return "\n".join(lines)
