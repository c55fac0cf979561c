"""How good held-out posteriors are: figures for manifests and reports."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from xnq_dist.readout.calibration import Calibration
from xnq_dist.readout.logistic import row_losses

__all__ = ["quality"]

BINS = 10
"""Bins of the reliability curve."""


def quality(
    logits: NDArray[np.float64],
    labels: NDArray[np.int32],
    calibration: Calibration,
    weights: NDArray[np.float64] | None = None,
) -> dict[str, Any]:
    """Log-loss before and after calibration, accuracy, reliability of the last class.

    Bins are equally wide in the calibrated posterior; an empty one has no means. With
    weights of the labels, shape (n,), log-losses and accuracy are weighted means.
    """
    if not len(labels):
        empty: dict[str, list[float]] = {"predicted": [], "observed": [], "count": []}
        names = ("log_loss_uncalibrated", "log_loss", "accuracy")
        return {**dict.fromkeys(names), "reliability": empty}

    def mean(values: NDArray[Any]) -> float:
        return float(np.average(values, weights=weights))

    posterior = calibration.apply(logits).astype(np.float64)
    chosen = posterior[np.arange(len(labels)), labels]
    last = posterior[:, -1]
    bins = np.minimum((last * BINS).astype(np.int64), BINS - 1)
    count = np.bincount(bins, minlength=BINS)
    sums = np.bincount(bins, weights=last, minlength=BINS)
    hits = np.bincount(bins[labels == posterior.shape[1] - 1], minlength=BINS)
    return {
        "log_loss_uncalibrated": mean(row_losses(logits, labels)),
        "log_loss": mean(-np.log(chosen)),
        "accuracy": mean(posterior.argmax(axis=1) == labels),
        "reliability": {
            "predicted": [
                float(s / c) if c else None for s, c in zip(sums, count, strict=True)
            ],
            "observed": [
                float(h / c) if c else None for h, c in zip(hits, count, strict=True)
            ],
            "count": count.tolist(),
        },
    }
