"""The objective of logistic regressions on a processor, compiled.

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
from xnq_dist.core.products import VECTOR_BYTES, multiply, multiply_narrow, pack

__all__ = ["row_sums"]

VALUES = 1 << 16
"""Float64 values of a block of rows; they fit in a processor's level-2 cache."""


def row_sums(
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
        The points, shape (p, k, d) and (p, k): k = 1 for two classes, C for more.

    Returns
    -------
    ndarray
        Loss, derivatives by the coefficients and by the intercepts, float64, shape
        (p, 1 + k d + k).
    """
    count, classes, width = coef.shape
    columns = count * classes
    # The bits are the same with both.
    narrow = columns * coef.itemsize <= VECTOR_BYTES
    matrix = coef.reshape(-1, width).T
    panels = pack(matrix, 1) if narrow else pack(matrix)
    # Whole panels: products then have no edges.
    more = panels.shape[0] * panels.shape[2] - columns
    shifts = np.pad(intercept.ravel(), (0, more))
    # "W": for read-only arrays the kernel would be compiled once more.
    labels = np.require(labels, np.int32, ["C", "W"])
    losses, totals = np.zeros(count), np.zeros(columns)
    slopes, some = np.zeros((width, len(shifts))), max(1, VALUES // max(1, width))
    for first in range(0, len(labels), some):
        rows = x[first : first + some].astype(np.float64)
        sums = shifts, losses, totals, slopes
        _add_sums(rows, labels, weights, first, panels, narrow, sums)
    gradient = slopes[:, :columns].T.reshape(count, -1), totals.reshape(count, classes)
    return np.concatenate([losses[:, None], *gradient], axis=1)


@njit(cache=True, nogil=True)
def _add_sums(
    rows: Floats,
    labels: Ints32,
    weights: Floats,
    first: int,
    panels: Floats,
    narrow: bool,
    sums: tuple[Floats, Floats, Floats, Floats],
) -> None:
    """Add a block's sums, the rows from `first` on, to `sums` but the first."""
    shifts, losses, totals, slopes = sums
    logits = np.empty((len(rows), len(shifts)))
    # P(class) minus the label, as panels.
    excess = np.zeros((len(panels), len(rows), panels.shape[2]))
    if narrow:
        multiply_narrow(rows, panels[0], logits)
    else:
        multiply(rows, panels, logits)
    width, count = excess.shape[2], len(weights)
    classes = len(totals) // count
    for row in range(len(logits)):
        for c in range(len(shifts)):  # expressions of arrays take seconds to compile
            logits[row, c] += shifts[c]
        own = labels[first + row]
        panel, place = 0, 0
        for problem in range(count):
            weight, at = weights[problem, first + row], problem * classes
            top, mass, scale = -np.inf, 0.0, 0.0
            if weight and classes == 1:
                margin = logits[row, at] if own else -logits[row, at]
                half = math.exp(-abs(margin))
                losses[problem] += weight * (max(-margin, 0.0) + math.log1p(half))
                wrong = (half if margin > 0 else 1.0) / (1.0 + half)
                logits[row, at] = -wrong if own else wrong
                scale = weight
            elif weight:
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
                    if classes > 1 and c == own:
                        value -= weight
                totals[at + c] += value
                excess[panel, row, place] = value
                place += 1
                if place == width:
                    panel, place = panel + 1, 0
    part = np.empty(slopes.shape)
    if narrow:
        multiply_narrow(rows.T, excess[0], part)
    else:
        multiply(rows.T, excess, part)
    for row in range(len(part)):
        for c in range(len(shifts)):
            slopes[row, c] += part[row, c]
