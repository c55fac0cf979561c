"""Calibration: maps from a readout's logits to posteriors, fitted on held-out labels.

All maps use logits, never rounded posteriors, so saturated posteriors lose no
precision. Weak priors keep the parameters finite where held-out labels do not determine
them (perfectly separated classes, or embeddings without information). The quality of
held-out posteriors is measured for manifests and reports.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import minimize
from scipy.special import log_expit, logsumexp, ndtri, softmax

from xnq_dist.core.arrays import Bools, Floats, Floats32, Ints32
from xnq_dist.readout.logistic import fit, log_shares

__all__ = [
    "FLOOR",
    "KINDS",
    "MOVES_PRIOR",
    "PRIOR_ROWS",
    "Calibration",
    "fit_calibration",
    "quality",
    "skill",
]

PLATT = ("platt", "platt_logit")
"""Calibrations of one class against the rest."""
MOVES_PRIOR = ("bcts", *PLATT)
"""Calibrations after which posteriors have the prior of the held-out rows."""
KINDS = (*MOVES_PRIOR, "temperature", "none")
"""All calibrations."""

FLOOR = 1e-12
"""Lower bound of posteriors, so that later steps do not divide by zero."""

SLOPE_PRIOR = 1e-2
"""Strength of the weak prior of a slope, in units of one row's log-loss: less than one
label, but enough for a finite optimum."""
BIAS_PRIOR = 1e-3
"""The same of a bias."""
PRIOR_ROWS = 2.0
"""Strength of the prior of `fit_calibration` for the posteriors of xnq+, in rows."""
PLATT_C = 1e6
"""Inverse strength of the prior of the slopes of Platt's maps."""

BINS = 10
"""Bins of the reliability curve."""


@dataclass(frozen=True, eq=False)
class Calibration:
    """A fitted map from logits to posteriors.

    Scores are the logits, for ``platt`` the posteriors. Posteriors are the softmax of
    ``slope * score + offset``; for Platt's maps of the log of its sigmoid: one class
    against the rest, then normalised.
    """

    kind: str
    """One of `KINDS`."""
    slope: Floats
    """Shape (C,)."""
    offset: Floats
    """Shape (C,)."""

    def apply(self, logits: Floats | Floats32) -> Floats32:
        """Posteriors of rows of logits, float32, shape (n, C).

        Rows sum to 1 (up to float32 rounding); entries are between about `FLOOR` and 1.
        """
        exact = np.ascontiguousarray(logits, dtype=np.float64)
        values = self.slope * _scores(str(self.kind), exact) + self.offset
        values = softmax(log_expit(values) if self.kind in PLATT else values, axis=1)
        values = np.maximum(values, FLOOR)
        values /= values.sum(axis=1, keepdims=True)
        return values.astype(np.float32)


def fit_calibration(
    kind: str,
    logits: Floats | Floats32,
    labels: Ints32,
    prior: float = 0.0,
    weights: Floats | float = 1.0,
) -> Calibration:
    """Fit a calibration by maximum likelihood on held-out logits.

    Parameters
    ----------
    kind
        ``temperature``: softmax(log p / T). ``bcts``: softmax(log p / T + b), b_0 = 0
        (Alexandari, Kundaje & Shrikumar 2020, bias-corrected temperature scaling).
        ``platt``: 1 / (1 + exp(a * y + b)) with y the posterior, one class against
        the rest, then normalised. ``platt_logit``: the same with y the logit (Platt
        1999). ``none``: the softmax itself.
    logits
        Of rows that the readout was not fitted to, shape (n, C).
    labels
        Their class codes, shape (n,).
    prior
        Strength, in rows, of the priors of ``bcts`` and ``temperature`` in addition to
        the weak ones; their mode is the identity.
    weights
        Of the rows, shape (n,), or the same of all.

    Raises
    ------
    ValueError
        When `kind` is not one of `KINDS`.
    """
    exact = np.ascontiguousarray(logits, dtype=np.float64)
    each = np.full(len(exact), weights)
    if kind in PLATT:
        scores = _scores(kind, exact)
        fits = [
            _fit_sigmoid(score, labels == code, each)
            for code, score in enumerate(scores.T)
        ]
        return Calibration(kind, *np.array(fits).T)
    if kind in ("bcts", "temperature"):
        return Calibration(kind, *_fit_scaling(kind, exact, labels, prior, each))
    if kind == "none":
        zeros = np.zeros(exact.shape[1])
        return Calibration(kind, zeros + 1, zeros)
    raise ValueError(f"calibration {kind!r} is not one of {', '.join(KINDS)}")


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


