"""Quality of held-out posteriors, for manifests and reports."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from xnq_dist.core.arrays import Bools, Floats, Ints32
from xnq_dist.readout.calibration import Calibration
from xnq_dist.readout.logistic import row_losses

__all__ = ["quality", "skill"]

BINS = 10
"""Bins of the reliability curve."""


def quality(
    logits: Floats,
    labels: Ints32,
    calibration: Calibration,
    constant: Floats,
    weights: Floats | None = None,
) -> dict[str, Any]:
    """Log-loss before and after calibration, accuracy, reliability of each class.

    Bins have equal width in the calibrated posterior; an empty one has no means.
    `constant` is the log-loss of every row by the class shares alone, the baseline of
    `skill`. With weights, log-losses and accuracy are weighted means.
    """
    if not len(labels):
        names = ("log_loss_uncalibrated", "log_loss", "accuracy", "skill")
        return {**dict.fromkeys(names), "reliability": []}

    def mean(values: NDArray[Any]) -> float:
        return float(np.average(values, weights=weights))

    posterior = calibration.apply(logits).astype(np.float64)
    chosen = posterior[np.arange(len(labels)), labels]
    losses = -np.log(chosen)
    shares = np.ones(len(labels)) if weights is None else weights / weights.mean()
    return {
        "skill": skill(*(each * shares for each in (losses, constant))),
        "log_loss_uncalibrated": mean(row_losses(logits, labels)),
        "log_loss": mean(losses),
        "accuracy": mean(posterior.argmax(axis=1) == labels),
        "reliability": [
            _reliability(posterior[:, c], labels == c)
            for c in range(posterior.shape[1])
        ],
    }


def _reliability(predicted: Floats, is_class: Bools) -> dict[str, list[Any]]:
    """Means of predictions and of observations by bins of the predictions."""
    bins = np.minimum((predicted * BINS).astype(np.int64), BINS - 1)
    count = np.bincount(bins, minlength=BINS)
    sums = np.bincount(bins, weights=predicted, minlength=BINS)
    hits = np.bincount(bins[is_class], minlength=BINS)
    means, shares = (
        [
            float(value / c) if c else None
            for value, c in zip(values, count, strict=True)
        ]
        for values in (sums, hits)
    )
    return {"predicted": means, "observed": shares, "count": count.tolist()}


def skill(losses: Floats, constant: Floats) -> dict[str, float] | None:
    """Relative reduction of a constant prediction's log-loss, with its 95 % interval.

    ``1 - mean(losses) / mean(constant)``; the interval is that of a ratio of means.
    None with a single class or fewer than two rows.

    Examples
    --------
    >>> skill(np.full(4, 0.5), np.ones(4))
    {'value': 0.5, 'lower': 0.5, 'upper': 0.5}
    """
    base = float(constant.mean())
    if base <= 0 or len(losses) < 2:
        return None
    ratio = float(losses.mean()) / base
    spread = float((losses - ratio * constant).std(ddof=1))
    half = float(ndtri(0.975)) * spread / (base * float(np.sqrt(len(losses))))
    value = 1 - ratio
    return {"value": value, "lower": value - half, "upper": value + half}
