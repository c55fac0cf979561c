"""Errors of estimated prevalences, for each of S samples."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["absolute_error", "errors_of", "relative_absolute_error"]

Array = NDArray[np.float64]


def absolute_error(true: Array, estimate: Array) -> Array:
    """AE, shape (S,): mean over classes of ``|estimate - true|``, shapes (S, C)."""
    error: Array = np.abs(estimate - true).mean(axis=1)
    return error


def relative_absolute_error(
    true: Array, estimate: Array, sizes: NDArray[np.number]
) -> Array:
    """RAE, shape (S,): mean over classes of ``|estimate - true| / (true + eps)``.

    The smoothing factor is ``eps = 1 / (2 |S|)`` (Forman 2008), so that the error is
    finite for a class that is not in the sample; ``sizes`` are the samples' sizes.
    """
    eps = 0.5 / np.asarray(sizes, np.float64)[:, None]
    error: Array = (np.abs(estimate - true) / (true + eps)).mean(axis=1)
    return error


def errors_of(
    true: Array, estimate: Array, sizes: NDArray[np.number]
) -> dict[str, Array]:
    """AE and RAE of the samples, by name of the metric."""
    return {
        "ae": absolute_error(true, estimate),
        "rae": relative_absolute_error(true, estimate, sizes),
    }
