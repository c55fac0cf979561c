"""Errors of estimated prevalences."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["METRICS", "absolute_error", "relative_absolute_error"]

METRICS = ("ae", "rae")

Array = NDArray[np.float64]


def absolute_error(true: Array, estimate: Array) -> Array:
    """AE of every sample: mean over classes of ``|estimate - true|``.

    Parameters
    ----------
    true, estimate
        Shape (S, C).

    Returns
    -------
    NDArray
        Shape (S,).
    """
    found: Array = np.abs(estimate - true).mean(axis=1)
    return found


def relative_absolute_error(
    true: Array, estimate: Array, sizes: NDArray[np.int64]
) -> Array:
    """RAE of every sample: mean over classes of ``|estimate - true| / (true + eps)``.

    The smoothing factor is ``eps = 1 / (2 |S|)`` (Forman 2008), so that a class that
    is not in the sample still counts.

    Parameters
    ----------
    true, estimate
        Shape (S, C).
    sizes
        Members of each sample, each at least 1, shape (S,).

    Returns
    -------
    NDArray
        Shape (S,).
    """
    eps = 0.5 / np.asarray(sizes, np.float64)[:, None]
    found: Array = (np.abs(estimate - true) / (true + eps)).mean(axis=1)
    return found
