"""The objective of logistic regressions, as sums over blocks of rows, and L-BFGS.

Sums are added in the order of the rows, and those of one problem do not depend on the
other problems of the pass. So results have the same bits for any number of workers.

Losses and gradients are compiled: a BLAS packs the rows anew for each problem, which
takes as long as the sums of a few classes. Here the problems of a pass are the columns
of one matrix, and `multiply` gives each its bits whatever the others are.

L-BFGS is a generator, so that several fits can share each pass over the rows.

References
----------
J. Nocedal, S. J. Wright, "Numerical Optimization", 2nd edition, 2006, algorithm 7.4.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xnq_dist.core.arrays import Bools, Floats, Ints32, slices
from xnq_dist.core.kernel import kernel
from xnq_dist.core.products import multiply, pack
from xnq_dist.core.threads import one_blas_thread

__all__ = [
    "CONVERGED",
    "STACKED",
    "TOLERANCE",
    "Problem",
    "Rows",
    "Sums",
    "minimise",
]

Sums = tuple[float, Floats, Floats]
"""A problem's log-loss, and its derivatives by the coefficients and the intercepts."""

TOLERANCE, CONVERGED = 1e-10, 1e-7
"""Expected decreases by another step, relative to the value: at which a fit stops
(posteriors at most 5e-5 from the optimum's in 24 fits to 400 rows), and up to which one
that rounding stops has converged (1e-3).
"""
STACKED = 1e-5
"""The same for models whose output others use: even 1e-4 changed the log-loss of
unlabelled nodes by .1 % only (nine tasks), and with 1e-7 fits took 1.5 times as long.
"""

VALUES = 1 << 16
"""Values of a block of rows."""
ROUNDING = 1e-13
"""Rounding error of a variance, relative to the column's mean square."""

MEMORY = 20
"""Number of recent steps in the model of the curvature."""
SUFFICIENT = 1e-4
"""Part of the predicted decrease that a step must reach (Armijo)."""
HALVINGS = 40
"""Maximum number of halvings of a step."""
LOSS_ROUNDING = 1e-14
"""Relative increase of the value that is attributed to rounding."""

Evaluation = Generator[Any, Any, tuple[float, Floats]]
"""Of a point: yields what it needs sums of, is sent them, returns value and gradient.
"""


@dataclass(frozen=True, eq=False)
class Moments:
    """Weighted moments of the rows with a fold."""

    counts: Floats
    """Summed weights of each fold, shape (K,)."""
    totals: Floats
    """Sum of the rows of each fold, shape (K, d)."""
    products: Floats
    """Sum of their outer products, shape (d, d)."""

    def without(self, hidden: Sequence[int]) -> tuple[float, Floats]:
        """Summed weights and mean of the rows outside the folds `hidden`."""
        used = ~np.isin(np.arange(len(self.counts)), hidden)
        count = self.counts[used].sum()
        return count, self.totals[used].sum(axis=0) / max(count, 1e-300)

    def covariance(self) -> Floats:
        """Covariance of all rows, shape (d, d).

        A bound of the rounding error is added, so that variances are not negative.
        """
        count, mean = self.without(())
        values = self.products / max(count, 1e-300)
        rounded = ROUNDING * values.diagonal()
        values -= np.outer(mean, mean)
        values[np.diag_indices(len(values))] += rounded
        return values

    def total_variance(self) -> float:
        """Sum of the columns' variances; 1 if all are constant."""
        total = np.trace(self.covariance())
        # Of constant columns, it is the rounding error of the squares.
        size = np.trace(self.products) / max(1.0, self.counts.sum())
        return total if total > 2 * ROUNDING * size else 1.0


@dataclass(frozen=True, eq=False)
class Problem:
    """One regression at one point."""

    hidden: tuple[int, ...]
    """Folds whose rows are left out."""
    coef: Floats
    """Shape (k, d): k = 1 for two classes, C for more."""
    intercept: Floats
    """Shape (k,)."""


