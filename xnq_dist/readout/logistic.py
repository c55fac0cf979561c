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
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cholesky
from scipy.linalg.lapack import dtrtri
from scipy.special import log_softmax

from xnq_dist.core.arrays import Floats, Floats32, Ints32, slices
from xnq_dist.core.errors import InputError
from xnq_dist.core.products import VECTOR_BYTES, VECTORS, product
from xnq_dist.core.threads import map_threads, one_blas_thread
from xnq_dist.readout.objective import (
    CONVERGED,
    Evaluation,
    Problem,
    Rows,
    Sums,
    minimise,
)

__all__ = [
    "GRID",
    "FitJob",
    "LinearModel",
    "decision",
    "fit",
    "fit_jobs",
    "log_shares",
    "row_losses",
    "stacked",
    "warn_of_unconverged",
]

log = logging.getLogger(__name__)

GRID = tuple(10.0 ** (step / 2) for step in range(-4, 7))
"""Values of C tried when it is to be selected: 1e-2 to 1e3 in half decades."""
ROUNDS, COLUMNS_A_ROUND = 12, 24
"""Evaluations of the objective before the coordinates are rescaled, and columns per
additional evaluation: a Hessian takes longer the more columns it has."""
REFRESHES = 20
"""Maximum number of times that the coordinates are rescaled."""
PANEL = VECTORS * VECTOR_BYTES // 8
"""Columns that `multiply` computes at a time."""
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

    rows: Rows
    hidden: tuple[int, ...]
    """Folds whose rows are left out."""
    C: float
    """Inverse L2 strength."""
    start: LinearModel | None = None
    """A model to start from, such as the one for a neighbouring C."""


