"""The readout of xnq+: nested folds, first stages of blocks, a second stage, a pool.

One task joins the rows of the labelled nodes that models are fitted to; label features
count all labels, and everything else stays in files of the stage, one per partition.
`first_stage` defines the hidden folds.

Posteriors of labelled nodes by models that no label of their group was fitted to
measure the error of posteriors in groups without labels. Their models are first stages
alone, with complete groups as folds: most neighbours of a node are in its group, so
hardly a label is left around it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from xnq_dist.core.arrays import Floats, Ints, Ints32
from xnq_dist.core.settings import Settings
from xnq_dist.core.store import Attempt, FileRecord
from xnq_dist.core.waiting import result
from xnq_dist.readout.calibration import PRIOR_ROWS, fit_calibration, quality
from xnq_dist.readout.folds import check_counts
from xnq_dist.readout.logistic import log_shares
from xnq_dist.readout.plus.cross import cross_fit_stages
from xnq_dist.readout.plus.first_stage import FirstStage, block_rows, columns_of
from xnq_dist.readout.plus.label_features import Around
from xnq_dist.readout.plus.plus_model import SavedPlus
from xnq_dist.readout.plus.second_stage import (
    KINDS,
    SecondRows,
    conclude,
    fit_kind,
    pool_weights,
    pooled,
)
from xnq_dist.readout.plus.trees import BoostedTrees
from xnq_dist.readout.regularisation import climb, cross_fit
from xnq_dist.readout.saved import flat
from xnq_dist.readout.stage import Fitted, ReadoutWork, to_fit

if TYPE_CHECKING:
    from distributed import Future

__all__ = ["fit"]

MIN_FOR_TREES = 100
"""Minimum number of labelled rows for trees: a leaf holds at least 40."""


def fit(work: ReadoutWork) -> Fitted:
    """Fit the readout of xnq+; return its files and facts.

    Files are the readout (`SavedPlus`), label features of each partition and, with
    groups, posteriors by models fitted without labels of a node's group. Roles are not
    used. Weights are scaled so that their sum is the effective number of labels.

    Raises
    ------
    InputError
        When a class has fewer than two labels.
    DoesNotFitError
        When ``readout.memory`` is too small for enough labelled rows.
    """
    settings, labels, classes = work.settings, work.labels, list(work.classes)
    shown = np.flatnonzero(labels >= 0)
    counts = np.bincount(labels[shown], minlength=len(classes))
    check_counts(counts, 2, classes)
    weighed = counts.astype(np.float64)
    work = replace(work, weights=scaled_weights(work.weights, shown))
    np.add.at(weighed, labels[shown], work.weights[shown] - 1.0)
    index, readout = to_fit(labels, sum(work.source.blocks), settings), settings.readout
    x = work.gather(index)
    around, features, strengths, rows = cross_fit_stages(work, index, x)
    held = _held_groups(work, index, x, strengths)
    trees: dict[str, Any] = {}
    if len(index) >= MIN_FOR_TREES:
        trees = {
            kind: [
                work.submit(fit_kind, rows, kind, fold) for fold in range(readout.folds)
            ]
            for kind in KINDS
        }
        work.watch("trees", [task for folds in trees.values() for task in folds])
    saved = trees, around, shown, settings, work.threads, work.attempt
    task = work.submit(_finish, rows, *saved)
    record, facts = result(work.client, task)
    facts |= {
        "classes": classes,
        "prior": (weighed / weighed.sum()).tolist(),
        "C": strengths[0],
    }
    files = [record, *features, *held]
    # Labels and models: the readout has the models in use.
    for name in set(work.attempt.names()) - {file.name for file in files}:
        work.attempt.delete(name)
    return files, facts


def scaled_weights(weights: Floats, shown: Ints) -> Floats:
    """Scale weights so that their sum over the labelled nodes is the effective number.

    That is ``(sum w)^2 / sum w^2``, the number of equally weighted labels with the same
    information.
    """
    used = weights[shown]
    factor = used.sum() / (used**2).sum()
    # Equal weights need no memory of their own (`stage.fit_readout`).
    return weights if factor == 1.0 else weights * factor


def _finish(
    rows: SecondRows,
    trees: Mapping[str, Sequence[tuple[BoostedTrees, Floats]]],
    around: Around,
    index: Ints,
    settings: Settings,
    threads: int,
    attempt: Attempt,
) -> tuple[FileRecord, dict[str, Any]]:
    """Fit regressions, pool and calibration; return the readout's file and facts."""
    # The variants that hide a single fold.
    first, single = around.first_stage(), slice(rows.count)
    first = FirstStage(first.blocks, first.coef[single], first.intercept[single])
    second, held, facts = conclude(rows, around.priors[single], trees, threads)
    kind = settings.readout.calibration
    calibration = fit_calibration(kind, held, rows.labels, PRIOR_ROWS, rows.weights)
    saved = SavedPlus(first, second, calibration, index, settings.seed)
    constant = -np.log(second.priors[rows.folds, rows.labels])
    facts |= {
        "n_labelled": len(index),
        "n_fitted": len(rows.labels),
        **quality(calibration.apply(held), rows.labels, constant, rows.weights),
    }
    if rows.provided:
        facts["scores"]["columns"] = settings.columns.scores
    return attempt.write_arrays("readout", **flat(vars(saved))), facts


