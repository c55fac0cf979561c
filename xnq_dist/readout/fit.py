"""The readout of labelled rows: folds, choice of C, calibration, diagnostics.

Pure functions of arrays. One fold is one unit of work, so that folds can run side by
side on any kind of map.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xnq_dist.errors import InputError
from xnq_dist.readout.calibration import Calibration, fit_calibration
from xnq_dist.readout.diagnostics import quality
from xnq_dist.readout.folds import assign_folds, check_counts
from xnq_dist.readout.logistic import (
    COARSE_GRID,
    GRID,
    LinearModel,
    decision,
    fit,
    row_losses,
    solver_guard,
)
from xnq_dist.sections import ReadoutSettings

__all__ = [
    "FittedReadout",
    "FoldFit",
    "FoldPlan",
    "climb",
    "conclude",
    "finish",
    "fit_fold",
    "fit_readout_arrays",
    "grid_of",
    "out_of_fold_log_loss",
    "plan_folds",
]

TRAIN, CALIBRATION = 0, 1
"""Codes of the roles, in the order of `graph.labels.ROLES`; -1 is none."""
PATIENCE = 2
"""Steps without a new low after which the search of C stops."""


@dataclass(frozen=True, eq=False)
class FoldPlan:
    """Which row is in which fold, and the values of C to try."""

    folds: NDArray[np.int32]
    """Fold of each row, -1 for rows that the readout is not fitted to, shape (n,)."""
    count: int
    """Number of folds; 0: C is given and no fold is needed."""
    grid: tuple[float, ...]
    """Ascending values of C."""
    backend: str = "cpu"
    """What fits: ``cpu`` or ``gpu``."""


@dataclass(frozen=True, eq=False)
class FoldFit:
    """One fold at one C: a model of the other folds' rows, the logits of its own."""

    held: NDArray[np.int64]
    """Rows of the fold, ascending, shape (m,)."""
    model: LinearModel
    logits: NDArray[np.float64]
    """Of the fold's own rows, shape (m, C)."""
    loss: float
    """Sum of the log-losses of the fold's own rows."""


@dataclass(frozen=True, eq=False)
class FittedReadout:
    """A readout with its calibration, and what is known of its quality.

    Rows are numbered as in the labelled arrays that it was fitted to.
    """

    model: LinearModel
    """Of all rows (with roles: all training rows)."""
    fold_models: tuple[LinearModel, ...]
    """One without each fold; empty when no fold was needed."""
    folds: NDArray[np.int32]
    """Fold of each row, -1 for rows that no model was fitted to, shape (n,)."""
    calibration: Calibration
    prior: NDArray[np.float64]
    """Class proportions that the calibrated posteriors stand for, shape (C,)."""
    held_out: NDArray[np.int64]
    """Rows whose label had no part in the model behind their logits, ascending."""
    held_out_logits: NDArray[np.float64]
    """Shape (len(held_out), C)."""
    held_out_posteriors: NDArray[np.float32]
    """Calibrated, shape (len(held_out), C)."""
    diagnostics: dict[str, Any]
    """Figures for manifests and reports, JSON values."""


def grid_of(settings: ReadoutSettings) -> tuple[float, ...]:
    """Values of C that the settings ask to try, ascending."""
    return GRID if settings.C == "select" else (settings.C,)


def plan_folds(
    labels: NDArray[np.int32],
    roles: NDArray[np.int8] | None,
    n_classes: int,
    settings: ReadoutSettings,
    seed: int,
    names: Sequence[Any] | None = None,
) -> FoldPlan:
    """The folds and the grid that the settings ask for.

    Parameters
    ----------
    labels
        Class codes in canonical order, shape (n,).
    roles
        0 train, 1 calibration, -1 none, shape (n,); None: cross-fit over all rows.
    n_classes
        Number of classes.
    settings
        The section ``readout``.
    seed
        Seed of the run.
    names
        The classes' names by code, for messages.

    Raises
    ------
    InputError
        When a class has too few rows.
    """
    grid = grid_of(settings)
    used = np.ones(len(labels), bool) if roles is None else roles == TRAIN
    what = "labelled" if roles is None else "training"
    counts = np.bincount(labels[used], minlength=n_classes)
    needs_folds = settings.C == "select" or roles is None
    check_counts(counts, 2 if needs_folds else 1, names, what)
    folds = np.full(len(labels), -1, np.int32)
    if not needs_folds:
        return FoldPlan(folds, 0, grid)
    folds[used] = assign_folds(labels[used], settings.folds, seed)
    return FoldPlan(folds, int(folds.max()) + 1, grid)


