"""The readout of xnq+: nested folds, first stages of blocks, a second stage, a pool.

One task joins the rows of the labelled nodes that models are fitted to; label features
count all labels, and everything else stays in files of the stage, one per partition.
`variants` defines the hidden folds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from xnq_dist.core.arrays import Floats, Floats32, Ints, Ints32
from xnq_dist.core.progress import Progress
from xnq_dist.core.settings import Settings
from xnq_dist.core.store import Attempt, FileRecord, Stage
from xnq_dist.core.waiting import gather, result
from xnq_dist.readout.calibration import fit_calibration
from xnq_dist.readout.diagnostics import quality
from xnq_dist.readout.folds import check_counts
from xnq_dist.readout.objective import Rows
from xnq_dist.readout.plus.cross import Folding, cross_fits, group_folding
from xnq_dist.readout.plus.first_stage import FirstStage
from xnq_dist.readout.plus.label_features import FirstFit
from xnq_dist.readout.plus.plus_model import SavedPlus, partition_logits
from xnq_dist.readout.plus.second_stage import (
    KINDS,
    SecondRows,
    conclude,
    fit_kind,
    fit_linear,
    gain_of_scores,
    standardised,
)
from xnq_dist.readout.plus.trees import BoostedTrees
from xnq_dist.readout.plus.variants import node_folds
from xnq_dist.readout.regularisation import ChosenC
from xnq_dist.readout.rows import Part, write_readout
from xnq_dist.readout.tasks import TaskFits, in_window
from xnq_dist.readout.work import Embedded, Fitted, ReadoutWork, to_fit

if TYPE_CHECKING:
    from distributed import Client, Future

    _Future = Future[Any]

__all__ = [
    "MIN_FOR_TREES",
    "PRIOR_ROWS",
    "PlusFit",
    "PlusScores",
    "fit",
    "fit_plus",
    "plus_scores",
]

PRIOR_ROWS = 2.0
"""Strength of the priors of the calibration, in rows."""
MIN_FOR_TREES = 100
"""Minimum number of labelled rows for trees: a leaf holds at least 40."""


@dataclass(frozen=True)
class PlusFit:
    """A fitted xnq+ readout in files."""

    parts: Sequence[Part]
    readout: FileRecord
    """`SavedPlus` as arrays."""
    summary: FileRecord
    features: tuple[FileRecord, ...]
    """Label features, one file per partition."""
    held: FileRecord | None
    """Posteriors by models fitted without labels of the node's group."""
    facts: dict[str, Any]
    """Facts for manifests and reports, JSON values."""


@dataclass(frozen=True, eq=False)
class PlusScores:
    """Uncalibrated scores of xnq+ for every node."""

    logits: Floats32
    """Log-probabilities of every node by canonical index, shape (N, C); those of
    labelled nodes out of fold, of others the means over all folds' models."""
    own: Floats32
    """The same by the models of each node's own fold."""
    by_group: tuple[Ints, Floats] | None
    """Index and posteriors of labelled nodes by models fitted without labels of their
    group, shape (h,) and (h, C)."""
    facts: dict[str, Any]
    """Facts about the fit, JSON values."""


def fit(work: ReadoutWork) -> Fitted:
    """Fit the readout of xnq+ (`fit_plus`); return its files and facts."""
    found = fit_plus(work)
    held = () if found.held is None else (found.held,)
    return (found.readout, found.summary, *found.features, *held), found.facts


