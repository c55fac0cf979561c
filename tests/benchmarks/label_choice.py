"""Detection of how labels were chosen: false alarms, power, benefit of correction.

    python tests/benchmarks/label_choice.py FOLDER [POSITIVE] [--out FILE]
        [--designs random=100,half=50,balanced=20,positives=20,high_degree=10,region=10]
        [--shares .2,.05]

FOLDER has nodes.parquet and edges.parquet. Posteriors of every draw of labels are
computed with the default settings, with another reservoir for each draw. One row per
draw is written to FILE; the summary is printed.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from distributed import Client

from xnq_dist.core.config import load_settings
from xnq_dist.core.settings import Settings
from xnq_dist.core.store import RunDirectory
from xnq_dist.evaluation.community_cases import kept_case
from xnq_dist.evaluation.designs import DESIGNS as KNOWN
from xnq_dist.evaluation.designs import GROUP_RESOLUTION, LabelPool, draw_labels
from xnq_dist.evaluation.real import Case, true_counts
from xnq_dist.evaluation.regions import communities_of
from xnq_dist.evaluation.task import EvaluationWork, TaskSource
from xnq_dist.graph import layout
from xnq_dist.graph.prepare import prepare
from xnq_dist.graph.sources import Sources
from xnq_dist.groups.leiden import leiden
from xnq_dist.groups.own_groups import FINE
from xnq_dist.quantify.default.auto import Auto
from xnq_dist.quantify.default.surroundings import learn_in_process
from xnq_dist.quantify.interface import Communities

LAMBDAS = (0, 2, 5, 10, 15, np.inf)
DESIGNS = "random=100,half=50,balanced=20,positives=20,high_degree=10,region=10"


@dataclass(frozen=True, eq=False)
class Graph:
    """Data that all draws share."""

    name: str
    adjacency: Any
    pool: LabelPool
    groups: tuple[np.ndarray, ...]
    classes: tuple[str, ...]
    work: EvaluationWork


def load(folder: Path, positive: str | None, made: str) -> Graph:
    """Read a graph; `made` is an empty folder."""
    settings = load_settings(overrides=["method=xnq+"])
    run = RunDirectory(made)
    tables = (str(folder / f"{name}.parquet") for name in ("nodes", "edges"))
    prepare(run, Sources(*tables), settings, 1)
    source = TaskSource(folder.name, positive=positive)
    work = EvaluationWork(run.location, source, settings)
    task, adjacency = work.task(), layout.read_adjacency(work.graph())
    adjacency.sort_indices()
    groups = tuple(
        leiden(adjacency, resolution, 0).astype(np.int32)
        for resolution in (GROUP_RESOLUTION, FINE)
    )
    pool = LabelPool(task.labels, len(task.classes), groups[0].astype(int), adjacency)
    name = folder.name if positive is None else f"{folder.name} {positive}"
    return Graph(name, adjacency, pool, groups, task.classes, work)


def judged(
    graph: Graph, design: str, share: float, draw: int, client: Client
) -> dict[str, Any]:
    """One draw: verdict, errors of the whole graph, coverage under `unknown`."""
    settings = load_settings(overrides=["method=xnq+", f"seed={draw}"])
    shown = draw_labels(design, graph.pool, share, draw)
    case = kept_case(client, graph.work, shown, graph.pool.group, draw)
    found: dict[str, Any] = {"graph": graph.name, "design": design, "share": share}
    found |= {"draw": draw, "labels": int(np.count_nonzero(shown >= 0))}
    answers, known = {}, KNOWN[design].drawn
    for drawn in ("unknown", known):
        learnt, selection = learn_in_process(
            case.nodes,
            case.compared,
            graph.adjacency,
            graph.groups,
            declared(settings, drawn),
        )
        answers[drawn] = Auto(learnt=learnt)
        if drawn == "unknown":
            found |= verdict_of(selection, case)
    free = (case.nodes.labels < 0) & (case.truth >= 0)
    truth = np.bincount(case.truth[free], minlength=len(graph.classes)) / free.sum()
    sets = communities_of(graph.groups[0].astype(np.int64))
    counts, labelled = true_counts(case, sets)
    sizes = counts.sum(axis=1)
    every = Communities(np.array([0, len(case.truth)]), np.arange(len(case.truth)))
    plain = answers["unknown"].in_scenario(None, every, case.nodes)
    found["plain_error"] = float(np.abs(plain.prevalence[0] - truth).mean())
    for name, drawn in (("", "unknown"), ("declared_", known)):
        whole = answers[drawn].estimate(every, case.nodes)
        found[f"{name}error"] = float(np.abs(whole.prevalence[0] - truth).mean())
        inside = (whole.lower[0] <= truth + 1e-9) & (truth <= whole.upper[0] + 1e-9)
        found[f"{name}covered"] = float(inside.mean())
        found[f"{name}width"] = float((whole.upper[0] - whole.lower[0]).mean())
        each = answers[drawn].estimate(sets, case.nodes)
        for where, some in (
            ("with", (sizes >= 5) & (labelled > 0)),
            ("without", (sizes >= 5) & (labelled == 0)),
        ):
            share_of = counts[some] / sizes[some, None]
            held = (each.lower[some] <= share_of + 1e-9) & (
                share_of <= each.upper[some] + 1e-9
            )
            mean = float(held.mean()) if some.any() else None
            found[f"{name}covered_{where}"] = mean
    return found


def declared(settings: Settings, drawn: str) -> Settings:
    """Settings with something declared of the labels."""
    labels = settings.labels.model_copy(update={"drawn": drawn})
    return settings.model_copy(update={"labels": labels})


def verdict_of(selection: Any, case: Case) -> dict[str, Any]:
    """Verdict, and lambda of the bias by the last class that the draw has."""
    known = case.nodes.labels >= 0
    truth = case.truth
    last = truth == len(case.nodes.classes) - 1
    rest = (truth >= 0) & ~last
    odds = [
        (np.count_nonzero(of & known) + 0.5) / (np.count_nonzero(of & ~known) + 0.5)
        for of in (last, rest)
    ]
    beta = float(np.log(odds[0] / odds[1]))
    variance = float(case.nodes.posteriors[known, -1].var())
    share = known.mean()
    reach = np.count_nonzero(known) * (1 - share) * variance
    return {
        "verdict": selection.verdict,
        "pvalue": selection.pvalue,
        "probability": selection.probability,
        "beta": beta,
        "lambda": reach * beta**2,
        "detectable": float(min(selection.factors[-1], 1e6)),
    }


def summary(rows: pd.DataFrame) -> str:
    """Alarms, power by lambda, errors and coverage as text."""
    rows = rows.assign(
        found_class=rows["verdict"].isin(["class", "both"]),
        found_place=rows["verdict"].isin(["place", "both"]),
    )
    figures = rows.drop(columns=["graph", "share", "draw", "verdict"])
    found = rows[rows["found_class"]].groupby("design")
    biased = rows[rows["design"].isin(["balanced", "positives"])]
    reach = pd.cut(biased["lambda"], LAMBDAS, right=False)
    power = biased.groupby(reach, observed=True)["found_class"]
    return "\n\n".join(
        [
            figures.groupby("design").mean().T.round(4).to_string(),
            "Error of the complete graph where a choice by class is found:",
            found[["plain_error", "error"]].mean().round(4).to_string(),
            "Power by lambda:",
            power.agg(["mean", "size"]).round(2).to_string(),
        ]
    )


def main() -> None:
    """Run the benchmark and write its rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("positive", nargs="?")
    parser.add_argument("--designs", default=DESIGNS)
    parser.add_argument("--shares", default=".2,.05")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    one = {"n_workers": 1, "threads_per_worker": 1, "dashboard_address": None}
    with (
        tempfile.TemporaryDirectory() as made,
        Client(processes=False, **one) as client,
    ):
        graph = load(options.folder, options.positive, made)
        designs = [item.split("=") for item in options.designs.split(",")]
        rows = pd.DataFrame(
            judged(graph, design, share, draw, client)
            for design, draws in designs
            for share in map(float, options.shares.split(","))
            for draw in range(int(draws))
        )
    if options.out is not None:
        rows.to_parquet(options.out)
    sys.stdout.write(f"{graph.name}\n{summary(rows)}\n")


if __name__ == "__main__":
    main()
