"""Tail probabilities of sums, from three moments.

References
----------
K. Pearson, "Contributions to the mathematical theory of evolution II: skew variation in
homogeneous material", Philosophical Transactions of the Royal Society A 186, 1895 (the
shifted Gamma distribution, type III).
"""

from __future__ import annotations

import numpy as np
from scipy.special import erfc, gammainc, gammaincc

from xnq_dist.core.arrays import Floats

__all__ = ["upper_tail"]


MIN_SKEW = 1e-3
"""Skewness below which the normal distribution is accurate enough."""


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
