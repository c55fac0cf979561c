"""An evaluation on Dask workers; no other module of the evaluation uses Dask.

First the workers compute scores (units on disk, each computed once), then the errors on
validation samples for every unit, calibration and quantifier. Then the best are
selected, and only then the test samples are drawn.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections import deque
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
    Folder,
    Manifest,
    RunDirectory,
    Stage,
    fingerprint,
)
from xnq_dist.core.waiting import gather, wait_all
from xnq_dist.evaluation.measures import absolute_error, relative_absolute_error
from xnq_dist.evaluation.methods.known_methods import Method
from xnq_dist.evaluation.methods.method_interface import Configuration, Scores
from xnq_dist.evaluation.protocol import (
    REPEATS,
    SAMPLE_SIZE,
    Samples,
    draw_samples,
)
from xnq_dist.evaluation.scoring import calibrated, errors, estimates, quantifiers_for
from xnq_dist.evaluation.split_fit import (
    EmbeddedRows,
    FeatureRows,
    SplitRows,
    TableRows,
    fit_split,
)
from xnq_dist.evaluation.units import Errors, Unit
from xnq_dist.evaluation.validation import Choice, ValidationErrors, choose
from xnq_dist.evaluation.work import EvaluationWork
from xnq_dist.graph.layout import load_nodes
from xnq_dist.monitor.peak_memory import peak_memory
from xnq_dist.reservoir.length import with_length
from xnq_dist.reservoir.supersteps import run_reservoir

__all__ = ["MethodResult", "TestFigure", "evaluate_method"]

log = logging.getLogger(__name__)

AHEAD = 2
"""Maximum number of embeddings on disk that wait for their readouts."""


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
    peaks: dict[tuple[int, int], int | None]
    """Peak memory in bytes by draw and index of the split; None: not measured."""
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
    if method.kind == "whole":
        return _evaluate_whole(client, work, method)
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
        make = {"rows": _make_rows, "split": _make_splits, "graph": _make_graph}
        make[method.kind](client, work, method, configurations, missing, progress)
    calibrations = ("none",) if method.crisp else method.calibrations(work.settings)
    arguments = tuple(names), tuple(calibrations)
    futures = [
        client.submit(_validate_unit, work, unit, *arguments, pure=False)
        for unit in units
    ]
    by_unit = _results(client, futures, progress, f"{method.name}: validation")
    figures = [
        ValidationErrors(unit.draw, unit.split, quantifier, calibration, values)
        for unit, of_unit in zip(units, by_unit, strict=True)
        for quantifier in names
        for calibration, values in of_unit[quantifier].items()
    ]
    keys = {(unit.draw, unit.split): unit.key for unit in units}
    chosen = [
        client.submit(_test_unit, work, one, keys[one.draw, one.split], pure=False)
        for one in choose(figures)
    ]
    test = _results(client, chosen, progress, "test")
    seconds, peaks = {}, {}
    for unit in units:
        scores, peak = work.units().read(unit.key)
        seconds[unit.draw, unit.split] = scores.seconds
        peaks[unit.draw, unit.split] = peak
    return MethodResult(
        method.name, method.embedder, configurations, seconds, peaks, figures, test
    )


def _evaluate_whole(
    client: Client, work: EvaluationWork, method: Method
) -> MethodResult:
    """Evaluate a method that gives one estimate per split, without a search."""
    if method.estimate_graph is None:
        raise _missing_function(method, "estimate_graph")
    seconds: dict[tuple[int, int], float] = {}
    test = []
    splits = range(len(work.task().splits))
    for result in method.estimate_graph(client, work, splits):
        seconds[0, result.split] = result.seconds
        true, estimate = result.true[None], result.estimate[None]
        size = np.array([result.size])
        test.append(
            TestFigure(
                Choice(0, result.split, method.name, "none", 1),
                {
                    "ae": float(absolute_error(true, estimate)[0]),
                    "rae": float(relative_absolute_error(true, estimate, size)[0]),
                },
                true,
                estimate,
            )
        )
    peaks: dict[tuple[int, int], int | None] = dict.fromkeys(seconds)
    return MethodResult(method.name, method.embedder, [{}], seconds, peaks, [], test)


def _missing_function(method: Method, name: str) -> StageError:
    return StageError(
        f"method {method.name!r} has no function {name}: internal error, please "
        "report it"
    )


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

    def __call__(
        self, number: int, states: NDArray[np.float32]
    ) -> tuple[FileRecord, int]:
        nodes = load_nodes(self.graph, self.manifest, number, ["index"])
        record = self.attempt.write_arrays(
            f"states-{number:05d}", index=nodes["index"].to_numpy(), states=states
        )
        return record, peak_memory(reset=True)


def _make_rows(
    client: Client,
    work: EvaluationWork,
    method: Method,
    configurations: Sequence[Configuration],
    missing: Sequence[Unit],
    progress: Progress,
) -> None:
    """Embed each configuration once and fit its readout in every split."""
    graph, manifest = work.graph()
    by_draw: dict[int, list[Unit]] = {}
    for unit in missing:
        by_draw.setdefault(unit.draw, []).append(unit)
    waiting: deque[tuple[Stage | None, list[Future[None]]]] = deque()
    done = 0

    def settle() -> None:
        nonlocal done
        stage, futures = waiting.popleft()
        _results(client, futures)
        if stage is not None:
            stage.folder.delete_folder()
        done += len(futures)
        progress(f"{method.name}: readouts", done, len(missing))

    with ExitStack() as cleanup:
        shared: SplitRows | None = None
        shared_seconds = 0.0
        if method.embed is not None:
            run = RunDirectory(work.run)
            where = run.stage("embeddings")
            cleanup.callback(where.folder.delete_folder)
            made = method.embed(run, work.settings, client)
            shared = TableRows(graph, manifest, where, tuple(made.named("part-")))
            shared_seconds = made.seconds
        for draw, units in by_draw.items():
            stage, rows, seconds, peak = None, shared, shared_seconds, 0
            if method.reservoir is not None:
                rho = float(manifest.facts["rho"])
                settled = with_length(work.settings, manifest.facts)
                spec = method.reservoir(settled, rho, configurations[draw])
                name = f"draw-{method.name}-{draw:04d}"
                stage = Stage(Folder.of(work.run).child(name), name)
                cleanup.callback(stage.folder.delete_folder)
                attempt = stage.begin()
                began = time.perf_counter()
                files = run_reservoir(
                    client,
                    graph,
                    manifest,
                    spec,
                    _WriteStates(graph, manifest, attempt),
                    timeout=work.settings.cluster.timeout,
                )
                seconds = time.perf_counter() - began
                peak = max(peak for _, peak in files)
                rows = EmbeddedRows(stage, tuple(record for record, _ in files))
            fixed = work, rows, configurations[draw]
            futures = [
                client.submit(_fit_unit, *fixed, unit, seconds, peak, pure=False)
                for unit in units
            ]
            waiting.append((stage, futures))
            while len(waiting) > AHEAD:
                settle()
        while waiting:
            settle()


def _fit_unit(
    work: EvaluationWork,
    rows: SplitRows | None,
    configuration: Configuration,
    unit: Unit,
    seconds: float,
    peak: int,
) -> None:
    peak_memory(reset=True)
    embedding = FeatureRows(*work.graph()) if rows is None else rows
    memory = work.settings.readout.memory_bytes
    scores = fit_split(work.task(), unit.split, embedding, configuration["C"], memory)
    scores = replace(scores, seconds=scores.seconds + seconds)
    work.units().write(unit.key, scores, max(peak_memory(), peak))


def _make_splits(
    client: Client,
    work: EvaluationWork,
    method: Method,
    configurations: Sequence[Configuration],
    missing: Sequence[Unit],
    progress: Progress,
) -> None:
    """Compute each unit in a separate task."""
    score = method.score_split
    futures = [
        client.submit(_split_unit, work, score, configurations[u.draw], u, pure=False)
        for u in missing
    ]
    _results(client, futures, progress, f"{method.name}: trainings")


def _split_unit(
    work: EvaluationWork, score: Any, configuration: Configuration, unit: Unit
) -> None:
    peak_memory(reset=True)
    scores: Scores = score(work, configuration, unit.split)
    work.units().write(unit.key, scores, peak_memory())


def _make_graph(
    client: Client,
    work: EvaluationWork,
    method: Method,
    configurations: Sequence[Configuration],
    missing: Sequence[Unit],
    progress: Progress,
) -> None:
    """Compute the scores of all splits together, by passes over the partitions."""
    if method.score_graph is None:
        raise _missing_function(method, "score_graph")
    keys = {(unit.draw, unit.split): unit.key for unit in missing}
    draws = sorted({draw for draw, _ in keys})
    splits = sorted({split for _, split in keys})
    chosen = [configurations[draw] for draw in draws]
    done = 0
    for at, split, scores in method.score_graph(client, work, chosen, splits):
        key = keys.pop((draws[at], split), None)
        if key is not None:
            work.units().write(key, scores, None)
            done += 1
            progress(f"{method.name}: scores", done, len(missing))
    if keys:
        raise StageError(
            f"method {method.name!r} left {len(keys)} configurations without scores: "
            "internal error, please report it"
        )


# Errors


_SAMPLES: dict[tuple[Any, ...], Samples] = {}
"""Cache of drawn samples, which are the same for every method and quantifier."""


def _samples(work: EvaluationWork, split: int, role: str) -> Samples:
    task = work.task()
    fold, seed = task.splits[split].fold, work.settings.seed
    key = (work.task_key, fold, role, seed, SAMPLE_SIZE, REPEATS)
    if key not in _SAMPLES:
        if len(_SAMPLES) > 32:
            _SAMPLES.clear()
        _SAMPLES[key] = draw_samples(
            task.labels[task.rows(split, role)],
            len(task.classes),
            role,
            fold,
            seed,
            SAMPLE_SIZE,
            REPEATS,
            task.classes,
        )
    return _SAMPLES[key]


def _protocol_key(work: EvaluationWork) -> str:
    return fingerprint(work.settings.seed, SAMPLE_SIZE, REPEATS)[:8]


def _validate_unit(
    work: EvaluationWork,
    unit: Unit,
    quantifiers: Sequence[str],
    calibrations: Sequence[str],
) -> Errors:
    protocol = _protocol_key(work)
    known = work.units().errors(unit.key, protocol)
    missing = [
        (quantifier, calibration)
        for calibration in calibrations
        for quantifier in quantifiers
        if calibration not in known.get(quantifier, {})
    ]
    if missing:
        task = work.task()
        scores, _ = work.units().read(unit.key)
        samples = _samples(work, unit.split, "validation")
        rows = task.rows(unit.split, "validation")
        for calibration in calibrations:
            names = [q for q, c in missing if c == calibration]
            if not names:
                continue
            posteriors = calibrated(task, unit.split, scores, calibration, rows)
            for quantifier in names:
                estimate = estimates(posteriors, samples, quantifier, work.settings)
                figures = errors(samples, estimate)
                known.setdefault(quantifier, {})[calibration] = figures
        work.units().write_errors(unit.key, protocol, known)
    return {
        quantifier: {
            calibration: known[quantifier][calibration] for calibration in calibrations
        }
        for quantifier in quantifiers
    }


def _test_unit(work: EvaluationWork, choice: Choice, key: str) -> TestFigure:
    task = work.task()
    scores, _ = work.units().read(key)
    rows = task.rows(choice.split, "test")
    samples = _samples(work, choice.split, "test")
    posteriors = calibrated(task, choice.split, scores, choice.calibration, rows)
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
