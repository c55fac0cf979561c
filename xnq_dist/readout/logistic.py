"""Logistic regression by scikit-learn, made fast and repeatable for this job.

Everything is float64: in float32 Newton's method fails once C is large and hundreds of
slow steps take its place. Features are centred, which leaves the optimum where it is
(the intercept is free) and takes L-BFGS a third of the steps. BLAS runs on one thread,
which is faster on a few thousand rows and gives the same bits on any machine load.
"""

from __future__ import annotations

import logging
import threading
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax

from xnq_dist.backend import choose
from xnq_dist.blocks import one_blas_thread
from xnq_dist.errors import InputError
from xnq_dist.products import product

__all__ = [
    "COARSE_GRID",
    "GRID",
    "LinearModel",
    "decision",
    "fit",
    "row_losses",
    "solver_guard",
]

log = logging.getLogger(__name__)

GRID = tuple(float(10.0 ** (step / 2)) for step in range(-4, 7))
"""Values of C tried when it is to be selected: 1e-2 to 1e3 in half decades."""
COARSE_GRID = GRID[::2]
"""Whole decades, for comparisons where speed matters more."""

TOLERANCE = 1e-6
"""Largest entry of the mean objective's gradient at which a solver stops."""
ROUGH = 1e-4
"""The same for Newton's method in a search: its next step would gain less than a
millionth of the loss, at half the cost again."""
SLACK = 10
"""Times the tolerance up to which a fit counts as converged: L-BFGS may stop at
rounding instead."""
NEWTON_BINARY = 4096
NEWTON_PARAMETERS = 256
"""Newton's method up to so many features (two classes) or parameters (more): its
Hessian has that many rows. L-BFGS beyond."""

HALF = 0.5
"""Labels of each class that smoothing adds."""

_ROUNDS = {"newton-cholesky": 100, "lbfgs": 1000, "last": 20_000}


@dataclass(frozen=True, eq=False)
class LinearModel:
    """A linear readout in logits form, one row a class; binary: the first row is 0."""

    coef: NDArray[np.float64]
    """Weights, shape (C, d')."""
    intercept: NDArray[np.float64]
    """Shape (C,)."""
    strength: float
    """The inverse L2 strength C that it was fitted with."""
    converged: bool
    """Whether the solver reached its tolerance."""