def _held_groups(
    work: ReadoutWork, index: Ints, x: Future[Any], strengths: Sequence[float]
) -> list[FileRecord]:
    """Write the posteriors of the fitted nodes `index`, whose embeddings are `x`.

    `strengths` has C of each block. Nothing is written where there are no groups, or
    fewer with labels than folds.
    """
    count, groups = work.settings.readout.folds, work.groups
    if groups is None or len(np.unique(groups[index])) < count:
        return []
    folds = _group_folds(groups[index], count)
    known = index, work.labels[index], folds, work.weights[index], len(work.classes)
    blocks, kind = work.source.blocks, work.settings.readout.calibration
    options = blocks, strengths, kind, work.threads, work.attempt
    return [result(work.client, work.submit(_write_held, x, *known, *options))]


def _group_folds(groups: Ints32, count: int) -> Ints32:
    """Fold of each row by its group: the largest first, each to the emptiest fold.

    Examples
    --------
    >>> _group_folds(np.repeat([0, 1, 2, 3], [4, 3, 2, 1]), 2).tolist()
    [0, 0, 0, 0, 1, 1, 1, 1, 1, 0]
    """
    sizes = np.bincount(groups)
    folds, rows = np.zeros(len(sizes), np.int32), np.zeros(count)
    for group in np.argsort(-sizes, kind="stable"):
        folds[group] = np.argmin(rows)
        rows[folds[group]] += sizes[group]
    return folds[groups]


def _write_held(
    x: NDArray[Any],
    index: Ints,
    labels: Ints32,
    folds: Ints32,
    weights: Floats,
    n_classes: int,
    blocks: Sequence[int],
    strengths: Sequence[float],
    calibration: str,
    threads: int,
    attempt: Attempt,
) -> FileRecord:
    """Write the canonical `index` of labelled nodes and their `posterior`; one task.

    Their embeddings are `x`, their folds complete groups.
    """
    parts = np.empty((len(blocks), len(index), n_classes))
    for at, columns in enumerate(columns_of(blocks)):
        rows = block_rows(x[:, columns], labels, folds, weights, n_classes)
        each = [rows] * len(rows.moments.counts)
        _, logits = cross_fit(each, (strengths[at],), climb, threads)
        parts[at] = log_shares(logits)
    held = pooled(parts, pool_weights(parts, labels, weights))
    fitted = fit_calibration(calibration, held, labels, PRIOR_ROWS, weights)
    return attempt.write_arrays("held", index=index, posterior=fitted.apply(held))
