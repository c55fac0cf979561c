"""The readout of xnq+: nested folds, first stages of blocks, a second stage, a pool.

One task joins the rows of the labelled nodes that models are fitted to; label features
count all labels, and everything else stays in files of the stage, one per partition.
`variants` defines the hidden folds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from xnq_dist.core.arrays import Floats, Ints
from xnq_dist.core.settings import Settings
from xnq_dist.core.store import Attempt, FileRecord
from xnq_dist.core.waiting import result
from xnq_dist.readout.calibration import PRIOR_ROWS, fit_calibration
from xnq_dist.readout.diagnostics import quality
from xnq_dist.readout.folds import check_counts
from xnq_dist.readout.plus.cross import cross_fit_stages
from xnq_dist.readout.plus.first_stage import FirstStage
from xnq_dist.readout.plus.held_groups import held_groups
from xnq_dist.readout.plus.label_features import Around
from xnq_dist.readout.plus.plus_model import SavedPlus
from xnq_dist.readout.plus.second_stage import (
    KINDS,
    SecondRows,
    conclude,
    fit_kind,
)
from xnq_dist.readout.plus.trees import BoostedTrees
from xnq_dist.readout.saved import flat
from xnq_dist.readout.work import Fitted, ReadoutWork, to_fit

__all__ = ["MIN_FOR_TREES", "fit"]

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
    crossed = cross_fit_stages(work, index, x)
    held = held_groups(work, index, x, crossed.strengths)
    trees: dict[str, Any] = {}
    if len(index) >= MIN_FOR_TREES:
        trees = {
            kind: [
                work.submit(fit_kind, crossed.rows, kind, fold)
                for fold in range(readout.folds)
            ]
            for kind in KINDS
        }
        work.watch("trees", [task for folds in trees.values() for task in folds])
    saved = trees, crossed.around, shown, settings, work.threads, work.attempt
    task = work.submit(_finish, crossed.rows, *saved)
    record, facts = result(work.client, task)
    facts |= {
        "classes": classes,
        "prior": (weighed / weighed.sum()).tolist(),
        "C": crossed.strengths[0],
        "strengths": crossed.strengths,
    }
    files = [record, *crossed.features, *held]
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
        "method": "xnq+",
        "calibration": kind,
        "n_labelled": len(index),
        "n_fitted": len(rows.labels),
        **quality(calibration.apply(held), rows.labels, constant, rows.weights),
    }
    if rows.provided:
        facts["scores"]["columns"] = settings.columns.scores
    return attempt.write_arrays("readout", **flat(vars(saved))), facts
