"""Estimates of other reservoirs, compared with the intervals of one run.

    python tests/benchmarks/reservoir_seeds.py FOLDER [POSITIVE] [--seeds 4] [--draws 2]
        [--shares .6,.06,.012] [--resamples 100] [--quantifiers auto,sld,...]

FOLDER has nodes.parquet and edges.parquet. The same labels are used with `--seeds`
reservoirs; every quantifier estimates the graph's Leiden communities and samples drawn
by class. Prints one line each: coverage of the intervals, and of intervals widened by
one other run (`intervals.seed_runs`); mean absolute error; root mean square deviation
of the seeds from their mean, and of the error; the standard error behind the intervals;
the share of a third seed's estimates outside of either interval.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import tempfile
from pathlib import Path

import numpy as np
from distributed import Client
from xnq_dist.quantify.intervals.seed_runs import between_runs, widened

from xnq_dist.core.config import load_settings
from xnq_dist.core.quantifiers import records
from xnq_dist.core.store import RunDirectory
from xnq_dist.evaluation.case import Case
from xnq_dist.evaluation.community_cases import _posteriors
from xnq_dist.evaluation.designs import GROUP_RESOLUTION, LabelPool, draw_labels
from xnq_dist.evaluation.estimators import Estimators
from xnq_dist.evaluation.real import _truth
from xnq_dist.evaluation.regions import communities_of, draw_samples_by_class
from xnq_dist.evaluation.task import TaskSource, load_task
from xnq_dist.evaluation.work import EvaluationWork
from xnq_dist.graph import layout
from xnq_dist.graph.prepare import prepare
from xnq_dist.graph.tables import Sources
from xnq_dist.groups.leiden import leiden

Answer = tuple[np.ndarray, np.ndarray, np.ndarray]
LEAST_UNLABELLED = 20


def outside(value: np.ndarray, low: np.ndarray, high: np.ndarray) -> float:
    return float(((value < low - 1e-12) | (value > high + 1e-12)).mean())


def held_against(found: list[Answer], true: np.ndarray, sizes: np.ndarray) -> dict:
    """Figures of one quantifier on one family, of the last class."""
    at = np.array(found)[..., -1]
    p, low, high = at[:, 0], at[:, 1], at[:, 2]
    truth = true[:, -1]
    none = np.zeros_like(true, np.int64)
    before, after, covered = [], [], []
    for i, j, k in itertools.permutations(range(len(found)), 3):
        own = found[i]
        arrays = dict(zip(("prevalence", "lower", "upper"), own, strict=True))
        arrays |= {"known": none, "n_nodes": sizes, "n_estimated": sizes}
        variance = between_runs(own[0], found[j][0][None], sizes, np.ones(len(sizes)))
        wide = widened(arrays, variance, 0.95, exclude=True)
        before.append(outside(p[k], low[i], high[i]))
        after.append(outside(p[k], wide["lower"][:, -1], wide["upper"][:, -1]))
        inside = outside(truth, wide["lower"][:, -1], wide["upper"][:, -1])
        covered.append(1 - inside)
    return {
        "covered": 1
        - np.mean([outside(truth, *ends) for ends in zip(low, high, strict=True)]),
        "widened": np.mean(covered),
        "ae": np.abs(p - truth).mean(),
        "seed": np.sqrt(p.var(axis=0, ddof=1).mean()),
        "error": np.sqrt(((p - truth) ** 2).mean()),
        "claimed": np.sqrt(((high - low) ** 2).mean()) / 3.92,
        "outside": np.mean(before),
        "outside, widened": np.mean(after),
    }


def main() -> None:
    """Print a line for each share, family and quantifier."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("positive", nargs="?")
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--draws", type=int, default=2)
    parser.add_argument("--shares", default=".6,.06,.012")
    parser.add_argument("--resamples", type=int, default=100)
    parser.add_argument("--quantifiers", default=",".join(records()))
    asked = parser.parse_args()
    settings = load_settings(
        overrides=["method=xnq+", f"intervals.resamples={asked.resamples}"]
    )
    with (
        tempfile.TemporaryDirectory() as folder,
        Client(
            processes=False, n_workers=1, threads_per_worker=1, dashboard_address=None
        ) as client,
    ):
        run = RunDirectory(folder)
        tables = (str(asked.folder / f"{name}.parquet") for name in ("nodes", "edges"))
        prepare(run, Sources(*tables), settings, 1)
        source = TaskSource(asked.folder.name, positive=asked.positive)
        task = load_task(run, source, 0)
        work = EvaluationWork.begin(run, task, settings)
        adjacency = layout.read_adjacency(*work.graph())
        adjacency.sort_indices()
        own = leiden(adjacency, GROUP_RESOLUTION, 0)
        pool = LabelPool(task.labels, len(task.classes), own, adjacency)
        ways = list(
            itertools.product(map(float, asked.shares.split(",")), range(asked.draws))
        )
        posteriors: dict[tuple[float, int], list[np.ndarray]] = {w: [] for w in ways}
        shown = {
            (share, draw): draw_labels("random", pool, share, 100 + draw)
            for share, draw in ways
        }
        for seed, way in itertools.product(range(asked.seeds), ways):
            made = _posteriors(client, work, shown[way].fitted, own, seed)
            posteriors[way].append(made["posteriors"].astype(np.float64))
    names = [
        name
        for name in asked.quantifiers.split(",")
        if records()[name].defined_for(len(task.classes))
    ]
    figures: dict[tuple[float, str, str], list[dict]] = {}
    for (share, draw), several in posteriors.items():
        labels = shown[share, draw].labels
        cases = [
            Case.of(task.labels, shown[share, draw], one, task.classes)
            for one in several
        ]
        made = [Estimators(c, adjacency, (own,), settings, names) for c in cases]
        families = {
            "leiden": communities_of(own),
            "app": draw_samples_by_class(
                task.labels, labels, len(task.classes), 0, draw
            ),
        }
        for family, sets in families.items():
            counts, _ = _truth(cases[0], sets)
            sizes = counts.sum(axis=1).astype(np.int64)
            some = sizes >= LEAST_UNLABELLED
            true = counts[some] / sizes[some, None]
            answers = [dict(estimators.answers(sets)) for estimators in made]
            for name in names:
                found = [
                    (one[name].prevalence, one[name].lower, one[name].upper)
                    for one in answers
                ]
                local = [tuple(part[some] for part in one) for one in found]
                row = held_against(local, true, sizes[some])
                figures.setdefault((share, family, name), []).append(row)
    for (share, family, name), rows in figures.items():
        mean = {key: np.mean([row[key] for row in rows]) for key in rows[0]}
        text = "  ".join(f"{key} {value:.3f}" for key, value in mean.items())
        sys.stdout.write(f"{asked.folder.name} {share:g} {family:6} {name:9} {text}\n")


if __name__ == "__main__":
    main()