def _fit_scaling(
    kind: str, logits: Floats, labels: Ints32, prior: float, each: Floats
) -> tuple[Floats, Floats]:
    """Fit slope and biases; the objective is convex in both.

    The priors are a Gamma with mode 1 for the slope, which also keeps it positive when
    the logits are negatively correlated with the labels, and a wide normal for biases.
    """
    classes, rows = logits.shape[1], each.sum()
    each = each / rows
    slope_prior, bias_prior = (SLOPE_PRIOR + prior) / rows, (BIAS_PRIOR + prior) / rows
    log_p = log_shares(logits)
    centred = log_p - log_p.mean(axis=1, keepdims=True)
    # Logits are scaled to size 1: with saturated ones the problem is ill-conditioned.
    size = np.sqrt(np.mean(centred**2)) or 1.0
    scaled = centred / size
    taken = np.arange(len(logits)), labels
    shares = np.bincount(labels, each, classes)
    # Biases without a gradient stay 0: the first, and all of a temperature.
    free = np.full(classes, float(kind == "bcts"))
    free[0] = 0.0

    def objective(point: Floats) -> tuple[float, Floats]:
        inverse, bias = point[0] / size, point[1:]
        log_q = log_shares(scaled * point[0] + bias)
        q = np.exp(log_q)
        loss = -(each @ log_q[taken])
        loss += slope_prior * (inverse - np.log(inverse) - 1)
        loss += bias_prior * 0.5 * np.sum(bias**2)
        steep = each @ ((q * scaled).sum(axis=1) - scaled[taken])
        steep += slope_prior * (1 - 1 / inverse) / size
        tilt = each @ q - shares + bias_prior * bias
        return float(loss), np.append(steep, tilt * free)

    solution = minimize(
        objective,
        np.append(size, np.zeros(classes)),
        jac=True,
        method="L-BFGS-B",
        bounds=[(1e-9 * size, None)] + [(None, None)] * classes,
        options={"maxiter": 10_000, "maxfun": 100_000, "ftol": 1e-15, "gtol": 1e-9},
    )
    temperature = size / solution.x[0]
    return np.full(classes, 1 / temperature), solution.x[1:]


def _fit_sigmoid(score: Floats, positive: Bools, each: Floats) -> tuple[float, float]:
    """Fit slope and offset of a class's sigmoid, with Platt's smoothed targets."""
    rows, yes = each.sum(), each @ positive
    target = np.where(positive, (yes + 1) / (yes + 2), 1 / (rows - yes + 2))
    middle, spread = score.mean(), score.std() or 1.0
    # A row counts as both outcomes, by its target.
    x = np.tile((score - middle) / spread, 2)[:, None]
    outcome = np.repeat(np.array([1, 0], np.int32), len(score))
    shares = np.tile(each, 2) * np.concatenate([target, 1 - target])
    model = fit(x, outcome, 2, PLATT_C, weights=shares)
    slope = model.coef[1, 0] / spread
    return slope, model.intercept[1] - slope * middle


def _scores(kind: str, logits: Floats) -> Floats:
    """Return what slopes multiply: logits, posteriors, or log-odds of each class."""
    if kind == "platt":
        return softmax(logits, axis=1)
    if kind != "platt_logit":
        return logits
    others = np.stack([np.delete(logits, c, axis=1) for c in range(logits.shape[1])])
    return logits - logsumexp(others, axis=2).T


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
