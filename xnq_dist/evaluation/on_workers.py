"""Searches, selects and tests a method on one task, with units of work on Dask workers.

A *unit* is one configuration in one split. Its scores are one file of the output
folder, named by a fingerprint of its inputs: another evaluation with the same graph,
method, configuration and labels reuses it, so that an interrupted evaluation resumes
and another quantifier needs no new fit.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from distributed import Client, Future

from xnq_dist.core import cluster
from xnq_dist.core.errors import InputError, StageError
from xnq_dist.core.progress import Progress, silent
from xnq_dist.core.settings import Settings
from xnq_dist.core.store import fingerprint
from xnq_dist.core.waiting import gather, wait_all
from xnq_dist.evaluation.measures import mean_errors
from xnq_dist.evaluation.methods.known_methods import Method
from xnq_dist.evaluation.methods.method_interface import Configuration, Figure
from xnq_dist.evaluation.protocol import REPEATS, SAMPLE_SIZE, draw_samples
from xnq_dist.evaluation.scoring import calibrated, estimates, quantifiers_for
from xnq_dist.evaluation.work import EvaluationWork

__all__ = ["MethodResult", "choose", "evaluate_method"]

log = logging.getLogger(__name__)

Place = tuple[int, int]
"""Draw and index of the split."""


@dataclass(frozen=True, eq=False)
class MethodResult:
    """All results of one method on one task."""

    method: str
    embedder: str
    configurations: list[Configuration]
    seconds: dict[Place, float]
    validation: list[Figure]
    test: list[Figure]
    """Results of the chosen configurations on the test samples."""


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
    splits = range(len(task.splits))
    if method.n_classes not in (None, len(task.classes)):
        raise InputError(
            f"method {method.name!r} is defined for {method.n_classes} classes, and "
            f"{task.dataset} has {len(task.classes)}: remove it from --methods, or "
            "name a positive class with --positive"
        )
    if method.of_graph is not None:
        found = list(method.of_graph(client, work, splits))
        times = {(0, figure.split): seconds for figure, seconds in found}
        test = [figure for figure, _ in found]
        return MethodResult(method.name, method.embedder, [{}], times, [], test)
    names = quantifiers_for(quantifiers, len(task.classes), method.crisp)
    if not names:
        raise StageError(
            f"method {method.name!r} gives votes only, which need the quantifier cc or "
            "acc: add one of them to --quantifiers"
        )
    configurations = method.configurations(work.settings, draws)
    settled = cluster.settle(client, work.settings)
    units = {
        (draw, split): _unit_key(work, method, configuration, split, settled)
        for draw, configuration in enumerate(configurations)
        for split in splits
    }
    _score(client, work, method, configurations, units, progress)
    calibrations = ("none",) if method.crisp else method.calibrations(work.settings)
    futures = [
        client.submit(_figures, work, unit, calibrations, names, "validation")
        for unit in units.items()
    ]
    what = f"{method.name}: validation"
    each = _results(client, futures, progress, what)
    validation = [figure for figures in each for figure in figures]
    futures = []
    for one in choose(validation):
        place = one.draw, one.split
        rule = (one.calibration,), (one.quantifier,)
        unit = place, units[place]
        futures.append(client.submit(_figures, work, unit, *rule, "test"))
    test = [figure for (figure,) in _results(client, futures, progress, "test")]
    times = {place: work.read_scores(key).seconds for place, key in units.items()}
    all_of = configurations, times, validation, test
    return MethodResult(method.name, method.embedder, *all_of)


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


def _score(
    client: Client,
    work: EvaluationWork,
    method: Method,
    configurations: Sequence[Configuration],
    units: dict[Place, str],
    progress: Progress,
) -> None:
    """Keep the scores of all units that the folder lacks."""
    missing = {place: key for place, key in units.items() if not work.has_scores(key)}
    total = len(missing)
    if total < len(units):
        log.info(
            "%s: %d of %d scores are reused from an earlier run",
            method.name,
            len(units) - total,
            len(units),
        )
    if not missing:
        return
    draws = sorted({draw for draw, _ in missing})
    splits = sorted({split for _, split in missing})
    chosen = [configurations[draw] for draw in draws]
    for at, split, scores in method.score(client, work, chosen, splits):
        key = missing.pop((draws[at], split), None)
        if key is not None:
            work.write_scores(key, scores)
            progress(f"{method.name}: scores", total - len(missing), total)
    if missing:
        raise StageError(
            f"method {method.name!r} left {len(missing)} configurations without "
            "scores: internal error, please report it"
        )


def _figures(
    work: EvaluationWork,
    unit: tuple[Place, str],
    calibrations: Sequence[str],
    quantifiers: Sequence[str],
    role: str,
) -> list[Figure]:
    """Errors of a unit on the samples of a role."""
    (draw, split), key = unit
    task, scores = work.task(), work.read_scores(key)
    rows = task.rows(split, role)
    samples = draw_samples(
        task.labels[rows],
        len(task.classes),
        role,
        task.splits[split].fold,
        work.settings.seed,
        SAMPLE_SIZE,
        REPEATS,
    )
    true, kept = samples.prevalence, len(samples.sets) if role == "test" else 0
    figures = []
    for calibration in calibrations:
        posteriors = calibrated(task, split, scores, calibration, rows)
        for quantifier in quantifiers:
            found = estimates(posteriors, samples, quantifier, work.settings)
            errors = mean_errors(true, found, samples.sizes)
            rule = draw, split, quantifier, calibration
            figures.append(Figure(*rule, errors, true[:kept], found[:kept]))
    return figures


def choose(figures: Iterable[Figure]) -> list[Figure]:
    """Choose the lowest validation AE for each split and quantifier.

    Ties go to the earlier figure.
    """
    best: dict[tuple[int, str], Figure] = {}
    for figure in figures:
        kept = best.setdefault((figure.split, figure.quantifier), figure)
        if figure.errors["ae"] < kept.errors["ae"]:
            best[figure.split, figure.quantifier] = figure
    return list(best.values())


def _results(
    client: Client, futures: Sequence[Future[Any]], progress: Progress, what: str
) -> list[Any]:
    """Results in the order of the futures; the first failure is raised."""
    wait_all(client, futures, partial(progress, what))
    return gather(client, futures)