@dataclass(eq=False)
class Rows:
    """Labelled rows, and options of their fits."""

    x: NDArray[Any]
    """Embeddings, any float type, shape (n, d)."""
    labels: Ints32
    """Class codes, shape (n,)."""
    folds: Ints32
    """Folds from 0 on, shape (n,); rows of a negative fold are in no fit."""
    n_classes: int
    weights: Floats | float = 1.0
    """Weights of the rows' log-losses, shape (n,), or the same of all."""
    smooth: bool = False
    """Whether half a label of each class is added at the mean of the rows: a class
    without a row then has a small probability, and few labels give no extreme
    intercepts."""
    penalty: Floats | float = 1.0
    """Factor of each column's penalty: 1, or its variance for scaled columns."""
    tolerance: float = TOLERANCE
    """Expected relative decrease of the objective at which a fit stops."""
    moments: Moments = field(init=False)
    """Moments of all rows with a fold, which all fits share."""

    def __post_init__(self) -> None:
        self.moments = self.moments_of(self.folds.max(initial=0) + 1)

    @cached_property
    def used(self) -> Floats:
        """Weights of the rows, 0 without a fold, shape (n,)."""
        return np.where(self.folds >= 0, self.weights, 0.0)

    @property
    def outputs(self) -> int:
        """Logits of a row: of two classes, that of the first is 0."""
        return 1 if self.n_classes == 2 else self.n_classes

    def blocks(self, least: int = 1) -> list[slice]:
        """Blocks of `least` rows, or more that fit in a level-2 cache as float64."""
        count, width = self.x.shape
        return slices(count, max(least, VALUES // max(1, width)))

    def moments_of(self, folds: int, problem: Problem | None = None) -> Moments:
        """Moments of the rows with a fold.

        With a problem, all rows count as one fold and are weighted by the curvature of
        their losses (for more than two classes, its mean), else by their weights.
        """
        width, used = self.x.shape[1], self.used
        counts, totals = np.zeros(folds), np.zeros((folds, width))
        products = np.zeros((width, width))
        with one_blas_thread():
            # Of few rows, adding outer products would take as long as they do.
            for block in self.blocks(width // 4):
                rows = self.x[block].astype(np.float64)
                fold, weights = self.folds[block], used[block]
                if problem is not None:
                    coef = np.ascontiguousarray(problem.coef.T)
                    curvature = _curvature(rows @ coef + problem.intercept)
                    weights = weights * ~np.isin(fold, problem.hidden) * curvature
                    fold = np.zeros_like(fold)
                of_fold = weights * (fold == np.arange(folds)[:, None])
                counts += of_fold.sum(axis=1)
                totals += of_fold @ rows
                # A matrix times its own transpose takes a BLAS half the work.
                rows *= np.sqrt(weights)[:, None]
                products += rows.T @ rows
        return Moments(counts, totals, products)

    def sums(self, problems: Sequence[Problem]) -> list[Sums]:
        """Log-losses of several problems of the same shape, and their gradients."""
        coef = np.stack([each.coef for each in problems])
        intercept = np.stack([each.intercept for each in problems])
        count, classes, width = coef.shape
        columns = count * classes
        panels = pack(coef.reshape(columns, width).T)
        # Whole panels: products then have no edges.
        padded = panels.shape[0] * panels.shape[2]
        # "W": for read-only arrays the kernel would be compiled once more.
        labels = np.require(self.labels, np.int32, ["C", "W"])
        folds = np.require(self.folds, np.int32, ["C", "W"])
        # A hidden fold may have no rows, where there are few labels.
        places = np.arange(len(self.moments.counts))
        visible = np.stack([~np.isin(places, each.hidden) for each in problems])
        losses, totals = np.zeros(count), np.zeros(columns)
        slopes, part = np.zeros((width, padded)), np.empty((width, padded))
        for block in self.blocks():
            rows = self.x[block].astype(np.float64)
            logits = np.empty((len(rows), padded))
            multiply(rows, panels, logits)
            known = labels[block], folds[block], self.used[block], visible
            _add_losses(logits, intercept.ravel(), *known, losses, totals)
            excess = logits.reshape(len(rows), *panels.shape[::2]).swapaxes(0, 1)
            multiply(rows.T, np.ascontiguousarray(excess), part)
            slopes += part
        by_coef = np.ascontiguousarray(slopes[:, :columns].T).reshape(coef.shape)
        by_intercept = totals.reshape(count, classes)
        return list(zip(losses, by_coef, by_intercept, strict=True))


def minimise(
    start: Floats,
    evaluate: Callable[[Floats], Evaluation],
    tolerance: float,
    max_rounds: int,
) -> Generator[Any, Any, tuple[Floats, float, int]]:
    """Minimise a smooth convex function.

    Coordinates should be scaled so that the curvature is at most about 1. The search
    stops where the predicted decrease by another step, relative to the value, is below
    `tolerance`, after `max_rounds` points, or where rounding prevents a decrease.

    Returns
    -------
    The point, the predicted decrease by another step, relative to the value, and the
    number of points evaluated.
    """
    point = start.copy()
    value, gradient = yield from evaluate(point)
    rounds = 1
    steps: list[tuple[Floats, Floats, float]] = []
    while True:
        direction = -_inverse_times(gradient, steps)
        slope = float(gradient @ direction)
        if slope > 0:  # rounding has made the model indefinite: restart it
            steps, direction = [], -gradient
            slope = float(gradient @ direction)
        gain = -slope / 2 / max(abs(value), np.finfo(float).tiny)
        if gain <= tolerance or rounds >= max_rounds:
            break
        length = 1.0
        slack = LOSS_ROUNDING * abs(value)
        for _ in range(HALVINGS):
            trial = point + length * direction
            new_value, new_gradient = yield from evaluate(trial)
            rounds += 1
            if new_value <= value + SUFFICIENT * length * slope + slack:
                break
            length /= 2
        else:
            break
        step, change = trial - point, new_gradient - gradient
        curvature = float(step @ change)
        # Positive by convexity, except for rounding near the optimum.
        if curvature > 1e-12 * float(np.sqrt((step @ step) * (change @ change))):
            steps = [*steps[-MEMORY + 1 :], (step, change, curvature)]
        point, value, gradient = trial, new_value, new_gradient
    return point, gain, rounds


def _curvature(logits: Floats) -> Floats:
    """Second derivative of losses by a logit, mean over the classes, shape (m,)."""
    if logits.shape[1] == 1:
        half = np.exp(-np.abs(logits[:, 0]))
        return half / (1.0 + half) ** 2
    shares = np.exp(logits - logits.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    return np.asarray((shares * (1.0 - shares)).mean(axis=1))


@kernel
def _add_losses(
    logits: Floats,
    shifts: Floats,
    labels: Ints32,
    folds: Ints32,
    weights: Floats,
    visible: Bools,
    losses: Floats,
    totals: Floats,
) -> None:
    """Add the losses of a block of rows, and their derivatives by the logits.

    These replace the logits, to which `shifts` are added first: weight times P(class)
    minus the label, shape (m, p k).
    """
    problems = len(visible)
    classes = len(totals) // problems
    # By element: views of a row's classes take half as long again.
    for row in range(len(logits)):
        label = labels[row]
        for column in range(len(shifts)):
            logits[row, column] += shifts[column]
        for problem in range(problems):
            at = problem * classes
            # Of fold -1, the weight is 0.
            weight = weights[row] * visible[problem, folds[row]]
            if not weight:
                for c in range(at, at + classes):
                    logits[row, c] = 0.0
            elif classes == 1:
                margin = logits[row, at] if label else -logits[row, at]
                half = math.exp(-abs(margin))
                losses[problem] += weight * (max(-margin, 0.0) + math.log1p(half))
                wrong = (half if margin > 0 else 1.0) / (1.0 + half)
                logits[row, at] = weight * (-wrong if label else wrong)
            else:
                top, mass = -np.inf, 0.0
                for c in range(at, at + classes):
                    top = max(top, logits[row, c])
                chosen = logits[row, at + label] - top
                for c in range(at, at + classes):
                    logits[row, c] = math.exp(logits[row, c] - top)
                    mass += logits[row, c]
                losses[problem] += weight * (math.log(mass) - chosen)
                for c in range(at, at + classes):
                    logits[row, c] *= weight / mass
                logits[row, at + label] -= weight
        for column in range(len(totals)):
            totals[column] += logits[row, column]


def _inverse_times(
    gradient: Floats, steps: list[tuple[Floats, Floats, float]]
) -> Floats:
    """Inverse Hessian times the gradient, by the two-loop recursion."""
    rest = gradient.copy()
    shares = []
    for step, change, curvature in reversed(steps):
        share = float(step @ rest) / curvature
        rest -= share * change
        shares.append(share)
    if steps:
        _, change, curvature = steps[-1]
        rest *= curvature / float(change @ change)
    for (step, change, curvature), share in zip(steps, reversed(shares), strict=True):
        rest += (share - float(change @ rest) / curvature) * step
    return rest
