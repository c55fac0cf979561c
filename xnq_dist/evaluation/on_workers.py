"""An evaluation on Dask workers; no other module of the evaluation uses Dask.

First the workers compute scores (units on disk, each computed once), then the errors on
validation samples for every unit, calibration and quantifier. Then the best are
selected, and only then the test samples are drawn.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from distributed import Client, Future
from numpy.typing import NDArray

from xnq_dist.core import cluster
from xnq_dist.core.errors import InputError, StageError
from xnq_dist.core.progress import Progress, silent
from xnq_dist.core.settings import Settings
from xnq_dist.core.store import (
    Attempt,
    FileRecord,
    Manifest,
    RunDirectory,
    Stage,
    fingerprint,
)
from xnq_dist.core.waiting import gather, wait_all
from xnq_dist.evaluation.measures import absolute_error, relative_absolute_error
from xnq_dist.evaluation.methods.known_methods import (
    GraphEstimates,
    GraphScores,
    Method,
)
from xnq_dist.evaluation.methods.method_interface import Configuration
from xnq_dist.evaluation.protocol import (
    REPEATS,
    SAMPLE_SIZE,
    Samples,
    draw_samples,
)
from xnq_dist.evaluation.scoring import (
    Posteriors,
    calibrated,
    errors,
    estimates,
    quantifiers_for,
)
from xnq_dist.evaluation.split_fit import (
    EmbeddedRows,
    FeatureRows,
    SplitRows,
    TableRows,
    fit_split,
)
from xnq_dist.evaluation.units import Unit
from xnq_dist.evaluation.validation import Choice, ValidationErrors, choose
from xnq_dist.evaluation.work import EvaluationWork
from xnq_dist.graph.layout import load_nodes
from xnq_dist.reservoir.context import ReservoirSpec
from xnq_dist.reservoir.length import with_length
from xnq_dist.reservoir.supersteps import run_reservoir

__all__ = ["MethodResult", "TestFigure", "evaluate_method"]

log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class TestFigure:
    """Results of a chosen configuration on the test samples."""

    choice: Choice
    errors: dict[str, float]
    true: NDArray[np.float64]
    """True prevalences of the samples, shape (S, C)."""
    estimate: NDArray[np.float64]
    """Estimated prevalences, shape (S, C)."""


@dataclass(frozen=True, eq=False)
class MethodResult:
    """All results of one method on one task."""

    method: str
    embedder: str
    configurations: list[Configuration]
    seconds: dict[tuple[int, int], float]
    """Seconds by draw and index of the split."""
    validation: list[ValidationErrors]
    test: list[TestFigure]


def evaluate_method(
    client: Client,
    work: EvaluationWork,
    method: Method,
    draws: int,
    quantifiers: Sequence[str] | None,
    progress: Progress = silent,
) -> MethodResult:
    """Search, select and test one method on one task.

    Parameters
    ----------
    draws
        Number of configurations of a random search.
    quantifiers
        Names of quantifiers; None: all that are defined for the task.

    Raises
    ------
    InputError
        When the method or a quantifier is not defined for the task.
    StageError
        When workers are lost or scores are not numbers.
    """
    task = work.task()
    if method.n_classes not in (None, len(task.classes)):
        raise InputError(
            f"method {method.name!r} is defined for {method.n_classes} classes, and "
            f"{task.dataset} has {len(task.classes)}: remove it from --methods, or "
            "name a positive class with --positive"
        )
    if method.estimate_graph is not None:
        return _evaluate_whole(client, work, method, method.estimate_graph)
    configurations = method.configurations(work.settings, draws)
    splits = range(len(task.splits))
    settled = cluster.settle(client, work.settings)
    units = [
        Unit(_unit_key(work, method, configuration, split, settled), draw, split)
        for draw, configuration in enumerate(configurations)
        for split in splits
    ]
    names = quantifiers_for(quantifiers, len(task.classes), method.crisp)
    if not names:
        raise StageError(
            f"method {method.name!r} gives votes only, which need the quantifier cc or "
            "acc: add one of them to --quantifiers"
        )
    missing = [unit for unit in units if not work.units().has(unit.key)]
    if len(missing) < len(units):
        log.info(
            "%s: %d of %d scores are reused from an earlier run",
            method.name,
            len(units) - len(missing),
            len(units),
        )
    if missing:
        make = _make_rows
        if method.score_graph is not None:
            make = partial(_make_graph, method.score_graph)
        make(client, work, method, configurations, missing, progress)
    calibrations = ("none",) if method.crisp else method.calibrations(work.settings)
    futures = [
        client.submit(_validate_unit, work, unit, names, calibrations, pure=False)
        for unit in units
    ]
    what = f"{method.name}: validation"
    figures = [one for of in _results(client, futures, progress, what) for one in of]
    by_place = {(unit.draw, unit.split): unit for unit in units}
    chosen = [
        client.submit(_test_unit, work, one, by_place[one.draw, one.split], pure=False)
        for one in choose(figures)
    ]
    test = _results(client, chosen, progress, "test")
    seconds = {
        place: work.units().read(unit.key).seconds for place, unit in by_place.items()
    }
    return MethodResult(
        method.name, method.embedder, configurations, seconds, figures, test
    )


def _evaluate_whole(
    client: Client, work: EvaluationWork, method: Method, estimate: GraphEstimates
) -> MethodResult:
    """Evaluate a method that gives one estimate per split, without a search."""
    seconds: dict[tuple[int, int], float] = {}
    test = []
    splits = range(len(work.task().splits))
    for result in estimate(client, work, splits):
        seconds[0, result.split] = result.seconds
        true, found = result.true[None], result.estimate[None]
        size = np.array([result.size])
        test.append(
            TestFigure(
                Choice(0, result.split, method.name, "none", 1),
                {
                    "ae": float(absolute_error(true, found)[0]),
                    "rae": float(relative_absolute_error(true, found, size)[0]),
                },
                true,
                found,
            )
        )
    return MethodResult(method.name, method.embedder, [{}], seconds, [], test)


def _unit_key(
    work: EvaluationWork,
    method: Method,
    configuration: Configuration,
    split: int,
    settled: Settings,
) -> str:
    """Fingerprint of all that a score depends on.

    `settled` are the settings with the backend of the workers.
    """
    task = work.task()
    # States computed on a GPU have other bits than on a CPU.
    place = ["gpu"] if settled.backend == "gpu" else []
    shown = hashlib.blake2b(digest_size=16)
    shown.update(task.labels.tobytes())
    shown.update(task.roles[split].tobytes())
    return fingerprint(
        work.graph()[1].fingerprint,
        list(task.classes),
        shown.hexdigest(),
        method.name,
        configuration,
        method.relevant_settings(work.settings),
        *place,
    )


# Scores


@dataclass(frozen=True)
class _WriteStates:
    """Writes a partition's final states, with the canonical indexes of its nodes."""

    graph: Stage
    manifest: Manifest
    attempt: Attempt

    def __call__(self, number: int, states: NDArray[np.float32]) -> FileRecord:
        nodes = load_nodes(self.graph, self.manifest, number, ["index"])
        return self.attempt.write_arrays(
            f"states-{number:05d}", index=nodes["index"].to_numpy(), states=states
        )


