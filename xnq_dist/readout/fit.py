"""The readout of labelled rows: folds, choice of C, calibration, diagnostics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xnq_dist.core.arrays import Floats, Ints, Ints32
from xnq_dist.core.errors import InputError
from xnq_dist.core.settings import ReadoutSettings
from xnq_dist.readout.apply import SavedReadout
from xnq_dist.readout.calibration import fit_calibration
from xnq_dist.readout.diagnostics import quality
from xnq_dist.readout.folds import assign_folds, check_counts
from xnq_dist.readout.logistic import (
    COARSE_GRID,
    GRID,
    FitJob,
    LinearModel,
    decision,
    fit_jobs,
    row_losses,
    warn_of_unconverged,
)
from xnq_dist.readout.objective import Rows
from xnq_dist.readout.regularisation import ChosenC, climb, cross_fit

__all__ = ["FoldPlan", "finish", "grid_of", "out_of_fold_log_loss", "plan_folds"]

TRAIN, CALIBRATION = 0, 1
"""Codes of the roles, in the order of `graph.labels.ROLES`; -1 is none."""


@dataclass(frozen=True, eq=False)
class FoldPlan:
    """Folds of the rows, and the values of C to try."""

    folds: Ints32
    """Fold of each row, -1 for rows that the readout is not fitted to, shape (n,)."""
    count: int
    """Number of folds; 0: C is set and no folds are needed, all fitted rows are in
    fold 0."""
    grid: tuple[float, ...]
    """Ascending values of C."""


def grid_of(settings: ReadoutSettings) -> tuple[float, ...]:
    """Values of C to try by the settings, ascending."""
    return GRID if settings.C == "select" else (settings.C,)


def plan_folds(
    labels: Ints32,
    roles: NDArray[np.int8] | None,
    n_classes: int,
    settings: ReadoutSettings,
    seed: int,
    names: Sequence[Any] | None = None,
) -> FoldPlan:
    """Plan the folds and the grid by the settings.

    Roles are 0 train, 1 calibration, -1 none; None: cross-fit over all rows. `names` of
    the classes are for messages. A class with too few rows is an `InputError`.
    """
    grid = grid_of(settings)
    used = np.ones(len(labels), bool) if roles is None else roles == TRAIN
    what = "labelled" if roles is None else "training"
    counts = np.bincount(labels[used], minlength=n_classes)
    needs_folds = settings.C == "select" or roles is None
    check_counts(counts, 2 if needs_folds else 1, names, what)
    folds = np.where(used, 0, -1).astype(np.int32)
    if not needs_folds:
        return FoldPlan(folds, 0, grid)
    folds[used] = assign_folds(labels[used], settings.folds, seed)
    return FoldPlan(folds, int(folds.max()) + 1, grid)


def finish(
    rows: Rows,
    index: Ints,
    roles: NDArray[np.int8] | None,
    settings: ReadoutSettings,
    plan: FoldPlan,
    chosen: ChosenC,
    names: Sequence[Any] | None = None,
) -> SavedReadout:
    """Finish the readout from its folds: final model, calibration, diagnostics.

    A class without calibration nodes is an `InputError`.
    """
    C, n_classes, labels = plan.grid[chosen.place], rows.n_classes, rows.labels
    used = plan.folds >= 0
    fold_models = tuple(fit.model for fit in chosen.fits)
    start = fold_models[0] if fold_models else None
    (final,) = fit_jobs(rows, [FitJob((), C, start)])
    model = final.model
    warn_of_unconverged((model, *fold_models))
    each = [_held_out_logits(group, fold_models, model) for group in rows.groups()]
    logits = np.concatenate(each)
    held = np.arange(len(labels)) if roles is None else np.flatnonzero(~used)
    calibrating = held if roles is None else np.flatnonzero(roles == CALIBRATION)
    truth = labels[calibrating]
    if settings.calibration != "none" and roles is not None:
        counts = np.bincount(truth, minlength=n_classes)
        check_counts(counts, 1, names, "calibration")
    calibration = fit_calibration(settings.calibration, logits[calibrating], truth)
    judged = calibrating
    if not len(judged) and fold_models:
        judged = np.flatnonzero(used)
    judged_labels = labels[judged]
    # Biases adapt posteriors to the proportions of the labels they are fitted to;
    # without biases posteriors keep the proportions that the readout was fitted to.
    moves_prior = settings.calibration in ("bcts", "platt", "platt_logit")
    prior_labels = truth if moves_prior else labels[used]
    prior = np.bincount(prior_labels, minlength=n_classes) / len(prior_labels)
    share = np.bincount(judged_labels, minlength=n_classes) / max(len(judged), 1)
    constant = -np.log(share[judged_labels])
    return SavedReadout(
        model=model,
        fold_models=fold_models,
        folds=plan.folds if plan.count else np.full_like(plan.folds, -1),
        calibration=calibration,
        prior=prior,
        index=index,
        held_out=held.astype(np.int64),
        held_out_logits=logits[held],
        held_out_posteriors=calibration.apply(logits[held]),
        diagnostics={
            "C": C,
            "calibration": settings.calibration,
            "folds": plan.count,
            "n_fitted": int(used.sum()),
            "n_judged": len(judged),
            "strengths": [
                {"C": plan.grid[place], "log_loss": loss / int(used.sum())}
                for place, loss in chosen.losses.items()
            ],
            "converged": all(m.converged for m in (model, *fold_models)),
            **quality(logits[judged], judged_labels, calibration, constant),
        },
    )


def _held_out_logits(
    group: Rows, fold_models: Sequence[LinearModel], model: LinearModel
) -> Floats:
    """Logits of rows by the model without their fold; by `model` if they have no fold.

    NaN for rows that all models were fitted to.
    """
    logits = np.full((len(group.folds), len(model.coef)), np.nan)
    for fold, without in (*enumerate(fold_models), (-1, model)):
        rows = group.folds == fold
        logits[rows] = decision(without, group.x[rows])
    return logits


def out_of_fold_log_loss(
    x: NDArray[Any],
    labels: Ints32,
    n_classes: int,
    folds: int,
    grid: Sequence[float] = COARSE_GRID,
    seed: int = 0,
) -> tuple[float, float, float]:
    """Lowest mean out-of-fold log-loss over a grid of C, its standard error, and the C.

    The folds are the same for every `x` of the same labels in canonical order.
    """
    check_counts(np.bincount(labels, minlength=n_classes), 2)
    if not len(grid):
        raise InputError("the grid of C is empty: list at least one value")
    assigned = assign_folds(labels, folds, seed)
    count, ascending = int(assigned.max()) + 1, sorted(grid)
    rows = Rows.of(x, labels, assigned, n_classes)
    (chosen,) = cross_fit([ascending], count, climb, partial(fit_jobs, rows))
    losses = np.empty(len(labels))
    for fold, fit in enumerate(chosen.fits):
        held = assigned == fold
        losses[held] = row_losses(decision(fit.model, x[held]), labels[held])
    error = float(losses.std(ddof=1) / np.sqrt(len(losses)))
    return float(losses.mean()), error, ascending[chosen.place]
