"""Quality of held-out posteriors, for manifests and reports."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import ndtri

from xnq_dist.core.arrays import Bools, Floats, Floats32, Ints32

__all__ = ["quality", "skill"]

BINS = 10
"""Bins of the reliability curve."""


def quality(
    posterior: Floats32,
    labels: Ints32,
    constant: Floats,
    weights: Floats | float = 1.0,
) -> dict[str, Any]:
    """Log-loss, accuracy and reliability of each class of held-out posteriors.

    Bins have equal width in the posterior; an empty one has no means. `constant` is the
    log-loss of every row by the class shares alone, the baseline of `skill`. With
    weights, log-losses and accuracy are weighted means.
    """
    each = weights / np.mean(weights)
    exact = posterior.astype(np.float64)
    losses = -np.log(exact[np.arange(len(labels)), labels])
    correct = exact.argmax(axis=1) == labels
    return {
        "skill": skill(losses * each, constant * each),
        "log_loss": float(np.mean(losses * each)),
        "accuracy": float(np.mean(correct * each)),
        "reliability": [
            _reliability(exact[:, c], labels == c) for c in range(exact.shape[1])
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
