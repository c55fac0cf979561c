"""The readout of xnq+: nested folds, first stages of blocks, a second stage, a pool.

One task joins the rows of the labelled nodes that models are fitted to; label features
count all labels, and everything else stays in files of the stage, one per partition.
`variants` defines the hidden folds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from xnq_dist.core.arrays import Floats, Floats32, Ints
from xnq_dist.core.settings import Settings
from xnq_dist.core.store import Attempt, FileRecord, Stage
from xnq_dist.core.waiting import gather, result
from xnq_dist.readout.calibration import fit_calibration
from xnq_dist.readout.diagnostics import quality
from xnq_dist.readout.folds import check_counts
from xnq_dist.readout.plus.cross import CrossFit, Folding, group_folding
from xnq_dist.readout.plus.first_stage import GRID, FirstStage
from xnq_dist.readout.plus.label_features import Around
from xnq_dist.readout.plus.plus_model import SavedPlus, partition_logits
from xnq_dist.readout.plus.second_stage import KINDS, SecondRows, conclude, fit_kind
from xnq_dist.readout.plus.trees import BoostedTrees
from xnq_dist.readout.plus.variants import node_folds
from xnq_dist.readout.saved import flat
from xnq_dist.readout.work import Fitted, ReadoutWork, to_fit

__all__ = ["MIN_FOR_TREES", "PRIOR_ROWS", "PlusScores", "fit", "plus_scores"]

PRIOR_ROWS = 2.0
"""Strength of the priors of the calibration, in rows."""
MIN_FOR_TREES = 100
"""Minimum number of labelled rows for trees: a leaf holds at least 40."""


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
    x, folding = work.gather(index), Folding(fold_of, index, work.attempt)
    crossed = CrossFit.of(work, folding, x, grids, True)
    held, others = [], group_folding(work, index)
    if others is not None:
        at = np.searchsorted(index, others.fitted)
        of_groups = work.submit(np.take, x, at, 0)
        chosen = [(C,) for C in crossed.strengths]
        grouped = CrossFit.of(work, others, of_groups, chosen, False)
        options = others.fitted, readout.calibration, work.threads, work.attempt
        task = work.submit(_write_held, grouped.rows, grouped.around, *options)
        held.append(result(work.client, task))
        grouped.delete(features=True)
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
    record, facts = result(work.client, work.submit(_finish, crossed.rows, *saved))
    # The readout has a copy of the models in use.
    crossed.delete(features=False)
    facts |= {
        "classes": classes,
        "prior": (weighed / weighed.sum()).tolist(),
        "C": crossed.strengths[0],
        "strengths": crossed.strengths,
    }
    return [record, *crossed.features, *held], facts


def scaled_weights(weights: Floats, shown: Ints) -> Floats:
    """Scale weights so that their sum over the labelled nodes is the effective number.

    That is ``(sum w)^2 / sum w^2``, the number of equally weighted labels with the same
    information.
    """
    used = weights[shown]
    factor = used.sum() / (used**2).sum()
    # Equal weights need no memory of their own (`stage.fit_readout`).
    return weights if factor == 1.0 else np.asarray(weights * factor)


def _write_held(
    rows: SecondRows,
    around: Around,
    index: Ints,
    calibration: str,
    threads: int,
    attempt: Attempt,
) -> FileRecord:
    """Write the canonical `index` of labelled nodes and their `posterior`; one task."""
    priors = around.priors[: rows.count]
    _, held, _ = conclude(rows, {}, priors, threads)
    fitted = fit_calibration(calibration, held, rows.labels, PRIOR_ROWS, rows.weights)
    posterior = fitted.apply(held)
    return attempt.write_arrays("held", index=index, posterior=posterior)


def _finish(
    rows: SecondRows,
    trees: Mapping[str, Sequence[tuple[BoostedTrees, Floats]]],
    around: Around,
    index: Ints,
    settings: Settings,
    threads: int,
    attempt: Attempt,
) -> tuple[FileRecord, dict[str, Any]]:
    """Fit second stage, pool and calibration; return the readout's file and facts."""
    # The variants that hide a single fold.
    first, single = around.first_stage(), slice(rows.count)
    first = FirstStage(first.blocks, first.coef[single], first.intercept[single])
    priors = around.priors[single]
    second, held, facts = conclude(rows, trees, priors, threads)
    kind = settings.readout.calibration
    calibration = fit_calibration(kind, held, rows.labels, PRIOR_ROWS, rows.weights)
    saved = SavedPlus(first, second, calibration, index, settings.seed)
    constant = -np.log(priors[rows.folds, rows.labels])
    facts |= {
        "method": "xnq+",
        "calibration": kind,
        "n_labelled": len(index),
        "n_fitted": len(rows.labels),
        **quality(calibration.apply(held), rows.labels, constant, rows.weights),
    }
    if "gain_of_scores" in facts:
        gain = facts.pop("gain_of_scores")
        facts["scores"] = {"columns": settings.columns.scores, "gain": gain}
    return attempt.write_arrays("readout", **flat(vars(saved))), facts


def plus_scores(work: ReadoutWork) -> PlusScores:
    """Score every node by xnq+ fitted to the labels, without changing any stage.

    Can be called repeatedly on one embedding with different labels. Errors are those of
    `fit`; files of the attempt can be deleted afterwards. The client holds N x C
    float32.
    """
    (readout, *files), facts = fit(work)
    where, count = Stage(work.attempt.folder, "readout"), len(work.parts)
    tasks = [
        work.submit(partition_logits, part, where, readout, features)
        for part, features in zip(work.parts, files[:count], strict=True)
    ]
    own, logits = np.empty((2, len(work.labels), len(work.classes)), np.float32)
    for index, *of_part in gather(work.client, tasks):
        own[index], logits[index] = of_part
    by_group = None
    for held in files[count:]:
        arrays = where.read_arrays(held)
        by_group = arrays["index"], arrays["posterior"]
    return PlusScores(logits, own, by_group, facts)
