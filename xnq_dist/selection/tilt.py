"""Posteriors of unlabelled nodes where labels were chosen by class."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from xnq_dist.core.arrays import Floats, Ints, slices
from xnq_dist.selection.scored_rows import normalised

__all__ = ["logit_variance", "solve_bias", "tilted", "tilted_mean"]


ROUNDS = 200
TOLERANCE = 1e-12
BLOCK = 1 << 16


def tilted(posteriors: Floats, factors: Floats) -> Floats:
    """Posteriors times factors, (C,) or (n, C), normalised, shape (n, C)."""
    product = posteriors * factors
    return np.asarray(product / product.sum(axis=1, keepdims=True))


def tilted_mean(
    posteriors: NDArray[np.floating], rows: Ints, factors: Floats, prior: Floats
) -> tuple[Floats, Floats]:
    """Mean of the tilted posteriors f of the nodes `rows`, and of f (1 - f), (C,).

    Computed block by block to limit memory. The prior replaces a row of zeros.
    """
    total, spread = np.zeros((2, len(factors)))
    for block in _blocks(posteriors, rows, prior):
        values = tilted(block, factors)
        total += values.sum(axis=0)
        spread += (values * (1 - values)).sum(axis=0)
    return total / len(rows), spread / len(rows)


def _blocks(
    posteriors: NDArray[np.floating], rows: Ints, prior: Floats
) -> Iterator[Floats]:
    """Yield blocks of normalised rows."""
    for block in slices(len(rows), BLOCK):
        yield normalised(posteriors[rows[block]], prior)


def logit_variance(covariance: Floats, shares: Floats) -> Floats:
    """Variance of the logit shift of each class against the rest, shape (C,).

    `covariance` is that of b, `shares` are class shares among the shifted nodes, by
    which b of the rest is averaged.
    """
    variance = np.empty(len(shares))
    for code in range(len(shares)):
        rest = np.where(np.arange(len(shares)) == code, 0.0, shares)
        direction = -rest / max(rest.sum(), 1e-300)
        direction[code] = 1.0
        variance[code] = direction @ covariance @ direction
    return variance


def solve_bias(
    posteriors: NDArray[np.floating], rows: Ints, shares: Floats, prior: Floats
) -> Floats:
    """Find the bias b, summing to 0, with which tilted posteriors average to `shares`.

    Newton's method on a convex function: the mean of f is the gradient of the mean of
    ``log sum_y p_y exp(-b_y)`` in -b, so the solution is unique for shares above 0.
    """
    n_classes = len(shares)
    c = np.zeros(n_classes)

    def state(point: Floats) -> tuple[float, Floats, Floats]:
        value, mean = -float(point @ shares), np.zeros(n_classes)
        second = np.zeros((n_classes, n_classes))
        for block in _blocks(posteriors, rows, prior):
            products = block * np.exp(point)
            total = products.sum(axis=1, keepdims=True)
            products /= total
            value += np.log(total).sum() / len(rows)
            mean += products.sum(axis=0) / len(rows)
            second -= products.T @ products / len(rows)
        return value, mean - shares, second + np.diag(mean)

    value, slope, second = state(c)
    for _ in range(ROUNDS):
        if np.abs(slope).max() < TOLERANCE:
            break
        # The Hessian is singular along constant vectors: add an outer product.
        step = -np.linalg.solve(second + 1.0 / n_classes**2, slope)
        step *= min(1.0, 5.0 / max(np.abs(step).max(), 1e-300))
        for _ in range(60):
            tried = state(c + step)
            if tried[0] <= value + 1e-15 * abs(value):
                break
            step /= 2
        c = c + step
        c -= c.mean()
        value, slope, second = tried
    return np.asarray(-c)