def fit_plus(work: ReadoutWork) -> PlusFit:
    """Fit the readout of xnq+ to labels, and write its files.

    Roles are not used. With groups there are additional posteriors by models fitted
    without labels of a node's group. Weights are scaled so that their sum is the
    effective number of labels.

    Raises
    ------
    InputError
        When a class has fewer than two labels.
    DoesNotFitError
        When ``readout.memory`` is too small for enough labelled rows.
    """
    client, source, settings = work.client, work.source, work.settings
    labels, classes, attempt = work.labels, list(work.classes), work.attempt
    shown = np.flatnonzero(labels >= 0)
    counts = np.bincount(labels[shown], minlength=len(classes))
    check_counts(counts, 2, classes)
    weighed = counts.astype(np.float64)
    if work.weights is not None:
        weights = scaled_weights(work.weights, shown)
        np.add.at(weighed, labels[shown], weights[shown] - 1.0)
        work = replace(work, weights=weights)
    fitted = to_fit(labels, sum(source.blocks), settings)
    count, seed = settings.readout.folds, settings.seed
    fold_of = partial(node_folds, folds=count, seed=seed)
    foldings = [Folding(fold_of, fitted, attempt)]
    if work.groups is not None:
        foldings += group_folding(work, fitted, work.groups)
    parts = source.parts(client)
    crossed, *others = cross_fits(work, parts, foldings)
    linear = _linear_fits(work, [crossed.rows, *(each.rows for each in others)])
    held: list[_Future] = []
    for other in others:
        inputs = other.rows, foldings[1].fitted, linear[1], other.first
        options = settings.readout.calibration, attempt
        held.append(client.submit(_write_held, *inputs, *options, pure=False))
    trees: dict[str, list[Any]] = {}
    if len(fitted) >= MIN_FOR_TREES:
        need = max(1, len(fitted) * max(source.blocks) * 8)
        at_once = max(1, settings.readout.memory_bytes // need)
        rows = crossed.rows, len(classes)
        trees = _trees(client, *rows, count, at_once, work.progress)
    finished = client.submit(
        _finish,
        crossed.rows,
        linear[0],
        linear[len(foldings) :],
        trees,
        crossed.first,
        crossed.strengths,
        shown,
        weighed / weighed.sum(),
        classes,
        settings,
        pure=False,
    )
    files, facts = result(client, finished)
    (by_groups,) = gather(client, held) or [None]
    # The readout has a copy of the models in use.
    crossed.delete()
    for other in others:
        other.delete(features=True)
    return PlusFit(parts, files[0], files[1], crossed.features, by_groups, facts)


def _linear_fits(work: ReadoutWork, rows: Sequence[_Future]) -> list[ChosenC]:
    """Fit the logistic regressions of each folding's rows.

    Where there are scores of another model, those of the first rows without them are
    last.
    """
    columns, count = work.settings.columns, work.settings.readout.folds
    sets: list[tuple[Callable[..., Rows], _Future]]
    sets = [(standardised, each) for each in rows]
    if columns.scores:
        sets.append((_without_scores, rows[0]))
    ready = [
        work.client.submit(make, each, len(work.classes), fold, pure=False)
        for make, each in sets
        for fold in range(count)
    ]
    fits = TaskFits(work.client, ready, "second stage", work.progress)
    return fit_linear(fits, count, len(sets))


def _trees(
    client: Client,
    rows: _Future,
    n_classes: int,
    folds: int,
    at_once: int,
    progress: Progress,
) -> dict[str, list[_Future]]:
    """Fit the trees of every kind and fold."""
    jobs = [(kind, fold) for kind in KINDS for fold in range(folds)]

    def submit(number: int) -> _Future:
        return client.submit(fit_kind, rows, n_classes, *jobs[number], pure=False)

    futures = in_window(client, submit, len(jobs), at_once, "trees", progress)
    return {kind: futures[at * folds :][:folds] for at, kind in enumerate(KINDS)}


def _without_scores(rows: SecondRows, n_classes: int, fold: int) -> Rows:
    """Rows for models without a fold, and without the scores of another model."""
    return standardised(rows, n_classes, fold, slice(-rows.provided))


def scaled_weights(weights: Floats, shown: Ints) -> Floats:
    """Scale weights so that their sum over the labelled nodes is the effective number.

    That is ``(sum w)^2 / sum w^2``, the number of equally weighted labels with the same
    information.
    """
    used = weights[shown]
    return np.asarray(weights * (used.sum() / (used**2).sum()))


def _write_held(
    rows: SecondRows,
    index: Ints,
    linear: ChosenC,
    first: FirstFit,
    calibration: str,
    attempt: Attempt,
) -> FileRecord:
    """Write the canonical `index` of labelled nodes and their `posterior`; one task."""
    priors = first.priors[: first.variants.folds]
    _, held, _ = conclude(rows, priors.shape[1], linear, {}, priors)
    fitted = fit_calibration(calibration, held, rows.labels, PRIOR_ROWS, rows.weights)
    posterior = fitted.apply(held)
    return attempt.write_arrays("held", index=index, posterior=posterior)


def _finish(
    rows: SecondRows,
    linear: ChosenC,
    without_scores: Sequence[ChosenC],
    trees: dict[str, Sequence[tuple[BoostedTrees, Floats]]],
    fit: FirstFit,
    strengths: Sequence[float],
    index: Ints,
    prior: Floats,
    classes: list[Any],
    settings: Settings,
) -> tuple[list[FileRecord], dict[str, Any]]:
    """Fit second stage, pool and calibration; return the readout's files and facts."""
    count, fitted = settings.readout.folds, len(rows.labels)
    first = FirstStage.from_arrays(fit.where.read_arrays(fit.models)).single(count)
    priors = fit.priors[:count]
    second, held, chosen = conclude(rows, len(classes), linear, trees, priors)
    kind = settings.readout.calibration
    calibration = fit_calibration(kind, held, rows.labels, PRIOR_ROWS, rows.weights)
    saved = SavedPlus(first, second, calibration, prior, index, settings.seed)
    constant = -np.log(priors[rows.folds, rows.labels])
    facts = {
        "classes": classes,
        "prior": prior.tolist(),
        "blocks": list(rows.blocks),
        "method": "xnq+",
        "C": strengths[0],
        "strengths": list(strengths),
        "calibration": kind,
        "folds": count,
        "n_labelled": len(index),
        "n_fitted": fitted,
        "n_judged": fitted,
        "prior_log_loss": float(np.average(constant, weights=rows.weights)),
        **chosen,
        **quality(held, rows.labels, calibration, constant, rows.weights),
    }
    for without in without_scores:
        gain = gain_of_scores(rows, linear, without)
        facts["scores"] = {"columns": settings.columns.scores, "gain": gain}
    files = write_readout(fit.attempt, saved.to_arrays(), calibration, facts)
    return files, facts


def plus_scores(
    client: Client,
    source: Embedded,
    labels: Ints32,
    classes: Sequence[Any],
    settings: Settings,
    attempt: Attempt,
    groups: Ints32 | None = None,
) -> PlusScores:
    """Score every node by xnq+ fitted to `labels`, without changing any stage.

    Can be called repeatedly on one embedding with different labels. Parameters are
    fields of `ReadoutWork`, and errors are those of `fit_plus`; files of `attempt` can
    be deleted afterwards. The client holds N x C float32.
    """
    fitted = fit_plus(
        ReadoutWork(client, source, labels, classes, settings, attempt, groups=groups)
    )
    where = Stage(attempt.folder, "readout")
    futures = [
        client.submit(partition_logits, part, where, fitted.readout, record, pure=False)
        for part, record in zip(fitted.parts, fitted.features, strict=True)
    ]
    own, logits = np.empty((2, len(labels), len(classes)), np.float32)
    for index, *of_part in gather(client, futures):
        own[index], logits[index] = of_part
    by_group = None
    if fitted.held is not None:
        arrays = where.read_arrays(fitted.held)
        by_group = arrays["index"], arrays["posterior"]
    return PlusScores(logits, own, by_group, fitted.facts)
