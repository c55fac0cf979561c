"""Errors of estimated prevalences, for each of S samples."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from xnq_dist.core.arrays import Floats

__all__ = ["absolute_error", "errors_of", "relative_absolute_error"]


def absolute_error(true: Floats, estimate: Floats) -> Floats:
    """AE, shape (S,): mean over classes of ``|estimate - true|``, shapes (S, C)."""
    error: Floats = np.abs(estimate - true).mean(axis=1)
    return error


def relative_absolute_error(
    true: Floats, estimate: Floats, sizes: NDArray[np.number]
) -> Floats:
    """RAE, shape (S,): mean over classes of ``|estimate - true| / (true + eps)``.

    The smoothing factor is ``eps = 1 / (2 |S|)`` (Forman 2008), so that the error is
    finite for a class that is not in the sample; ``sizes`` are the samples' sizes.
    """
    eps = 0.5 / np.asarray(sizes, np.float64)[:, None]
    error: Floats = (np.abs(estimate - true) / (true + eps)).mean(axis=1)
    return error


def errors_of(
    true: Floats, estimate: Floats, sizes: NDArray[np.number]
) -> dict[str, Floats]:
    """AE and RAE of the samples, by name of the metric."""
    return {
        "ae": absolute_error(true, estimate),
        "rae": relative_absolute_error(true, estimate, sizes),
    }