def fit_jobs(jobs: Sequence[FitJob], threads: int = 1) -> list[LinearModel]:
    """Fit several regressions; those that share rows share each pass over them.

    Each class must have a row outside the hidden folds, unless the rows are smoothed.
    A fit that does not reach its tolerance has `converged` False.
    """
    count = len(jobs)
    if len({job.rows for job in jobs}) == 1:
        # Fits of the same rows take as long as one, while they fill one panel.
        count = -(-count * jobs[0].rows.outputs // PANEL)
    size = max(1, -(-len(jobs) // max(1, min(threads, count))))
    shares = [jobs[block] for block in slices(len(jobs), size)]
    return list(chain(*map_threads(_fit_together, shares, threads)))


def _fit_together(jobs: Sequence[FitJob]) -> list[LinearModel]:
    with one_blas_thread():
        scales = {
            (rows, C): _scale(
                rows.moments.covariance() / 4,
                rows.penalty / (C * max(rows.moments.counts.sum(), 1.0)),
            )
            for rows, C in {(job.rows, job.C) for job in jobs}
        }
        searches = [_search(job, *scales[job.rows, job.C]) for job in jobs]
        running = {at: next(search) for at, search in enumerate(searches)}
        models: dict[int, LinearModel] = {}
        while running:
            for rows in {jobs[at].rows for at in running}:
                places = [at for at in running if jobs[at].rows is rows]
                sums = rows.sums([running[at] for at in places])
                for at, of_search in zip(places, sums, strict=True):
                    try:
                        running[at] = searches[at].send(of_search)
                    except StopIteration as ended:
                        models[at] = ended.value
                        del running[at]
        return [models[at] for at in range(len(jobs))]


def fit(
    x: NDArray[Any],
    y: Ints32,
    n_classes: int,
    C: float,
    weights: Floats | float = 1.0,
) -> LinearModel:
    """Fit all rows with one C; a class without a row is an `InputError`."""
    counts = np.bincount(y, minlength=n_classes)
    if n_classes < 2 or len(counts) > n_classes or not counts.all():
        raise InputError(
            f"a readout of {n_classes} classes cannot be fitted to rows of classes "
            f"{np.flatnonzero(counts).tolist()}: label at least one node of each class"
        )
    folds = np.zeros(len(y), np.int32)
    rows = Rows(x, y, folds, n_classes, weights)
    return fit_jobs([FitJob(rows, (), C)])[0]


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


def _scale(hessian: Floats, ridge: Floats | float) -> tuple[Floats, Floats]:
    """Coordinates of coefficients in which the Hessian is close to the identity.

    `hessian` is that of the loss, `ridge` the diagonal of the penalty's. Returns the
    lower Cholesky factor of the Hessian, shape (d, d), and its inverse.
    """
    # Rounding may leave small negative eigenvalues.
    hessian[np.diag_indices(len(hessian))] += ridge + 1e-12 * np.trace(hessian)
    factor = cholesky(hessian, lower=True, overwrite_a=True, check_finite=False)
    return factor, dtrtri(factor, lower=1)[0]


def _search(
    job: FitJob, factor: Floats, inverse: Floats
) -> Generator[Problem, Sums, LinearModel]:
    """One fit in coordinates of centred rows that `_scale` made.

    Yields points, is sent their `Rows.sums`, and returns the model.
    """
    rows = job.rows
    outputs = rows.outputs
    count, mean = rows.moments.without(job.hidden)
    count = count or 1.0
    middle, root, ridge = mean, 0.5, rows.penalty / (job.C * count)
    rounds = ROUNDS + len(mean) // COLUMNS_A_ROUND
    at = Problem(job.hidden, np.zeros((outputs, len(mean))), np.zeros(outputs))
    if job.start is not None:
        ends = job.start.coef[-outputs:], job.start.intercept[-outputs:]
        at = Problem(job.hidden, *ends)

    def problem_of(point: Floats) -> Problem:
        values = point.reshape(outputs, -1)
        found = values[:, :-1] @ inverse
        return Problem(job.hidden, found, values[:, -1] / root - found @ middle)

    def evaluate(point: Floats) -> Evaluation:
        problem = problem_of(point)
        loss, slopes, intercepts = yield problem
        if rows.smooth:
            logits = np.zeros(rows.n_classes)
            logits[-outputs:] = problem.intercept + problem.coef @ mean
            # Of a few values, SciPy's log_softmax takes a tenth of a fit.
            logs = logits - np.logaddexp.reduce(logits)
            loss = loss - HALF * logs.sum()
            more = (HALF * (len(logs) * np.exp(logs) - 1))[-outputs:]
            slopes = slopes + more[:, None] * mean
            intercepts = intercepts + more
        value = loss / count + (ridge * problem.coef**2).sum() / 2
        # Derivatives by the coefficients of centred rows.
        slopes = (slopes - intercepts[:, None] * middle) / count
        slopes = (slopes + ridge * problem.coef) @ inverse.T
        gradient = np.column_stack([slopes, intercepts / (count * root)])
        return value, gradient.ravel()

    converged = False
    for refreshed in range(REFRESHES + 1):
        if refreshed:
            # Rescale the coordinates by the Hessian at the point.
            moments = rows.moments_of(1, at)
            weight, middle = moments.without(())
            root = max(np.sqrt(weight / count), 1e-6)
            factor, inverse = _scale(moments.covariance() * (weight / count), ridge)
        shift = (at.intercept + at.coef @ middle) * root
        start = np.column_stack([at.coef @ factor, shift]).ravel()
        found = yield from minimise(start, evaluate, rows.tolerance, rounds)
        point, gain, tried = found
        at = problem_of(point)
        if gain <= rows.tolerance or tried < rounds:
            converged = gain <= max(CONVERGED, rows.tolerance)
            break
    # With two classes, the logit of the first is 0.
    fixed = rows.n_classes - outputs
    coef = np.pad(at.coef, [(fixed, 0), (0, 0)])
    return LinearModel(coef, np.pad(at.intercept, (fixed, 0)), job.C, converged)


def stacked(models: Sequence[LinearModel]) -> tuple[Floats, Floats]:
    """Coefficients and intercepts of several models, with a first axis for these."""
    coef = np.stack([model.coef for model in models])
    return coef, np.stack([model.intercept for model in models])


def decision(model: LinearModel, x: NDArray[Any]) -> Floats:
    """Logits of rows, float64, (n, C); bits of a row do not depend on the others."""
    weights = cast(Floats32, np.ascontiguousarray(model.coef.T))
    return product(x, weights) + model.intercept


def row_losses(logits: Floats, labels: Ints32) -> Floats:
    """Log-loss of each row, -log p(label), shape (n,)."""
    chosen = log_shares(logits)[np.arange(len(labels)), labels]
    return -chosen


def log_shares(logits: Floats) -> Floats:
    """Log-softmax of each row; along the few columns, SciPy's takes twice the time."""
    found = log_softmax(np.ascontiguousarray(logits.T), axis=0)
    return np.ascontiguousarray(found.T)
