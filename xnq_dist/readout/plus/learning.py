"""The readout of xnq+: nested folds, first stages of blocks, a second stage, a pool.

One task joins the rows of the labelled nodes that models are fitted to; label features
count all labels, and everything else stays in files of the stage, one per partition.
`variants` defines the hidden folds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from xnq_dist.core.arrays import Floats, Ints, Ints32
from xnq_dist.core.settings import Settings
from xnq_dist.core.store import Attempt, FileRecord
from xnq_dist.core.waiting import result
from xnq_dist.readout.calibration import fit_calibration
from xnq_dist.readout.diagnostics import quality
from xnq_dist.readout.folds import check_counts
from xnq_dist.readout.plus.cross import CrossFit, Folding, group_folding
from xnq_dist.readout.plus.first_stage import GRID, FirstStage
from xnq_dist.readout.plus.label_features import Around
from xnq_dist.readout.plus.plus_model import SavedPlus
from xnq_dist.readout.plus.second_stage import (
    KINDS,
    SecondRows,
    SecondStage,
    conclude,
    fit_kind,
    fit_regressions,
    held_out_parts,
    pool_weights,
    pooled,
)
from xnq_dist.readout.plus.trees import BoostedTrees
from xnq_dist.readout.plus.variants import Variants, node_folds
from xnq_dist.readout.saved import flat
from xnq_dist.readout.work import Fitted, ReadoutWork, to_fit

if TYPE_CHECKING:
    from distributed import Future

__all__ = ["MIN_FOR_TREES", "PRIOR_ROWS", "fit"]

PRIOR_ROWS = 2.0
"""Strength of the priors of the calibration, in rows."""
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
    fold_of = partial(node_folds, folds=readout.folds, seed=settings.seed)
    grids = [GRID if readout.C == "select" else (readout.C,)] * len(work.source.blocks)
    x, variants = work.gather(index), Variants(readout.folds)
    folding = Folding(fold_of, index, variants, work.attempt)
    crossed = CrossFit.of(work, folding, x, grids)
    priors = crossed.around.priors[: readout.folds]
    regressions = work.submit(fit_regressions, crossed.rows, priors, work.threads)
    held = _held_groups(work, folding, x, crossed.strengths, regressions)
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
    saved = trees, crossed.around, shown, settings, work.attempt
    task = work.submit(_finish, crossed.rows, regressions, *saved)
    record, facts = result(work.client, task)
    facts |= {
        "classes": classes,
        "prior": (weighed / weighed.sum()).tolist(),
        "C": crossed.strengths[0],
        "strengths": crossed.strengths,
    }
    files = [record, *crossed.features, *held]
    # Labels, models and the groups' features: the readout has the models in use.
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


def _held_groups(
    work: ReadoutWork,
    folding: Folding,
    x: Future[Any],
    strengths: Sequence[float],
    regressions: Future[Any],
) -> list[FileRecord]:
    """Write posteriors of labelled nodes without labels of their group, if any.

    What the labels of a group move in a second stage without trees is little, so it is
    the one that is fitted without each node's own fold.
    """
    groups = group_folding(work, folding.fitted)
    if groups is None:
        return []
    index, folds = groups.fitted, folding.fold_of(groups.fitted)
    of_groups = work.submit(np.take, x, np.searchsorted(folding.fitted, index), 0)
    crossed = CrossFit.of(work, groups, of_groups, [(C,) for C in strengths])
    options = work.settings.readout.calibration, work.attempt
    fitted = crossed.rows, regressions, crossed.around.priors
    task = work.submit(_write_held, *fitted, index, folds, *options)
    return [result(work.client, task)]


def _write_held(
    rows: SecondRows,
    regressions: tuple[SecondStage, Any],
    priors: Floats,
    index: Ints,
    folds: Ints32,
    calibration: str,
    attempt: Attempt,
) -> FileRecord:
    """Write the canonical `index` of labelled nodes and their `posterior`; one task.

    The folds of `rows` are complete groups, `priors` the class shares without these;
    the models are those without each node's fold of `folds`.
    """
    parts = held_out_parts(rows, regressions[0], folds)
    parts[0] = np.log(priors[rows.folds])
    held = pooled(parts, pool_weights(parts, rows.labels, rows.weights))
    fitted = fit_calibration(calibration, held, rows.labels, PRIOR_ROWS, rows.weights)
    return attempt.write_arrays("held", index=index, posterior=fitted.apply(held))


def _finish(
    rows: SecondRows,
    regressions: tuple[SecondStage, dict[str, float] | None],
    trees: Mapping[str, Sequence[tuple[BoostedTrees, Floats]]],
    around: Around,
    index: Ints,
    settings: Settings,
    attempt: Attempt,
) -> tuple[FileRecord, dict[str, Any]]:
    """Fit pool and calibration; return the readout's file and facts."""
    # The variants that hide a single fold.
    first, single = around.first_stage(), slice(rows.count)
    first = FirstStage(first.blocks, first.coef[single], first.intercept[single])
    stage, gain = regressions
    second, held, facts = conclude(rows, stage, trees)
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
        facts["scores"] = {"columns": settings.columns.scores, "gain": gain}
    return attempt.write_arrays("readout", **flat(vars(saved))), facts