class _Guard:
    """Settings of the process that hold while any thread is inside.

    Threads of a worker fit at the same time, but the number of BLAS threads and the
    warning filters belong to the process: the first thread in has them set, the last
    one out has them put back.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._stack = ExitStack()

    def __enter__(self) -> None:
        with self._lock:
            if not self._inside:
                with ExitStack() as stack:
                    stack.enter_context(one_blas_thread())
                    stack.enter_context(warnings.catch_warnings())
                    _ignore_solver_warnings()
                    self._stack = stack.pop_all()
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside:
                self._stack.close()


_GUARD = _Guard()


def _ignore_solver_warnings() -> None:
    # Convergence is measured here on the gradient, recorded and logged.
    from scipy.linalg import LinAlgWarning
    from sklearn.exceptions import ConvergenceWarning

    for category in (ConvergenceWarning, LinAlgWarning):
        warnings.simplefilter("ignore", category)


@contextmanager
def solver_guard() -> Iterator[None]:
    """One BLAS thread and no solver warnings, safe in threads that overlap."""
    with _GUARD:
        yield


def fit(
    x: NDArray[Any],
    y: NDArray[np.int32],
    n_classes: int,
    C: float,
    start: LinearModel | None = None,
    rough: bool = False,
    backend: str = "cpu",
    smooth: bool = False,
    weights: NDArray[np.float64] | None = None,
) -> LinearModel:
    """Minimise C * sum of log-losses + |coef|^2 / 2 (the intercept is free).

    Parameters
    ----------
    x
        Embeddings, any float type, shape (n, d').
    y
        Class codes, each of 0..n_classes-1 at least once, shape (n,).
    n_classes
        Number of classes; two: one weight vector, more: multinomial.
    C
        Inverse L2 strength.
    start
        A model to start from, such as the one for a neighbouring C.
    rough
        Stop a step earlier, for a search.
    backend
        ``cpu``, or ``gpu``: L-BFGS over blocks of rows on the device.
    smooth
        Add half a label of every class at the mean of the rows: a class without a row
        has a small probability then, and few labels no extreme intercepts. On CPUs.
    weights
        Of the rows' log-losses, shape (n,); None: 1 each. On CPUs.

    Returns
    -------
    LinearModel
        With `converged` False, and a line in the log, when the solver gave up.

    Raises
    ------
    InputError
        When a class has no row.
    """
    counts = np.bincount(y, minlength=n_classes)
    if n_classes < 2 or len(counts) > n_classes or not (counts.all() or smooth):
        raise InputError(
            f"a readout of {n_classes} classes cannot be fitted to rows of classes "
            f"{np.flatnonzero(counts).tolist()}: each class needs a labelled node"
        )
    if backend == "gpu" and not smooth and weights is None:
        from xnq_dist.readout.blockwise import fit_blocks

        # Not rough: L-BFGS, unlike Newton, stops close to where it is told.
        found = fit_blocks(choose("gpu"), x, y, n_classes, C, start)
        if not found.converged:
            log.warning("readout with C = %g did not reach its tolerance", C)
        return found
    binary = n_classes == 2
    rows = x.astype(np.float64, order="C")
    middle = rows.mean(axis=0) if len(rows) else np.zeros(rows.shape[1])
    rows -= middle
    if smooth:
        rows = np.concatenate([rows, np.zeros((n_classes, rows.shape[1]))])
        y = np.concatenate([y, np.arange(n_classes, dtype=y.dtype)])
        own, weights = weights, np.ones(len(y))
        weights[-n_classes:] = HALF
        if own is not None:
            weights[:-n_classes] = own
    width = rows.shape[1] if binary else n_classes * rows.shape[1]
    newton = width <= (NEWTON_BINARY if binary else NEWTON_PARAMETERS)
    solver, tolerance = "lbfgs", TOLERANCE
    if smooth and rough:
        tolerance = ROUGH
    if newton:
        solver, tolerance = "newton-cholesky", ROUGH if rough else TOLERANCE
    model = None if start is None else _moved(start, middle)
    with solver_guard():
        model = _solve(rows, y, n_classes, C, model, solver, tolerance, weights)
        if not model.converged:
            model = _solve(rows, y, n_classes, C, model, "last", TOLERANCE, weights)
    if not model.converged:
        log.warning("readout with C = %g did not reach its tolerance", C)
    return _moved(model, -middle)


def _moved(model: LinearModel, shift: NDArray[np.float64]) -> LinearModel:
    """The same logits for features that have `shift` taken off."""
    return replace(model, intercept=model.intercept + model.coef @ shift)


def _solve(
    x: NDArray[np.float64],
    y: NDArray[np.int32],
    n_classes: int,
    C: float,
    start: LinearModel | None,
    solver: str,
    tolerance: float,
    weights: NDArray[np.float64] | None = None,
) -> LinearModel:
    from sklearn.linear_model import LogisticRegression

    estimator = LogisticRegression(
        C=C,
        solver="lbfgs" if solver == "last" else solver,
        tol=tolerance,
        max_iter=_ROUNDS[solver],
        warm_start=True,
    )
    if start is not None:
        coef, intercept = start.coef, start.intercept
        if n_classes == 2:
            coef, intercept = coef[1:] - coef[:1], intercept[1:] - intercept[:1]
        # The solver works on these arrays: they must not be the start model's own.
        estimator.coef_, estimator.intercept_ = coef.copy(), intercept.copy()
    estimator.fit(x, y, weights)
    coef, intercept = estimator.coef_, estimator.intercept_
    if n_classes == 2:
        coef = np.concatenate([np.zeros_like(coef), coef])
        intercept = np.concatenate([np.zeros(1), intercept])
    coef = np.ascontiguousarray(coef)
    slope = _gradient(x, y, coef, intercept, C, weights)
    return LinearModel(coef, intercept, C, bool(slope <= SLACK * tolerance))


def _gradient(
    x: NDArray[np.float64],
    y: NDArray[np.int32],
    coef: NDArray[np.float64],
    intercept: NDArray[np.float64],
    C: float,
    weights: NDArray[np.float64] | None = None,
) -> float:
    """Largest entry of the mean objective's gradient."""
    excess = np.exp(log_softmax(x @ coef.T + intercept, axis=1))
    excess[np.arange(len(y)), y] -= 1
    if weights is not None:
        excess *= weights[:, None]
    first = 1 if len(coef) == 2 else 0
    penalty = coef[first:] / (C * len(y))
    slopes = (excess.T @ x)[first:] / len(y) + penalty
    return float(max(np.abs(slopes).max(), np.abs(excess.mean(axis=0)).max()))


def decision(
    model: LinearModel, x: NDArray[Any], threads: int = 1
) -> NDArray[np.float64]:
    """Logits of rows; a row has the same bits wherever it stands.

    Parameters
    ----------
    model
        The readout.
    x
        Embeddings, any float type, shape (n, d').
    threads
        Blocks of rows worked on at a time.

    Returns
    -------
    NDArray
        Logits, float64, shape (n, C).
    """
    weights = cast(NDArray[np.float32], np.ascontiguousarray(model.coef.T))
    return np.asarray(product(x, weights, threads) + model.intercept, np.float64)


def row_losses(
    logits: NDArray[np.float64], labels: NDArray[np.int32]
) -> NDArray[np.float64]:
    """Log-loss of each row, -log p(label), shape (n,)."""
    chosen = log_softmax(logits, axis=1)[np.arange(len(labels)), labels]
    return np.asarray(-chosen, np.float64)
