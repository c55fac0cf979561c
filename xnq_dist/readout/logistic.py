"""Logistic regressions fitted by block L-BFGS.

Minimises C times the summed log-loss plus half the squared coefficients; intercepts are
not penalised. Several fits share each pass over the rows. Everything is float64.

The Hessian is at most a quarter of the rows' covariance plus the penalty (for two
classes; with more, this serves as a scale). The solver works in coordinates in which
that bound is the identity, so collinear columns need no additional steps. One pass over
the rows computes the covariance for all folds and values of C. Where that is far from
the Hessian, as for classes that are almost perfectly separated, the coordinates are
rescaled by the Hessian itself after some rounds.

References
----------
D. Boehning, B. G. Lindsay, "Monotonicity of quadratic-approximation algorithms",
Annals of the Institute of Statistical Mathematics 40, 1988.
D. C. Liu, J. Nocedal, "On the limited memory BFGS method for large scale optimization",
Mathematical Programming 45, 1989.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cholesky
from scipy.linalg.lapack import dtrtri
from scipy.special import log_softmax

from xnq_dist.core.arrays import Floats, Floats32, Ints32
from xnq_dist.core.blocks import one_blas_thread
from xnq_dist.core.errors import InputError
from xnq_dist.core.products import product
from xnq_dist.core.threads import map_threads
from xnq_dist.readout.lbfgs import CONVERGED, Minimum, minimise
from xnq_dist.readout.objective import Problem, Rows, group_sums

__all__ = [
    "GRID",
    "FitJob",
    "LinearModel",
    "LogisticFit",
    "decision",
    "fit",
    "fit_jobs",
    "fit_on_threads",
    "row_losses",
    "warn_of_unconverged",
]

log = logging.getLogger(__name__)

GRID = tuple(float(10.0 ** (step / 2)) for step in range(-4, 7))
"""Values of C tried when it is to be selected: 1e-2 to 1e3 in half decades."""
ROUNDS, COLUMNS_A_ROUND = 12, 24
"""Evaluations of the objective before the coordinates are rescaled, and columns per
additional evaluation: a Hessian takes longer the more columns it has."""
REFRESHES = 20
"""Maximum number of times that the coordinates are rescaled."""
HALF = 0.5
"""Pseudo-labels of each class that smoothing adds."""


@dataclass(frozen=True, eq=False)
class LinearModel:
    """A linear readout, one row per class; with two classes the first row is 0."""

    coef: Floats
    """Weights, shape (C, d')."""
    intercept: Floats
    """Shape (C,)."""
    strength: float = 1.0
    """The inverse L2 strength C that it was fitted with."""
    converged: bool = True
    """Whether the solver reached its tolerance."""


@dataclass(frozen=True, eq=False)
class FitJob:
    """A regression to fit."""

    hidden: tuple[int, ...]
    """Folds whose rows are left out."""
    C: float
    """Inverse L2 strength."""
    start: LinearModel | None = None
    """A model to start from, such as the one for a neighbouring C."""


@dataclass(frozen=True, eq=False)
class LogisticFit:
    """A fitted regression, and its loss on the rows left out."""

    model: LinearModel
    loss: float
    """Sum of the weighted log-losses of the hidden rows."""


def fit_jobs(rows: Rows, jobs: Sequence[FitJob]) -> list[LogisticFit]:
    """Fit several regressions together, with one pass over the rows per round.

    Each class must have a row outside the hidden folds, unless the rows are smoothed.
    A fit that does not reach its tolerance has `converged` False.
    """
    with one_blas_thread():
        scales = {}
        for C in {job.C for job in jobs}:
            count, _ = rows.moments.without(())
            ridge = rows.penalty / (C * max(count, 1.0))
            scales[C] = _Scale.of(rows.moments.covariance() / 4, ridge)
        searches = [_Search(rows, job, scales[job.C]) for job in jobs]
        while running := [search for search in searches if search.result is None]:
            problems = [search.point for search in running]
            sums: Any = sum(group_sums(group, problems) for group in rows.groups())
            for search, of_search in zip(running, sums, strict=True):
                if not search.advance(of_search):
                    search.refresh()
        models = [search.result for search in searches if search.result is not None]
        losses: Any = np.zeros(len(jobs))
        if any(job.hidden for job in jobs):
            hidden = [job.hidden for job in jobs]
            groups = rows.groups()
            losses = sum(_hidden_losses(group, hidden, models) for group in groups)
    return [LogisticFit(*each) for each in zip(models, losses.tolist(), strict=True)]


def fit_on_threads(
    rows: Rows, jobs: Sequence[FitJob], threads: int
) -> list[LogisticFit]:
    """Fit several regressions on several threads; see `fit_jobs`."""
    size = -(-len(jobs) // threads)
    shares = [jobs[first : first + size] for first in range(0, len(jobs), size)]
    return list(chain(*map_threads(partial(fit_jobs, rows), shares, threads)))


def fit(
    x: NDArray[Any],
    y: Ints32,
    n_classes: int,
    C: float,
    smooth: bool = False,
    weights: Floats | None = None,
) -> LinearModel:
    """Fit all rows with one C.

    With `smooth`, half a label of every class is added at the mean of the rows: a class
    without a row then has a small probability, and few labels give no extreme
    intercepts. Without it, a class without a row is an `InputError`.
    """
    counts = np.bincount(y, minlength=n_classes)
    if n_classes < 2 or len(counts) > n_classes or not (counts.all() or smooth):
        raise InputError(
            f"a readout of {n_classes} classes cannot be fitted to rows of classes "
            f"{np.flatnonzero(counts).tolist()}: label at least one node of each class"
        )
    folds = np.zeros(len(y), np.int32)
    rows = Rows.of(x, y, folds, n_classes, weights, smooth)
    return fit_jobs(rows, [FitJob((), C)])[0].model


def warn_of_unconverged(models: Sequence[LinearModel]) -> None:
    """Log one warning if the solver did not reach its tolerance for some models."""
    strengths = [model.strength for model in models if not model.converged]
    if strengths:
        log.warning(
            "%d of %d fits of the readout did not converge (C up to %g): set a smaller "
            "readout.C",
            len(strengths),
            len(models),
            max(strengths),
        )


@dataclass(frozen=True, eq=False)
class _Scale:
    """Coordinates of coefficients in which the Hessian is close to the identity."""

    factor: Floats
    """Lower Cholesky factor of the Hessian, shape (d, d); roots, (d,), if wide."""
    inverse: Floats
    """Inverse of the factor."""

    @classmethod
    def of(cls, hessian: Floats, ridge: Floats | float) -> _Scale:
        """Construct from the Hessians of the loss (a diagonal, if wide) and penalty."""
        if hessian.ndim == 1:
            roots = np.sqrt(hessian + ridge)
            return cls(roots, 1 / roots)
        # Rounding may leave small negative eigenvalues.
        hessian[np.diag_indices(len(hessian))] += ridge + 1e-12 * np.trace(hessian)
        factor = cholesky(hessian, lower=True, overwrite_a=True, check_finite=False)
        return cls(factor, dtrtri(factor, lower=1)[0])


class _Search:
    """One fit: a sequence of points in scaled coordinates of centred rows."""

    def __init__(self, rows: Rows, job: FitJob, scale: _Scale) -> None:
        self._rows, self._job, self._scale = rows, job, scale
        self._outputs = 1 if rows.n_classes == 2 else rows.n_classes
        self._count, self._mean = rows.moments.without(job.hidden)
        self._count = self._count or 1.0
        self._middle, self._root = self._mean, 0.5
        self._rounds = ROUNDS + len(self._mean) // COLUMNS_A_ROUND
        self._ridge = rows.penalty / (job.C * self._count)
        coef = np.zeros((self._outputs, len(self._mean)))
        intercept = np.zeros(self._outputs)
        if job.start is not None:
            coef, intercept = job.start.coef, job.start.intercept
            if self._outputs == 1:
                coef, intercept = coef[1:] - coef[:1], intercept[1:] - intercept[:1]
        self.point = Problem(job.hidden, coef, intercept)
        """The point to evaluate next, in the coordinates of the rows."""
        self._refreshed = 0
        self.result: LinearModel | None = None
        self._begin()

    def _begin(self) -> None:
        factor, coef = self._scale.factor, self.point.coef
        scaled = coef * factor if factor.ndim == 1 else coef @ factor
        shift = (self.point.intercept + coef @ self._middle) * self._root
        start = np.column_stack([scaled, shift]).ravel()
        self._steps = minimise(start, self._rows.tolerance, self._rounds)
        self._move(next(self._steps))

    def _move(self, point: Floats) -> None:
        values, inverse = point.reshape(self._outputs, -1), self._scale.inverse
        scaled = values[:, :-1]
        coef = scaled * inverse if inverse.ndim == 1 else scaled @ inverse
        shift = values[:, -1] / self._root
        self.point = Problem(self._job.hidden, coef, shift - coef @ self._middle)

    def advance(self, sums: Floats) -> bool:
        """Take a step, from the total of `group_sums`; False: `refresh` is needed."""
        outputs, coef = self._outputs, self.point.coef
        loss, intercepts = sums[0], sums[-outputs:]
        slopes = sums[1:-outputs].reshape(coef.shape)
        if self._rows.smooth:
            logits = self.point.intercept + coef @ self._mean
            if outputs == 1:
                logits = np.concatenate([[0.0], logits])
            logs = log_softmax(logits)
            loss = loss - HALF * logs.sum()
            more = (HALF * (len(logs) * np.exp(logs) - 1))[-outputs:]
            slopes, intercepts = (
                slopes + more[:, None] * self._mean,
                intercepts + more,
            )
        value = loss / self._count + float((self._ridge * coef**2).sum()) / 2
        # Derivatives by the coefficients of centred rows.
        slopes = (slopes - intercepts[:, None] * self._middle) / self._count
        slopes, inverse = slopes + self._ridge * coef, self._scale.inverse
        slopes = slopes * inverse if inverse.ndim == 1 else slopes @ inverse.T
        shifts = intercepts / (self._count * self._root)
        gradient = np.column_stack([slopes, shifts]).ravel()
        try:
            self._move(self._steps.send((float(value), gradient)))
        except StopIteration as ended:
            minimum: Minimum = ended.value
            self._move(minimum.point)
            far = minimum.gain > self._rows.tolerance
            if far and minimum.rounds >= self._rounds:
                return False
            self._end(minimum.gain <= max(CONVERGED, self._rows.tolerance))
        return True

    def refresh(self) -> None:
        """Rescale the coordinates by the Hessian at the point."""
        if self._refreshed == REFRESHES:
            self._end(False)
            return
        self._refreshed += 1
        moments = self._rows.moments_at(self.point)
        weight, self._middle = moments.without(())
        hessian = moments.covariance() * (weight / self._count)
        self._root = max(float(np.sqrt(weight / self._count)), 1e-6)
        self._scale = _Scale.of(hessian, self._ridge)
        self._begin()

    def _end(self, converged: bool) -> None:
        coef, intercept = self.point.coef, self.point.intercept
        if self._outputs == 1:
            coef = np.concatenate([np.zeros_like(coef), coef])
            intercept = np.concatenate([np.zeros(1), intercept])
        self.result = LinearModel(coef, intercept, self._job.C, converged)


def _hidden_losses(
    group: Rows, hidden: Sequence[tuple[int, ...]], models: Sequence[LinearModel]
) -> Floats:
    """Summed log-loss of the rows that each model was not fitted to."""
    totals, weights = np.zeros(len(models)), group.used()
    for number, (folds, model) in enumerate(zip(hidden, models, strict=True)):
        held = np.isin(group.folds, folds)
        losses = row_losses(decision(model, group.x[held]), group.labels[held])
        totals[number] = (losses * weights[held]).sum()
    return totals


def decision(model: LinearModel, x: NDArray[Any]) -> Floats:
    """Logits of rows, float64, (n, C); bits of a row do not depend on the others."""
    weights = cast(Floats32, np.ascontiguousarray(model.coef.T))
    return np.asarray(product(x, weights) + model.intercept, np.float64)


def row_losses(logits: Floats, labels: Ints32) -> Floats:
    """Log-loss of each row, -log p(label), shape (n,)."""
    chosen = log_softmax(logits, axis=1)[np.arange(len(labels)), labels]
    return np.asarray(-chosen, np.float64)