def _make_rows(
    client: Client,
    work: EvaluationWork,
    method: Method,
    configurations: Sequence[Configuration],
    missing: Sequence[Unit],
    progress: Progress,
) -> None:
    """Embed each configuration once and fit its readout in every split."""
    done, embedded, shared_seconds = 0, None, 0.0
    with ExitStack() as cleanup:
        if method.embed is not None:
            run = RunDirectory(work.run)
            where = run.stage("embeddings")
            cleanup.callback(where.folder.delete_folder)
            made = method.embed(run, work.settings, client)
            embedded = TableRows(*work.graph(), where, tuple(made.named("part-")))
            shared_seconds = made.seconds
        for draw in sorted({unit.draw for unit in missing}):
            configuration = configurations[draw]
            units = [unit for unit in missing if unit.draw == draw]
            began = time.perf_counter() - shared_seconds
            with work.attempt(f"{method.name}-{draw:04d}") as attempt:
                rows: SplitRows = embedded or FeatureRows(*work.graph())
                if method.reservoir is not None:
                    manifest = work.graph()[1]
                    settings = with_length(work.settings, manifest.facts)
                    rho = float(manifest.facts["rho"])
                    spec = method.reservoir(settings, rho, configuration)
                    rows = _states(client, work, spec, attempt)
                seconds = time.perf_counter() - began
                fixed = work, rows, configuration["C"]
                futures = [
                    client.submit(_fit_unit, *fixed, unit, seconds, pure=False)
                    for unit in units
                ]
                _results(client, futures)
            done += len(units)
            progress(f"{method.name}: readouts", done, len(missing))


