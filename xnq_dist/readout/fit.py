"""The readout of labelled rows: final model, calibration, diagnostics, posteriors.

Pure functions of arrays and of the fits of the folds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xnq_dist.core.arrays import Bools, Floats, Floats32, Ints, Ints32
from xnq_dist.core.settings import ReadoutSettings
from xnq_dist.readout.calibration import Calibration, fit_calibration
from xnq_dist.readout.diagnostics import quality
from xnq_dist.readout.folds import CALIBRATION, FoldPlan, check_counts
from xnq_dist.readout.logistic import (
    FitJob,
    LinearModel,
    decision,
    fit_jobs,
    warn_of_unconverged,
)
from xnq_dist.readout.objective import Rows
from xnq_dist.readout.regularisation import ChosenC

__all__ = ["SavedReadout", "finish", "posteriors"]


@dataclass(frozen=True, eq=False)
class SavedReadout:
    """A fitted readout, as needed to apply it to the same embedding."""

    model: LinearModel
    """Fitted to all rows (with roles: all training rows)."""
    fold_models: tuple[LinearModel, ...]
    """One fitted without each fold; empty when no fold was needed."""
    calibration: Calibration
    prior: Floats
    """Class proportions that the posteriors are calibrated to, shape (C,)."""
    index: Ints
    """Canonical index of the labelled nodes, ascending, shape (n,)."""
    folds: Ints32
    """Fold of each labelled node, -1 for none, shape (n,)."""
    held_out: Ints
    """Places in `index` of the nodes whose logits are computed without their label."""
    held_out_logits: Floats
    """Shape (len(held_out), C)."""
    held_out_posteriors: Floats32
    """Calibrated, shape (len(held_out), C)."""
    diagnostics: dict[str, Any] = field(default_factory=dict)
    """Facts about the fit, JSON values; not in the file."""

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Return arrays for a file; `from_arrays` reads them."""
        models = (self.model, *self.fold_models)
        return {
            "coef": np.stack([model.coef for model in models]),
            "intercept": np.stack([model.intercept for model in models]),
            "converged": np.array([model.converged for model in models]),
            "strength": np.array(self.model.strength),
            **{name: getattr(self, name) for name in _ARRAYS},
            **self.calibration.to_arrays(),
        }

    @classmethod
    def from_arrays(cls, arrays: dict[str, NDArray[Any]]) -> SavedReadout:
        """Construct from the result of `to_arrays`."""
        model, *fold_models = (
            LinearModel(coef, intercept, float(arrays["strength"]), bool(converged))
            for coef, intercept, converged in zip(
                arrays["coef"], arrays["intercept"], arrays["converged"], strict=True
            )
        )
        kept: dict[str, Any] = {name: arrays[name] for name in _ARRAYS}
        return cls(
            model=model,
            fold_models=tuple(fold_models),
            calibration=Calibration.from_arrays(arrays),
            **kept,
        )


_ARRAYS = (
    *("prior", "index", "folds"),
    *("held_out", "held_out_logits", "held_out_posteriors"),
)


def posteriors(
    x: NDArray[Any], index: Ints, readout: SavedReadout
) -> tuple[Floats32, Bools]:
    """Compute posteriors of rows, (m, C), and whether each is out of fold, (m,).

    Labelled nodes get their held-out posterior: with cross-fitting every labelled node,
    with roles all but the training nodes.
    """
    values = readout.calibration.apply(decision(readout.model, x))
    held = readout.index[readout.held_out]
    out_of_fold = np.zeros(len(index), bool)
    if len(held):
        at = np.minimum(np.searchsorted(held, index), len(held) - 1)
        out_of_fold = held[at] == index
        values[out_of_fold] = readout.held_out_posteriors[at[out_of_fold]]
    return values, out_of_fold


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
