"""Tails of distributions given by their moments: of sums, and of shares.

References
----------
K. Pearson, "Contributions to the mathematical theory of evolution II: skew variation in
homogeneous material", Philosophical Transactions of the Royal Society A 186, 1895 (the
shifted Gamma distribution, type III).
"""

from __future__ import annotations

import numpy as np
from scipy.special import betaincinv, erfc, gammainc, gammaincc

from xnq_dist.core.arrays import Floats

__all__ = ["beta_ends", "upper_tail"]


MIN_SKEW = 1e-3
"""Skewness below which the normal distribution is accurate enough."""
MIN_VARIANCE = 1e-12
MAX_OF_BERNOULLI = 0.9
"""Maximum variance of a share's distribution, in units of q (1 - q)."""


def upper_tail(at: Floats, variance: Floats, third: Floats) -> Floats:
    """P(X >= at) of a sum X with mean 0: normal, or a shifted Gamma where it is skewed.

    The Gamma is bounded on its short side, and the sum may not be: there the larger of
    both probabilities is returned. `variance` and `third` central moment broadcast with
    `at`; where the variance is 0, X is 0.

    Examples
    --------
    >>> three = upper_tail(np.array([0.0, 1.96, 1.96]), np.ones(3), np.array([0, 0, 1]))
    >>> three.round(3).tolist()
    [0.5, 0.025, 0.045]
    """
    at, variance, third = np.broadcast_arrays(at, variance, third)
    probability = (at <= 1e-9).astype(np.float64)
    random = variance > 0
    z = at[random] / np.sqrt(variance[random])
    skew = third[random] / variance[random] ** 1.5
    tail = 0.5 * erfc(z / np.sqrt(2))
    skewed = np.abs(skew) > MIN_SKEW
    half = 2 / skew[skewed]
    # With negative skewness the Gamma is mirrored: its tail is the lower one.
    place = np.maximum(half * (z[skewed] + half), 0.0)
    shape = half * half
    gamma = np.where(half > 0, gammaincc(shape, place), gammainc(shape, place))
    short = (half < 0) & (z[skewed] > 0)
    tail[skewed] = np.where(short, np.maximum(gamma, tail[skewed]), gamma)
    probability[random] = tail
    return probability


def beta_ends(mean: Floats, variance: Floats, level: float) -> Floats:
    """Ends of the interval of a share: of the Beta distribution with these moments.

    The variance is limited to what such a distribution can have; a mean of 0 or 1 is
    certain. The first axis of the result has the lower and the upper end.

    Examples
    --------
    >>> beta_ends(np.array([0.5, 1.0]), np.array([1 / 12, 0.0]), 0.9).round(3).tolist()
    [[0.05, 1.0], [0.95, 1.0]]
    """
    spread = mean * (1 - mean)
    inside = spread > 0
    limited = np.clip(variance, MIN_VARIANCE, MAX_OF_BERNOULLI * spread)
    strength = np.divide(spread, limited, out=np.full_like(spread, 2.0), where=inside)
    a = np.where(inside, mean * (strength - 1), 1.0)
    b = np.where(inside, (1 - mean) * (strength - 1), 1.0)
    tail = (1 - level) / 2
    ends = betaincinv(a, b, tail), betaincinv(a, b, 1 - tail)
    return np.where(inside, ends, mean)