def fit_fold(
    x: NDArray[Any],
    labels: NDArray[np.int32],
    plan: FoldPlan,
    n_classes: int,
    C: float,
    fold: int,
    before: FoldFit | None = None,
) -> FoldFit:
    """Fit the rows of the other folds: the unit of work.

    Parameters
    ----------
    x
        Embeddings, any float type, shape (n, d').
    labels
        Class codes, shape (n,).
    plan
        The folds.
    n_classes
        Number of classes.
    C
        Inverse L2 strength.
    fold
        The fold that is left out.
    before
        The same fold at the C before, to start from.
    """
    train = np.flatnonzero((plan.folds >= 0) & (plan.folds != fold))
    held = np.flatnonzero(plan.folds == fold)
    start = None if before is None else before.model
    with solver_guard():
        rows = x[train], labels[train]
        model = fit(*rows, n_classes, C, start, rough=True, backend=plan.backend)
        logits = decision(model, x[held])
    loss = float(row_losses(logits, labels[held]).sum())
    return FoldFit(held, model, logits, loss)


def climb(
    grid: Sequence[float], fit_all: Callable[[float], Sequence[float]]
) -> tuple[int, list[float]]:
    """Go up the grid until the loss over all folds has no new low for `PATIENCE` steps.

    Parameters
    ----------
    grid
        Ascending values of C.
    fit_all
        From C to the loss of each fold; called in the order of the grid.

    Returns
    -------
    tuple
        Place of the least loss, and the summed loss of each place tried.
    """
    losses: list[float] = []
    best = 0
    for place, C in enumerate(grid):
        # The order of the sum is that of the folds, whichever is done first.
        losses.append(sum(fit_all(C)))
        if losses[place] < losses[best]:
            best = place
        if place - best >= PATIENCE:
            break
    return best, losses


def fit_readout_arrays(
    x: NDArray[Any],
    labels: NDArray[np.int32],
    roles: NDArray[np.int8] | None,
    n_classes: int,
    settings: ReadoutSettings,
    seed: int,
    map: Callable[..., Iterable[FoldFit]] = map,  # noqa: A002
) -> FittedReadout:
    """Fit, select C, calibrate.

    Parameters
    ----------
    x
        Embeddings of the labelled nodes in canonical order, shape (n, d').
    labels
        Class codes, shape (n,).
    roles
        0 train, 1 calibration, -1 none, shape (n,); None: cross-fit over all rows.
    n_classes
        Number of classes.
    settings
        The section ``readout``.
    seed
        Seed of the run; it decides the folds.
    map
        What runs the folds, as the built-in `map`.

    Raises
    ------
    InputError
        When a class has too few rows for what is asked.
    """
    plan = plan_folds(labels, roles, n_classes, settings, seed)
    fits, place, losses = _search(x, labels, plan, n_classes, map)
    return finish(x, labels, roles, n_classes, settings, plan, fits, place, losses)


def _search(
    x: NDArray[Any],
    labels: NDArray[np.int32],
    plan: FoldPlan,
    n_classes: int,
    map: Callable[..., Iterable[FoldFit]],  # noqa: A002
) -> tuple[list[FoldFit], int, list[float]]:
    """All folds at the best C, its place in the grid, the losses."""
    if not plan.count:
        return [], 0, []
    tried: list[list[FoldFit]] = []

    def fit_all(C: float) -> list[float]:
        before = tried[-1] if tried else [None] * plan.count
        work = partial(fit_fold, x, labels, plan, n_classes, C)
        tried.append(list(map(work, range(plan.count), before)))
        return [fold.loss for fold in tried[-1]]

    best, losses = climb(plan.grid, fit_all)
    return tried[best], best, losses


def finish(
    x: NDArray[Any],
    labels: NDArray[np.int32],
    roles: NDArray[np.int8] | None,
    n_classes: int,
    settings: ReadoutSettings,
    plan: FoldPlan,
    fits: Sequence[FoldFit],
    place: int,
    losses: Sequence[float],
    names: Sequence[Any] | None = None,
) -> FittedReadout:
    """The readout from its folds: final model, calibration, diagnostics.

    Parameters
    ----------
    x, labels, roles, n_classes, settings
        As for `fit_readout_arrays`.
    plan
        Folds and grid.
    fits
        Every fold at the chosen C, in order.
    place
        Place of the chosen C in the grid.
    losses
        Summed out-of-fold log-loss of each C tried.
    names
        The classes' names by code, for messages.

    Raises
    ------
    InputError
        When there is nothing to calibrate on.
    """
    used = np.ones(len(labels), bool) if roles is None else roles == TRAIN
    start = fits[0].model if fits else None
    model = fit(
        x[used], labels[used], n_classes, plan.grid[place], start, backend=plan.backend
    )
    outside = decision(model, x[~used])
    return conclude(
        labels,
        roles,
        n_classes,
        settings,
        plan,
        fits,
        place,
        losses,
        (model, outside),
        names,
    )


