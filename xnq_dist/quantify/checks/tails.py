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


STRAIGHT = 1e-3
"""Skewness below which the normal distribution does as well."""


def upper_tail(at: Floats, variance: Floats, third: Floats) -> Floats:
    """P(X >= at) of a sum X with mean 0: normal, or a shifted Gamma where it is skewed.

    The Gamma ends on its short side, which the sum need not: there the larger of the
    two counts. `variance` and `third` central moment broadcast with `at`; without
    variance X is 0.


    Examples
    --------
    >>> three = upper_tail(np.array([0.0, 1.96, 1.96]), np.ones(3), np.array([0, 0, 1]))
    >>> three.round(3).tolist()
    [0.5, 0.025, 0.045]
    """
    at, variance, third = np.broadcast_arrays(at, variance, third)
    found = (at <= 1e-9).astype(np.float64)
    some = variance > 0
    z = at[some] / np.sqrt(variance[some])
    skew = third[some] / variance[some] ** 1.5
    tail = 0.5 * erfc(z / np.sqrt(2))
    skewed = np.abs(skew) > STRAIGHT
    half = 2 / skew[skewed]
    # Mirrored where the skewness is negative: the distribution function, not its tail.
    place = np.maximum(half * (z[skewed] + half), 0.0)
    shape = half * half
    gamma = np.where(half > 0, gammaincc(shape, place), gammainc(shape, place))
    short = (half < 0) & (z[skewed] > 0)
    tail[skewed] = np.where(short, np.maximum(gamma, tail[skewed]), gamma)
    found[some] = tail
    return found
