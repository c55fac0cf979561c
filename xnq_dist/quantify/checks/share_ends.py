"""Ends of intervals of shares, from their means and variances."""

from __future__ import annotations

import numpy as np
from scipy.special import betaincinv

from xnq_dist.core.arrays import Floats

__all__ = ["beta_ends"]


MIN_VARIANCE = 1e-12
MAX_OF_BERNOULLI = 0.9
"""Maximum variance of a share's distribution, in units of q (1 - q)."""


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
