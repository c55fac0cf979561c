"""A convex pool of models' log-probabilities, weighted by held-out log-loss.

The constant prior is one of the models, so estimates of poor models shrink to it.

References
----------
C. Genest, J. V. Zidek, "Combining probability distributions", Statistical Science 1,
1986 (logarithmic pools).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.optimize import minimize
from scipy.special import log_softmax, softmax

from xnq_dist.core.arrays import Floats, Ints32
from xnq_dist.core.blocks import one_blas_thread

__all__ = ["pool_weights", "pooled"]


PULL = 10.0
"""Strength of the penalty on unequal weights, in rows."""


def pooled(scores: Sequence[Floats], weights: Floats) -> Floats:
    """Return log-probabilities of the pool, shape (n, C)."""
    total = np.zeros_like(scores[0])
    for weight, values in zip(weights.tolist(), scores, strict=True):
        total += weight * values
    return np.asarray(log_softmax(total, axis=1), np.float64)


def pool_weights(
    scores: Sequence[Floats], labels: Ints32, row_weights: Floats | None = None
) -> Floats:
    """Find the weights with the lowest log-loss on held-out rows, shape (M,).

    Scores are log-probabilities by each model, shape (n, C) each.
    """
    count, rows = len(scores), len(labels)
    stacked = np.stack(scores)
    taken = stacked[:, np.arange(rows), labels]
    each = np.ones(rows) if row_weights is None else row_weights
    reached = (taken * each).sum(axis=1)

    def objective(point: Floats) -> tuple[float, Floats]:
        weights = softmax(point)
        total = np.tensordot(weights, stacked, axes=1)
        top = np.logaddexp.reduce(total, axis=1)
        shares = np.exp(total - top[:, None])
        loss = float((each * (top - weights @ taken)).sum())
        slope = np.einsum("nc,mnc->m", shares * each[:, None], stacked) - reached
        # Penalty: Kullback-Leibler divergence of equal weights from these.
        loss -= PULL * float(np.log(weights).mean())
        slope -= PULL / (count * weights)
        return loss / rows, weights * (slope - weights @ slope) / rows

    with one_blas_thread():
        solution = minimize(objective, np.zeros(count), jac=True, method="L-BFGS-B")
    return np.asarray(softmax(solution.x), np.float64)
