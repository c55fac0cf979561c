"""A fitted readout and its posteriors of rows; pure functions of arrays."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xnq_dist.core.arrays import Bools, Floats, Floats32, Ints, Ints32
from xnq_dist.readout.calibration import Calibration
from xnq_dist.readout.logistic import LinearModel, decision

__all__ = ["SavedReadout", "posteriors"]


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
