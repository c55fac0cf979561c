"""Errors of estimated prevalences, for each of S samples."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from xnq_dist.core.arrays import Floats

__all__ = ["errors_of"]


def errors_of(
    true: Floats, estimate: Floats, sizes: NDArray[np.number]
) -> dict[str, Floats]:
    """AE and RAE of the samples by name of the metric, shape (S,) each.

    ``ae`` is the mean over classes of ``|estimate - true|``, ``rae`` that of
    ``|estimate - true| / (true + eps)``. The smoothing factor is ``eps = 1 / (2 |S|)``
    (Forman 2008), so that the error is finite for a class that is not in the sample.

    Parameters
    ----------
    true, estimate
        Prevalences, shape (S, C).
    sizes
        Sizes of the samples, shape (S,).
    """
    error = np.abs(estimate - true)
    eps = 0.5 / np.asarray(sizes, np.float64)[:, None]
    return {"ae": error.mean(axis=1), "rae": (error / (true + eps)).mean(axis=1)}
