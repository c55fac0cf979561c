"""Posteriors of a partition's rows from its embeddings; pure functions of arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xnq_dist.readout.calibration import Calibration
from xnq_dist.readout.fit import FittedReadout
from xnq_dist.readout.logistic import LinearModel, decision

__all__ = ["SavedReadout", "posteriors"]


@dataclass(frozen=True, eq=False)
class SavedReadout:
    """What is kept of a readout: enough to use it again on the same embedding."""

    model: LinearModel
    fold_models: tuple[LinearModel, ...]
    calibration: Calibration
    prior: NDArray[np.float64]
    """Class proportions that the posteriors stand for, shape (C,)."""
    index: NDArray[np.int64]
    """Canonical index of the labelled nodes, ascending, shape (n,)."""
    folds: NDArray[np.int32]
    """Fold of each labelled node, -1 for none, shape (n,)."""
    held_out: NDArray[np.int64]
    """Places in `index` of the nodes whose own label is not behind their logits."""
    held_out_logits: NDArray[np.float64]
    """Shape (len(held_out), C)."""
    held_out_posteriors: NDArray[np.float32]
    """Calibrated, shape (len(held_out), C)."""

    @classmethod
    def of(cls, fitted: FittedReadout, index: NDArray[np.int64]) -> SavedReadout:
        """From a fit to the nodes with these canonical indexes."""
        return cls(
            fitted.model,
            fitted.fold_models,
            fitted.calibration,
            fitted.prior,
            index,
            fitted.folds,
            fitted.held_out,
            fitted.held_out_logits,
            fitted.held_out_posteriors,
        )

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Arrays for an npz file; `from_arrays` reads them."""
        models = (self.model, *self.fold_models)
        return {
            "coef": np.stack([model.coef for model in models]),
            "intercept": np.stack([model.intercept for model in models]),
            "converged": np.array([model.converged for model in models]),
            "strength": np.array(self.model.strength),
            "prior": self.prior,
            "index": self.index,
            "folds": self.folds,
            "held_out": self.held_out,
            "held_out_logits": self.held_out_logits,
            "held_out_posteriors": self.held_out_posteriors,
            **self.calibration.to_arrays(),
        }

    @classmethod
    def from_arrays(cls, arrays: dict[str, NDArray[Any]]) -> SavedReadout:
        """The readout whose `to_arrays` these are."""
        model, *fold_models = (
            LinearModel(coef, intercept, float(arrays["strength"]), bool(converged))
            for coef, intercept, converged in zip(
                arrays["coef"], arrays["intercept"], arrays["converged"], strict=True
            )
        )
        names = ("prior", "index", "folds", "held_out", "held_out_logits")
        return cls(
            model=model,
            fold_models=tuple(fold_models),
            calibration=Calibration.from_arrays(arrays),
            held_out_posteriors=arrays["held_out_posteriors"],
            **{name: arrays[name] for name in names},
        )


def posteriors(
    x: NDArray[Any],
    index: NDArray[np.int64],
    readout: SavedReadout,
    threads: int = 1,
) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """Posteriors of rows, and whether each is out of fold.

    A labelled node that the readout was not fitted to keeps the posterior it got when
    it was held out: with cross-fitting every labelled node, with roles all but the
    training nodes.

    Parameters
    ----------
    x
        Embeddings, float32 or float16, shape (m, d').
    index
        Canonical index of the rows, shape (m,).
    readout
        The readout fitted to this embedding.
    threads
        Blocks of rows worked on at a time.

    Returns
    -------
    tuple
        Posteriors, float32, shape (m, C), and out-of-fold flags, bool, shape (m,).
    """
    found = readout.calibration.apply(decision(readout.model, x, threads))
    held = readout.index[readout.held_out]
    out_of_fold = np.zeros(len(index), bool)
    if len(held):
        at = np.minimum(np.searchsorted(held, index), len(held) - 1)
        out_of_fold = held[at] == index
        found[out_of_fold] = readout.held_out_posteriors[at[out_of_fold]]
    return found, out_of_fold
