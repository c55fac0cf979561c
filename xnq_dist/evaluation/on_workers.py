"""Searches, selects and tests a method on one task, with units of work on Dask workers.

A *unit* is one configuration in one split. Its scores are one file of the output
folder, named by a fingerprint of its inputs: another evaluation with the same graph,
method, configuration and labels reuses it, so that an interrupted evaluation resumes
and another quantifier needs no new fit.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, groupby
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from distributed import Client

from xnq_dist.core import cluster
from xnq_dist.core.arrays import Floats
from xnq_dist.core.errors import StageError
from xnq_dist.core.progress import Progress, silent
from xnq_dist.core.store import RunDirectory, fingerprint
from xnq_dist.core.tasks import tasks_on
from xnq_dist.evaluation.keep import arrow_schema
from xnq_dist.evaluation.methods.known_methods import Method
from xnq_dist.evaluation.protocol import REPEATS, SAMPLE_SIZE, draw_samples
from xnq_dist.evaluation.scoring import (
    calibrated,
    errors_of,
    estimates,
    quantifiers_for,
)
from xnq_dist.evaluation.task import EvaluationWork, Scores, keep_arrays, read_arrays
from xnq_dist.readout.calibration import KINDS

__all__ = ["Figure", "Unit", "choose", "evaluate_method"]

MATTER = {"seed", "reservoir", "exchange", "readout", "leiden"}
"""Settings that scores can depend on."""


@dataclass(frozen=True)
class Unit:
    """One configuration in one split."""

    draw: int
    split: int
    """Index in ``Task.splits``."""
    key: str
    """Name of the file of its scores: a fingerprint of all that they depend on."""


@dataclass(frozen=True, eq=False)
class Figure:
    """Errors of a unit, calibration and quantifier on the samples of a role."""

    unit: Unit
    quantifier: str
    calibration: str
    errors: dict[str, float]
    """Mean error over the samples by metric."""
    seconds: float
    """Wall time to make the scores."""
    true: Floats
    """True prevalences of the samples, shape (S, C)."""
    estimate: Floats
    """Estimated prevalences, as `true`."""


def evaluate_method(
    client: Client,
    work: EvaluationWork,
    method: Method,
    draws: int,
    quantifiers: Sequence[str] | None,
    progress: Progress = silent,
) -> dict[str, pa.Table]:
    """Search, select and test one method on one task.

    Parameters
    ----------
    draws
        Number of configurations of a random search.
    quantifiers
        Names of quantifiers; None: all that are defined for the task.

    Returns
    -------
    The tables ``results`` and ``estimates``. Rows of the split ``test`` exist only for
    the chosen draws and calibrations.

    Raises
    ------
    InputError
        When a quantifier is not defined for the task.
    StageError
        When workers are lost or scores are not numbers.
    """
    task, name = work.task(), method.name
    names = quantifiers_for(quantifiers, task.n_classes, method.crisp)
    if not names:
        raise StageError(
            f"method {name!r} gives votes only, which need the quantifier cc or acc: "
            "add one of them to --quantifiers"
        )
    configurations = method.configurations(work.settings, draws)
    units = _score(client, work, method, configurations, progress)
    # Validation chooses from all calibrations, as in the paper.
    calibrations = method.calibrations or KINDS
    tasks = tasks_on(client, Path(), 0)
    each = tasks.map(
        partial(_figures, work, "validation", calibrations, names),
        units,
        partial(progress, f"{name}: validation"),
    )
    validation = [*chain.from_iterable(each)]
    chosen = choose(validation)
    test = tasks.map(partial(_test, work), chosen, partial(progress, "test"))
    results, estimated = [], []
    for role, figures in ("validation", validation), ("test", test):
        for one in figures:
            row = vars(task.splits[one.unit.split]) | {
                "dataset": task.dataset,
                "method": name,
                "embedder": method.embedder,
                "quantifier": one.quantifier,
                "calibration": one.calibration,
                "draw": one.unit.draw,
                "split": role,
                "selected": role == "test" or one in chosen,
                "seconds": one.seconds,
            }
            for metric, value in one.errors.items():
                results.append(row | {"metric": metric, "value": value})
            if role == "test":
                estimated.append(_estimate_rows(row, one, task.classes))
    return {
        "results": pa.Table.from_pylist(results, arrow_schema("results")),
        "estimates": pa.concat_tables(estimated),
    }


def _estimate_rows(
    row: Mapping[str, Any], figure: Figure, classes: Sequence[str]
) -> pa.Table:
    """True and estimated prevalence of every sample, schema ``estimates``."""
    samples, n_classes = figure.true.shape
    count = samples * n_classes
    same = ("dataset", "method", "quantifier", "fold", "label_share")
    columns = {
        **{name: [row[name]] * count for name in same},
        "sample": np.repeat(np.arange(samples), n_classes),
        "class": list(classes) * samples,
        "true": figure.true.ravel(),
        "estimate": figure.estimate.ravel(),
    }
    return pa.table(columns, schema=arrow_schema("estimates"))


def _score(
    client: Client,
    work: EvaluationWork,
    method: Method,
    configurations: Sequence[dict[str, Any]],
    progress: Progress,
) -> list[Unit]:
    """All units, whose scores the folder keeps afterwards."""
    task, folder = work.task(), work.folder("units")
    fixed = [
        work.graph().fingerprint,
        list(task.classes),
        method.name,
        work.settings.model_dump(include=MATTER, mode="json"),
        # States computed on a GPU have other bits than on a CPU.
        cluster.settle(client, work.settings).backend == "gpu",
    ]
    shown = [
        hashlib.blake2b(task.labels.tobytes() + roles.tobytes()).hexdigest()
        for roles in task.roles
    ]
    units = [
        Unit(draw, split, fingerprint(fixed, configuration, roles))
        for draw, configuration in enumerate(configurations)
        for split, roles in enumerate(shown)
    ]
    missing = [one for one in units if not folder.exists(f"{one.key}.npy")]
    done = 0
    try:
        for draw, some in groupby(missing, lambda one: one.draw):
            of_draw = list(some)
            splits = [one.split for one in of_draw]
            made = method.score(client, work, configurations[draw], splits)
            for one, scores in zip(of_draw, made, strict=True):
                keep_arrays(folder, one.key, vars(scores).copy)
                done += 1
                progress(f"{method.name}: scores", done, len(missing))
    finally:
        RunDirectory(work.run).stage("embeddings").delete_folder()
    return units


def _figures(
    work: EvaluationWork,
    role: str,
    calibrations: Sequence[str],
    quantifiers: Sequence[str],
    unit: Unit,
) -> list[Figure]:
    """Errors of a unit on the samples of a role; estimates stay out for validation."""
    task = work.task()
    arrays: dict[str, Any] = read_arrays(work.folder("units"), unit.key)
    scores = Scores(**arrays)
    rows = task.rows(unit.split, role)
    samples = draw_samples(
        task.labels[rows],
        task.n_classes,
        role,
        task.splits[unit.split].fold,
        work.settings.seed,
        SAMPLE_SIZE,
        REPEATS,
    )
    kept = len(samples.sets) if role == "test" else 0
    figures = []
    for calibration in calibrations:
        nodes = calibrated(task, unit.split, scores, calibration, rows)
        for quantifier in quantifiers:
            found = estimates(nodes, samples, quantifier, work.settings)
            errors = errors_of(samples.prevalence, found, samples.sets.sizes)
            means = {name: float(each.mean()) for name, each in errors.items()}
            true = samples.prevalence[:kept]
            rule = unit, quantifier, calibration, means, float(scores.seconds)
            figures.append(Figure(*rule, true, found[:kept]))
    return figures


def _test(work: EvaluationWork, chosen: Figure) -> Figure:
    rule = (chosen.calibration,), (chosen.quantifier,)
    (figure,) = _figures(work, "test", *rule, chosen.unit)
    return figure


def choose(figures: Iterable[Figure]) -> list[Figure]:
    """Choose the lowest validation AE for each split and quantifier.

    Ties go to the earlier figure.
    """
    best: dict[tuple[int, str], Figure] = {}
    for figure in figures:
        kept = best.setdefault((figure.unit.split, figure.quantifier), figure)
        if figure.errors["ae"] < kept.errors["ae"]:
            best[figure.unit.split, figure.quantifier] = figure
    return list(best.values())
