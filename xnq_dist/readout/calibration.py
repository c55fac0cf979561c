"""Calibration: maps from a readout's logits to posteriors, fitted on held-out labels.

All maps use logits, never rounded posteriors, so saturated posteriors lose no
precision. Weak priors keep the parameters finite where held-out labels do not determine
them (perfectly separated classes, or embeddings without information).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit, log_expit, log_softmax, softmax

from xnq_dist.core.arrays import Bools, Floats, Floats32, Ints32

__all__ = ["FLOOR", "KINDS", "Calibration", "fit_calibration"]

Bound = tuple[float | None, float | None]

KINDS = ("bcts", "platt", "platt_logit", "temperature", "none")

FLOOR = 1e-12
"""Lower bound of posteriors, so that later steps do not divide by zero."""

SLOPE_PRIOR = 1e-2
BIAS_PRIOR = 1e-3
"""Strength of the weak priors in units of one row's log-loss: less than one label, but
enough for a finite optimum."""


@dataclass(frozen=True, eq=False)
class Calibration:
    """A fitted map from logits to posteriors."""

    kind: str
    """One of `KINDS`."""
    parameters: dict[str, Floats]
    """``temperature`` (1,) and ``bias`` (C,) for bcts, temperature; ``slope`` and
    ``offset``, (C,) each, for Platt's maps; none for ``none``."""

    def apply(self, logits: Floats) -> Floats32:
        """Posteriors of rows of logits, float32, shape (n, C).

        Rows sum to 1 (up to float32 rounding); entries are between about `FLOOR` and 1.
        """
        logits = np.ascontiguousarray(logits, dtype=np.float64)
        if self.kind == "none":
            values = softmax(logits, axis=1)
        elif self.kind in ("bcts", "temperature"):
            scaled = logits / self.parameters["temperature"]
            values = softmax(scaled + self.parameters["bias"], axis=1)
        else:
            score = _scores(self.kind, logits)
            slope, offset = self.parameters["slope"], self.parameters["offset"]
            # One against the rest, then normalised: softmax of the log-sigmoids.
            values = softmax(log_expit(-(slope * score + offset)), axis=1)
        values = np.maximum(values, FLOOR)
        values /= values.sum(axis=1, keepdims=True)
        return values.astype(np.float32)

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Return arrays for a file; `from_arrays` reads them."""
        named = {f"calibration_{k}": v for k, v in self.parameters.items()}
        return {"calibration": np.array(self.kind), **named}

    @classmethod
    def from_arrays(cls, arrays: dict[str, NDArray[Any]]) -> Calibration:
        """Construct from arrays that include those of `to_arrays`."""
        prefix = "calibration_"
        parameters = {
            name.removeprefix(prefix): np.asarray(values, np.float64)
            for name, values in arrays.items()
            if name.startswith(prefix)
        }
        return cls(str(arrays["calibration"]), parameters)


def fit_calibration(
    kind: str,
    logits: Floats,
    labels: Ints32,
    prior: float = 0.0,
    weights: Floats | None = None,
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
        Of the rows, shape (n,); None: 1 each.

    Raises
    ------
    ValueError
        When `kind` is not one of `KINDS`.
    """
    logits = np.ascontiguousarray(logits, dtype=np.float64)
    if kind == "none":
        return Calibration(kind, {})
    if kind in ("platt", "platt_logit"):
        slope, offset = _fit_platt(_scores(kind, logits), labels, weights)
        return Calibration(kind, {"slope": slope, "offset": offset})
    if kind in ("bcts", "temperature"):
        with_bias = kind == "bcts"
        temperature, bias = _fit_scaling(logits, labels, with_bias, prior, weights)
        parameters = {"temperature": np.array([temperature]), "bias": bias}
        return Calibration(kind, parameters)
    raise ValueError(f"calibration {kind!r} is not one of {', '.join(KINDS)}")


