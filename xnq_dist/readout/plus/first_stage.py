"""The first stage of xnq+: a logistic regression for each block of columns and variant.

Blocks (reservoir, features, spectrum) are scaled to a total variance of 1 each, so they
share one grid of C. C is chosen by the out-of-fold loss of the single folds, with a
weak penalty on the distance from the middle of the grid, for tasks with few labels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xnq_dist.core.arrays import Floats, Ints32, offsets_of
from xnq_dist.core.kernel import kernel
from xnq_dist.core.products import product
from xnq_dist.readout.lbfgs import STACKED
from xnq_dist.readout.logistic import FitJob, LinearModel, fit_jobs, stacked
from xnq_dist.readout.objective import Rows
from xnq_dist.readout.plus.variants import Variants
from xnq_dist.readout.regularisation import cross_fit, search_from_middle

__all__ = ["GRID", "FirstStage", "block_rows", "columns_of", "fit_block"]

GRID = tuple(10.0**step for step in range(-1, 6))
"""Values of C for rows of total variance 1."""


@dataclass(frozen=True, eq=False)
class FirstStage:
    """Logistic readouts of every variant and block, for unscaled columns."""

    blocks: Sequence[int]
    """Columns of each block."""
    coef: Floats
    """Shape (V, C, columns)."""
    intercept: Floats
    """Shape (V, B, C)."""

    @classmethod
    def of(
        cls, blocks: Sequence[int], models: Sequence[Sequence[LinearModel]]
    ) -> FirstStage:
        """Construct from the models of each block, one for each variant."""
        coef, shifts = zip(*map(stacked, models), strict=True)
        return cls(blocks, np.concatenate(coef, axis=2), np.stack(shifts, axis=1))

    def scores(self, x: NDArray[Any]) -> Floats:
        """Return log-probabilities of rows, shape (n, V, B, C)."""
        count, classes, _ = self.coef.shape
        logs = np.empty((len(x), count, len(self.blocks), classes))
        for at, columns in enumerate(columns_of(self.blocks)):
            weights = self.coef[:, :, columns].reshape(count * classes, -1).T
            logits = product(x[:, columns], weights).reshape(len(x), count, classes)
            shifted_log_shares(logits, self.intercept[:, at], logs[:, :, at])
        return logs


@kernel
def shifted_log_shares(logits: Floats, shifts: Floats, out: Floats) -> None:
    """Log-probabilities, (n, V, C), of ``logits + shifts``."""
    for row in range(len(logits)):
        for v in range(len(shifts)):
            values, best = out[row, v], 0
            for c in range(len(values)):
                values[c] = logits[row, v, c] + shifts[v, c]
                if values[c] > values[best]:
                    best = c
            top, mass = values[best], 0.0
            for c in range(len(values)):
                values[c] -= top
                if c != best:
                    mass += math.exp(values[c])
            values -= math.log1p(mass)


def columns_of(blocks: Sequence[int]) -> list[slice]:
    """Return the columns of each block."""
    ends = offsets_of(blocks).tolist()
    return [slice(first, last) for first, last in pairwise(ends)]


def block_rows(
    x: NDArray[Any], labels: Ints32, folds: Ints32, weights: Floats, n_classes: int
) -> Rows:
    """Rows of one block's columns `x`, as its models are fitted to."""
    fields = x, labels, folds, n_classes, weights
    rows = Rows(*fields, smooth=True, tolerance=STACKED)
    rows.penalty = rows.moments.total_variance()
    return rows


def fit_block(
    x: NDArray[Any],
    columns: slice,
    labels: Ints32,
    folds: Ints32,
    weights: Floats,
    n_classes: int,
    grid: Sequence[float],
    variants: Variants,
    threads: int,
) -> list[LinearModel]:
    """Choose one block's C, and fit its models of every variant; runs as one task."""
    rows = block_rows(x[:, columns], labels, folds, weights, n_classes)
    each = [rows] * variants.folds
    single, _ = cross_fit(each, grid, search_from_middle, threads)
    # No start from a model of one hidden fold: it was fitted to the other fold.
    pairs = variants.hidden[variants.folds :]
    jobs = [FitJob(rows, hidden, single[0].strength) for hidden in pairs]
    return [*single, *fit_jobs(jobs, threads)]