def conclude(
    labels: NDArray[np.int32],
    roles: NDArray[np.int8] | None,
    n_classes: int,
    settings: ReadoutSettings,
    plan: FoldPlan,
    fits: Sequence[FoldFit],
    place: int,
    losses: Sequence[float],
    final: tuple[LinearModel, NDArray[np.float64]],
    names: Sequence[Any] | None = None,
) -> FittedReadout:
    """`finish` once the final model is there.

    Parameters
    ----------
    final
        The model of all rows (with roles: all training rows), and the logits of the
        other rows, in order.
    """
    C = plan.grid[place]
    used = np.ones(len(labels), bool) if roles is None else roles == TRAIN
    model, outside = final
    out_of_fold = np.full((len(labels), n_classes), np.nan)
    for fold in fits:
        out_of_fold[fold.held] = fold.logits
    if roles is None:
        held = calibrating = np.arange(len(labels))
        held_logits = out_of_fold
    else:
        held = np.flatnonzero(~used)
        calibrating = np.flatnonzero(roles == CALIBRATION)
        held_logits = outside
    logits = held_logits[np.searchsorted(held, calibrating)]
    truth = labels[calibrating]
    if settings.calibration != "none" and roles is not None:
        counts = np.bincount(truth, minlength=n_classes)
        check_counts(counts, 1, names, "calibration")
    calibration = fit_calibration(settings.calibration, logits, truth)
    judged, judged_labels = logits, truth
    if not len(calibrating) and fits:
        judged, judged_labels = out_of_fold[used], labels[used]
    # Biases take in the proportions of the labels they were fitted to; a temperature,
    # or nothing, leaves the proportions that the readout itself was fitted to.
    moves_prior = settings.calibration in ("bcts", "platt", "platt_logit")
    standing = truth if moves_prior else labels[used]
    prior = np.bincount(standing, minlength=n_classes) / len(standing)
    fold_models = tuple(fold.model for fold in fits)
    share = np.bincount(judged_labels, minlength=n_classes) / max(len(judged_labels), 1)
    constant = -np.log(share[judged_labels])
    return FittedReadout(
        model=model,
        fold_models=fold_models,
        folds=plan.folds,
        calibration=calibration,
        prior=prior,
        held_out=held.astype(np.int64),
        held_out_logits=held_logits,
        held_out_posteriors=calibration.apply(held_logits),
        diagnostics={
            "C": C,
            "calibration": settings.calibration,
            "folds": plan.count,
            "n_labelled": len(labels),
            "n_fitted": int(used.sum()),
            "n_judged": len(judged_labels),
            "strengths": [
                {"C": tried, "log_loss": loss / int((plan.folds >= 0).sum())}
                for tried, loss in zip(plan.grid, losses, strict=False)
            ],
            "converged": all(m.converged for m in (model, *fold_models)),
            **quality(judged, judged_labels, calibration, constant),
        },
    )


def out_of_fold_log_loss(
    x: NDArray[Any],
    labels: NDArray[np.int32],
    n_classes: int,
    folds: int,
    grid: Sequence[float] = COARSE_GRID,
    seed: int = 0,
) -> tuple[float, float, float]:
    """Least mean out-of-fold log-loss over a grid of C, uncalibrated.

    Parameters
    ----------
    x
        Embeddings, shape (n, d').
    labels
        Class codes in canonical order, shape (n,).
    n_classes
        Number of classes.
    folds
        Folds wished for.
    grid
        Values of C.
    seed
        Seed of the run; the same folds for every `x` of the same labels.

    Returns
    -------
    tuple
        The loss, its standard error over the rows, and the C.

    Raises
    ------
    InputError
        When a class has fewer than two rows.
    """
    check_counts(np.bincount(labels, minlength=n_classes), 2)
    if not len(grid):
        raise InputError("the grid of C is empty: give at least one value")
    assigned = assign_folds(labels, folds, seed)
    plan = FoldPlan(assigned, int(assigned.max()) + 1, tuple(sorted(grid)))
    fits, place, _ = _search(x, labels, plan, n_classes, map)
    losses = np.empty(len(labels))
    for fold in fits:
        losses[fold.held] = row_losses(fold.logits, labels[fold.held])
    error = float(losses.std(ddof=1) / np.sqrt(len(losses)))
    return float(losses.mean()), error, plan.grid[place]