def _fit_scaling(
    logits: Floats,
    labels: Ints32,
    with_bias: bool,
    prior: float,
    weights: Floats | None,
) -> tuple[float, Floats]:
    """Fit temperature and biases; the objective is convex in (1 / T, b).

    The priors are a Gamma with mode 1 for 1 / T, which also keeps T positive when the
    logits are negatively correlated with the labels, and a wide normal for b.
    """
    classes = logits.shape[1]
    each = np.ones(len(logits)) if weights is None else weights
    rows = float(each.sum())
    each = each / rows
    log_p = log_softmax(logits, axis=1)
    centred = log_p - log_p.mean(axis=1, keepdims=True)
    # Logits are scaled to size 1: with saturated ones the problem is ill-conditioned.
    size = float(np.sqrt(np.mean(centred**2))) or 1.0
    scaled = centred / size
    taken = np.arange(len(logits)), labels
    shares = np.bincount(labels, each, classes)

    def objective(point: Floats) -> tuple[float, Floats]:
        inverse = point[0] / size
        bias = np.concatenate([[0.0], point[1:]]) if with_bias else np.zeros(classes)
        log_q = log_softmax(scaled * point[0] + bias, axis=1)
        q = np.exp(log_q)
        loss = -float(each @ log_q[taken])
        loss += (SLOPE_PRIOR + prior) / rows * (inverse - np.log(inverse) - 1)
        loss += (BIAS_PRIOR + prior) / rows * 0.5 * np.sum(bias**2)
        steep = float(each @ ((q * scaled).sum(axis=1) - scaled[taken]))
        steep += (SLOPE_PRIOR + prior) / rows * (1 - 1 / inverse) / size
        if not with_bias:
            return float(loss), np.array([steep])
        tilt = each @ q - shares + (BIAS_PRIOR + prior) / rows * bias
        return float(loss), np.concatenate([[steep], tilt[1:]])

    begin = np.zeros(classes if with_bias else 1)
    begin[0] = size
    bounds: list[Bound] = [(1e-9 * size, None)]
    bounds += [(None, None)] * (len(begin) - 1)
    point = _minimum(objective, begin, bounds)
    bias = np.concatenate([[0.0], point[1:]]) if with_bias else np.zeros(classes)
    return size / float(point[0]), bias


def _fit_platt(
    scores: Floats, labels: Ints32, weights: Floats | None
) -> tuple[Floats, Floats]:
    """Fit slope a and offset b of each class, with Platt's smoothed targets."""
    classes = scores.shape[1]
    slope, offset = np.empty(classes), np.empty(classes)
    for code in range(classes):
        slope[code], offset[code] = _fit_sigmoid(
            scores[:, code], labels == code, weights
        )
    return slope, offset


def _fit_sigmoid(
    score: Floats, positive: Bools, weights: Floats | None
) -> tuple[float, float]:
    """Fit a and b of 1 / (1 + exp(a * score + b)) by maximum likelihood."""
    each = np.ones(len(score)) if weights is None else weights
    rows, yes = float(each.sum()), float(each @ positive)
    each = each / rows
    target = np.where(positive, (yes + 1) / (yes + 2), 1 / (rows - yes + 2))
    middle, spread = float(score.mean()), float(score.std()) or 1.0
    standard = (score - middle) / spread

    def objective(point: Floats) -> tuple[float, Floats]:
        value = point[0] * standard + point[1]
        # -log(1 / (1 + e^v)) = -log_expit(-v), and the other outcome -log_expit(v).
        gains = target * log_expit(-value) + (1 - target) * log_expit(value)
        loss = -float(each @ gains)
        # Targets inside (0, 1) give a finite optimum, unless the score is constant.
        loss += BIAS_PRIOR * 1e-3 / rows * point[0] ** 2 / 2
        error = target - expit(-value)
        steep = each @ (error * standard) + BIAS_PRIOR * 1e-3 / rows * point[0]
        return float(loss), np.array([steep, each @ error])

    a, b = _minimum(objective, np.zeros(2), [(None, None)] * 2)
    return float(a / spread), float(b - a * middle / spread)


def _scores(kind: str, logits: Floats) -> Floats:
    """Return the inputs of Platt's map: each class's posterior, or its log-odds."""
    if kind == "platt":
        return np.asarray(softmax(logits, axis=1), np.float64)
    if logits.shape[1] == 2:
        margin = logits[:, 1] - logits[:, 0]
        return np.stack([-margin, margin], axis=1)
    odds = np.empty_like(logits)
    for code in range(logits.shape[1]):
        others = np.delete(logits, code, axis=1)
        top = others.max(axis=1)
        rest = np.exp(others - top[:, None]).sum(axis=1)
        odds[:, code] = logits[:, code] - top - np.log(rest)
    return odds


def _minimum(
    objective: Callable[[Floats], tuple[float, Floats]],
    begin: Floats,
    bounds: list[Bound],
) -> Floats:
    """Minimise a smooth convex function of a few parameters."""
    solution = minimize(
        objective,
        begin,
        jac=True,
        method="L-BFGS-B",
        bounds=bounds,
        options={"maxiter": 10_000, "maxfun": 100_000, "ftol": 1e-15, "gtol": 1e-9},
    )
    return np.asarray(solution.x, np.float64)