def _states(
    client: Client, work: EvaluationWork, spec: ReservoirSpec, attempt: Attempt
) -> EmbeddedRows:
    """States of a reservoir, in files of the attempt."""
    files = run_reservoir(
        client,
        *work.graph(),
        spec,
        _WriteStates(*work.graph(), attempt),
        timeout=work.settings.cluster.timeout,
    )
    return EmbeddedRows(Stage(attempt.folder, "states"), tuple(files))


def _fit_unit(
    work: EvaluationWork, rows: SplitRows, C: float, unit: Unit, seconds: float
) -> None:
    memory = work.settings.readout.memory_bytes
    scores = fit_split(work.task(), unit.split, rows, C, memory)
    work.units().write(unit.key, replace(scores, seconds=scores.seconds + seconds))


def _make_graph(
    score: GraphScores,
    client: Client,
    work: EvaluationWork,
    method: Method,
    configurations: Sequence[Configuration],
    missing: Sequence[Unit],
    progress: Progress,
) -> None:
    """Compute the scores of all splits together, in this process."""
    keys = {(unit.draw, unit.split): unit.key for unit in missing}
    draws = sorted({draw for draw, _ in keys})
    splits = sorted({split for _, split in keys})
    chosen = [configurations[draw] for draw in draws]
    for at, split, scores in score(client, work, chosen, splits):
        key = keys.pop((draws[at], split), None)
        if key is not None:
            work.units().write(key, scores)
            done = len(missing) - len(keys)
            progress(f"{method.name}: scores", done, len(missing))
    if keys:
        raise StageError(
            f"method {method.name!r} left {len(keys)} configurations without scores: "
            "internal error, please report it"
        )


# Errors


def _posteriors(
    work: EvaluationWork, unit: Unit, calibration: str, role: str
) -> tuple[Posteriors, Samples]:
    """Calibrated posteriors of the nodes with a role, and samples of these nodes."""
    task = work.task()
    rows = task.rows(unit.split, role)
    samples = draw_samples(
        task.labels[rows],
        len(task.classes),
        role,
        task.splits[unit.split].fold,
        work.settings.seed,
        SAMPLE_SIZE,
        REPEATS,
        task.classes,
    )
    scores = work.units().read(unit.key)
    return calibrated(task, unit.split, scores, calibration, rows), samples


def _validate_unit(
    work: EvaluationWork,
    unit: Unit,
    quantifiers: Sequence[str],
    calibrations: Sequence[str],
) -> list[ValidationErrors]:
    figures = []
    for calibration in calibrations:
        posteriors, samples = _posteriors(work, unit, calibration, "validation")
        for quantifier in quantifiers:
            estimate = estimates(posteriors, samples, quantifier, work.settings)
            found = errors(samples, estimate)
            figures.append(
                ValidationErrors(unit.draw, unit.split, quantifier, calibration, found)
            )
    return figures


def _test_unit(work: EvaluationWork, choice: Choice, unit: Unit) -> TestFigure:
    posteriors, samples = _posteriors(work, unit, choice.calibration, "test")
    estimate = estimates(posteriors, samples, choice.quantifier, work.settings)
    return TestFigure(choice, errors(samples, estimate), samples.prevalence, estimate)


def _results(
    client: Client,
    futures: Sequence[Future[Any]],
    progress: Progress = silent,
    what: str = "",
) -> list[Any]:
    """Results in the order of the futures; the first failure is raised."""
    wait_all(client, futures, partial(progress, what))
    return gather(client, futures)
