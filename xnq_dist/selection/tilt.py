"""Posteriors of unlabelled nodes where labels were chosen by class."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from xnq_dist.core.arrays import Floats, Ints

__all__ = ["logit_variance", "solve_bias", "tilted", "tilted_mean"]


ROUNDS = 200
TOLERANCE = 1e-12
BLOCK = 1 << 16


def tilted(posteriors: Floats, factors: Floats) -> Floats:
    """Posteriors times a factor a class, normalised, shape (n, C)."""
    found = posteriors * factors
    return np.asarray(found / found.sum(axis=1, keepdims=True))


def tilted_mean(
    posteriors: NDArray[np.floating], rows: Ints, factors: Floats, prior: Floats
) -> tuple[Floats, Floats]:
    """Mean of the tilted posteriors f of some nodes, and mean of f (1 - f), (C,).

    Added up block by block: posteriors of all nodes may be many. The prior stands for a
    row of zeros.
    """
    total, spread = np.zeros(len(factors)), np.zeros(len(factors))
    for block in _blocks(posteriors, rows, prior):
        found = tilted(block, factors)
        total += found.sum(axis=0)
        spread += (found * (1 - found)).sum(axis=0)
    return total / max(len(rows), 1), spread / max(len(rows), 1)


def _blocks(
    posteriors: NDArray[np.floating], rows: Ints, prior: Floats
) -> Iterator[Floats]:
    """Normalised rows."""
    for first in range(0, len(rows), BLOCK):
        block = posteriors[rows[first : first + BLOCK]].astype(np.float64)
        total = block.sum(axis=1, keepdims=True)
        yield np.where(total > 0, block / np.where(total > 0, total, 1.0), prior)


def logit_variance(covariance: Floats, shares: Floats) -> Floats:
    """Variance of the logit shift of each class against the rest, shape (C,).

    From the covariance of b and the class shares among the nodes that are shifted: b of
    the rest is their mean.
    """
    found = np.empty(len(shares))
    for code in range(len(shares)):
        rest = np.where(np.arange(len(shares)) == code, 0.0, shares)
        direction = -rest / max(rest.sum(), 1e-300)
        direction[code] = 1.0
        found[code] = direction @ covariance @ direction
    return found


def solve_bias(
    posteriors: NDArray[np.floating], rows: Ints, shares: Floats, prior: Floats
) -> Floats:
    """Bias b, summing to 0, with which tilted posteriors have the given mean.

    Newton's method on a convex function: the mean of f is the gradient of the mean of
    ``log sum_y p_y exp(-b_y)`` in -b, so there is one answer for shares above 0.
    """
    if not (shares > 0).all():
        raise ValueError("shares must be above 0")
    n_classes = len(shares)
    c = np.zeros(n_classes)

    def state(point: Floats) -> tuple[float, Floats, Floats]:
        value, mean = -float(point @ shares), np.zeros(n_classes)
        second = np.zeros((n_classes, n_classes))
        for block in _blocks(posteriors, rows, prior):
            found = block * np.exp(point)
            total = found.sum(axis=1, keepdims=True)
            found /= total
            value += float(np.log(total).sum()) / len(rows)
            mean += found.sum(axis=0) / len(rows)
            second -= found.T @ found / len(rows)
        return value, mean - shares, second + np.diag(mean)

    value, slope, second = state(c)
    for _ in range(ROUNDS):
        if np.abs(slope).max() < TOLERANCE:
            break
        # Singular along constant vectors, until the outer product is added.
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
