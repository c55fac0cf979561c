"""The objective of logistic regressions with several classes, compiled.

A BLAS packs the rows anew for each problem, which takes as long as the sums of a few
classes. Here the problems of a pass are the columns of one matrix. The bits of a
problem do not depend on the others, because `multiply`'s do not.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from xnq_dist.core.arrays import Floats, Ints32
from xnq_dist.core.products import multiply, pack

__all__ = ["class_sums"]

ROWS = 256
"""Rows of a block; they fit in a processor's level-2 cache."""


def class_sums(
    x: NDArray[Any], labels: Ints32, weights: Floats, coef: Floats, intercept: Floats
) -> Floats:
    """Log-losses of several regressions and their gradients.

    Parameters
    ----------
    x
        Rows, float32 or float64, shape (n, d).
    labels
        Class codes, shape (n,).
    weights
        Weight of each row in each problem, shape (p, n).
    coef, intercept
        The points, shape (p, k, d) and (p, k), for k >= 2 classes.

    Returns
    -------
    ndarray
        Loss, derivatives by the coefficients and by the intercepts, float64, shape
        (p, 1 + k d + k).
    """
    count, classes, width = coef.shape
    panels = pack(coef.reshape(-1, width).T)
    shifts = intercept.reshape(-1)
    # "W": for read-only arrays the kernel would be compiled once more.
    labels = np.require(labels, np.int32, ["C", "W"])
    losses, totals = np.zeros(count), np.zeros(len(shifts))
    slopes = np.zeros((width, len(shifts)))
    part = np.empty_like(slopes)
    for first in range(0, len(labels), ROWS):
        rows = x[first : first + ROWS].astype(np.float64)
        logits = np.empty((len(rows), len(shifts)))
        multiply(rows, panels, logits)
        logits += shifts
        excess = np.zeros((len(panels), len(rows), panels.shape[2]))
        _excess(logits, labels, weights, first, losses, totals, excess)
        multiply(rows.T, excess, part)
        slopes += part
    gradient = slopes.T.reshape(count, -1), totals.reshape(count, classes)
    return np.concatenate([losses[:, None], *gradient], axis=1)


@njit(cache=True, nogil=True)
def _excess(
    logits: Floats,
    labels: Ints32,
    weights: Floats,
    first: int,
    losses: Floats,
    totals: Floats,
    excess: Floats,
) -> None:
    """Add log-losses and P(class) minus the label; write the latter as panels.

    `logits` are those of the rows from `first` on, and are overwritten.
    """
    width, count = excess.shape[2], len(weights)
    classes = len(totals) // count
    for row in range(len(logits)):
        own = labels[first + row]
        panel, place = 0, 0
        for problem in range(count):
            weight, at = weights[problem, first + row], problem * classes
            top, mass, scale = -np.inf, 0.0, 0.0
            if weight:
                for c in range(at, at + classes):
                    top = max(top, logits[row, c])
                chosen = logits[row, at + own] - top
                for c in range(at, at + classes):
                    logits[row, c] = math.exp(logits[row, c] - top)
                    mass += logits[row, c]
                losses[problem] += weight * (math.log(mass) - chosen)
                scale = weight / mass
            for c in range(classes):
                value = 0.0
                if weight:
                    value = scale * logits[row, at + c]
                    if c == own:
                        value -= weight
                totals[at + c] += value
                excess[panel, row, place] = value
                place += 1
                if place == width:
                    panel, place = panel + 1, 0
