"""Logistic regression of more rows than fit: sums over row blocks, in their order.

The objective is that of `logistic.fit`. Rows come in groups of `GROUP_ROWS` in
canonical order, whatever the partitions; within a group products have `PRODUCT_ROWS`
rows (the last one padded with rows that weigh nothing). So the sums are the same
wherever a group is worked on. All folds share a pass over the rows.

L-BFGS starts from the curvature bound of the objective: for two classes the Hessian is
at most a quarter of the covariance of the rows, plus the penalty (for more classes a
quarter serves as a scale). One pass over the rows makes it, and the embedding's
collinear columns cost no more steps than others.

References
----------
D. Boehning, B. G. Lindsay, "Monotonicity of quadratic-approximation algorithms",
Annals of the Institute of Statistical Mathematics 40, 1988.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax

from xnq_dist.blocks import one_blas_thread
from xnq_dist.readout.lbfgs import Found, minimise
from xnq_dist.readout.logistic import SLACK, TOLERANCE, LinearModel, row_losses

__all__ = [
    "GROUP_ROWS",
    "WHOLE",
    "Moments",
    "Problem",
    "Terms",
    "add_moments",
    "curvature",
    "fit_problems",
    "fold_logits",
    "group_moments",
    "group_terms",
]

GROUP_ROWS = 1 << 15
"""Labelled rows of a group: what a task holds."""
PRODUCT_ROWS = 1 << 11
"""Rows of one product."""
WIDEST = 1024
"""Widest embedding whose covariance is made; beyond, L-BFGS starts from variances."""
WHOLE = -1
"""The problem that leaves no fold out."""

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Moments:
    """Of the rows that any problem uses."""

    rows: int
    total: Floats
    """Sum of the rows, shape (d',)."""
    products: Floats
    """Sum of their outer products, shape (d', d'); of squares, (d',), if wide."""


@dataclass(frozen=True, eq=False)
class Problem:
    """One regression at the point that is asked about."""

    fold: int
    """The fold left out, or `WHOLE`; rows of fold below 0 are never in."""
    coef: Floats
    """Shape (K, d'): K = 1 for two classes, C for more."""
    intercept: Floats
    """Shape (K,)."""


@dataclass(frozen=True, eq=False)
class Terms:
    """A group's share of one problem's objective, penalty left out."""

    loss: float
    coef: Floats
    """Gradient, shape (K, d')."""
    intercept: Floats
    """Shape (K,)."""


def group_moments(x: NDArray[Any], folds: NDArray[np.int32]) -> Moments:
    """Moments of a group's rows whose fold is not negative.

    Parameters
    ----------
    x
        Embeddings, any float type, shape (m, d').
    folds
        Shape (m,).
    """
    width = x.shape[1]
    wide = width > WIDEST
    total = np.zeros(width)
    products = np.zeros(width if wide else (width, width))
    with one_blas_thread():
        for rows, _, fold in _padded(x, np.zeros(len(x), np.int32), folds):
            rows[fold < 0] = 0.0
            total += rows.sum(axis=0)
            products += (rows**2).sum(axis=0) if wide else rows.T @ rows
    return Moments(int((folds >= 0).sum()), total, products)


def add_moments(before: Moments | None, found: Sequence[Moments]) -> Moments:
    """The sum, in order."""
    for more in found:
        before = (
            more
            if before is None
            else Moments(
                before.rows + more.rows,
                before.total + more.total,
                before.products + more.products,
            )
        )
    if before is None:
        raise ValueError("there are no moments to add")
    return before


def group_terms(
    x: NDArray[Any],
    labels: NDArray[np.int32],
    folds: NDArray[np.int32],
    problems: Sequence[Problem],
) -> list[Terms]:
    """A group's part of every problem's loss and gradient.

    Parameters
    ----------
    x
        Embeddings, any float type, shape (m, d').
    labels, folds
        Class codes and folds, shape (m,).
    problems
        All of one K.
    """
    k, count, width = len(problems[0].coef), len(problems), x.shape[1]
    weights = np.concatenate([p.coef for p in problems]).T.copy()
    intercepts = np.concatenate([p.intercept for p in problems])
    losses = np.zeros(count)
    slopes, shifts = np.zeros((count * k, width)), np.zeros(count * k)
    with one_blas_thread():
        for rows, label, fold in _padded(x, labels, folds):
            scores = rows @ weights + intercepts
            for at, problem in enumerate(problems):
                inside = (fold >= 0) & (fold != problem.fold)
                own = scores[:, at * k : (at + 1) * k]
                losses[at] += _to_excess(own, label, inside)
            slopes += scores.T @ rows
            shifts += scores.sum(axis=0)
    return [
        Terms(
            float(losses[at]),
            slopes[at * k : (at + 1) * k],
            shifts[at * k : (at + 1) * k],
        )
        for at in range(count)
    ]


def _to_excess(
    scores: Floats, labels: NDArray[np.int32], inside: NDArray[np.bool_]
) -> float:
    """Scores become P(class) less the label, 0 for rows outside; the sum of losses."""
    if scores.shape[1] == 1:
        margin = np.where(labels == 1, scores[:, 0], -scores[:, 0])
        # log(1 + exp(-margin)) without overflow.
        loss = np.logaddexp(0.0, -margin)
        scores[:, 0] = np.where(labels == 1, -1.0, 1.0) * np.exp(-margin - loss)
    else:
        logs = log_softmax(scores, axis=1)
        at = np.arange(len(labels)), labels
        loss = -logs[at]
        scores[:] = np.exp(logs)
        scores[at] -= 1.0
    scores[~inside] = 0.0
    return float(loss[inside].sum())


def _padded(
    x: NDArray[Any], labels: NDArray[np.int32], folds: NDArray[np.int32]
) -> Iterator[tuple[Floats, NDArray[np.int32], NDArray[np.int32]]]:
    """Rows in float64, `PRODUCT_ROWS` at a time; padding has fold -1."""
    for first in range(0, len(x), PRODUCT_ROWS):
        some = x[first : first + PRODUCT_ROWS]
        rows = np.zeros((PRODUCT_ROWS, x.shape[1]))
        rows[: len(some)] = some
        label = np.zeros(PRODUCT_ROWS, np.int32)
        label[: len(some)] = labels[first : first + PRODUCT_ROWS]
        fold = np.full(PRODUCT_ROWS, -1, np.int32)
        fold[: len(some)] = folds[first : first + PRODUCT_ROWS]
        yield rows, label, fold


def fold_logits(
    x: NDArray[Any],
    labels: NDArray[np.int32],
    folds: NDArray[np.int32],
    models: Sequence[LinearModel],
) -> tuple[NDArray[np.float64], Floats]:
    """Logits of each row by the model of its own fold, and each fold's loss.

    Parameters
    ----------
    models
        One a fold.

    Returns
    -------
    tuple
        Logits, shape (m, C), NaN for rows without a fold, and sums of losses, shape
        (folds,).
    """
    from xnq_dist.readout.logistic import decision

    logits = np.full((len(x), len(models[0].coef)), np.nan)
    losses = np.zeros(len(models))
    for fold, model in enumerate(models):
        own = folds == fold
        if own.any():
            logits[own] = decision(model, x[own])
            losses[fold] = row_losses(logits[own], labels[own]).sum()
    return logits, losses


def fit_problems(
    evaluate: Callable[[Sequence[Problem]], Iterable[Sequence[Terms]]],
    moments: Moments,
    counts: Mapping[int, int],
    n_classes: int,
    C: float,
    starts: Mapping[int, LinearModel] | None = None,
    tolerance: float = TOLERANCE,
) -> dict[int, LinearModel]:
    """Fit several problems side by side, one pass over the rows a round.

    Parameters
    ----------
    evaluate
        The terms of the problems from every group, in the order of the groups.
    moments
        Of all rows.
    counts
        Rows of each problem, by the fold it leaves out.
    n_classes
        C.
    C
        Inverse L2 strength.
    starts
        Models to start from, by fold.
    tolerance
        Largest entry of the mean objective's gradient at which a problem is done.

    Returns
    -------
    Models by fold, `converged` as `logistic.fit` says it.
    """
    k = 1 if n_classes == 2 else n_classes
    width = len(moments.total)
    middle = moments.total / moments.rows
    running = {}
    asked: dict[int, Floats] = {}
    found: dict[int, Found] = {}
    for fold, count in counts.items():
        start = np.zeros((k, width + 1))
        if starts is not None:
            start = _packed(starts[fold], middle, k)
        precondition = curvature(moments, middle, k, 1.0 / (C * count))
        running[fold] = minimise(start.ravel(), precondition, tolerance)
        asked[fold] = next(running[fold])
    while asked:
        problems = [
            _problem(fold, point.reshape(k, width + 1), middle)
            for fold, point in asked.items()
        ]
        sums = _summed(evaluate(problems))
        for problem, terms in zip(problems, sums, strict=True):
            fold, count = problem.fold, counts[problem.fold]
            # The derivative by a coefficient of centred rows.
            slope = terms.coef - terms.intercept[:, None] * middle
            slope = slope / count + problem.coef / (C * count)
            gradient = np.concatenate([slope, terms.intercept[:, None] / count], axis=1)
            penalty = float((problem.coef**2).sum()) / (2 * C * count)
            try:
                asked[fold] = running[fold].send(
                    (terms.loss / count + penalty, gradient.ravel())
                )
            except StopIteration as ended:
                found[fold] = ended.value
                del asked[fold]
    models = {}
    for fold in counts:
        point = found[fold].point.reshape(k, width + 1)
        problem = _problem(fold, point, middle)
        coef, intercept = problem.coef, problem.intercept
        if n_classes == 2:
            coef = np.concatenate([np.zeros_like(coef), coef])
            intercept = np.concatenate([np.zeros(1), intercept])
        good = found[fold].slope <= SLACK * tolerance
        models[fold] = LinearModel(coef, intercept, C, bool(good))
    return models


def _summed(found: Iterable[Sequence[Terms]]) -> list[Terms]:
    total: list[Terms] | None = None
    for group in found:
        if total is None:
            total = list(group)
            continue
        total = [
            Terms(a.loss + b.loss, a.coef + b.coef, a.intercept + b.intercept)
            for a, b in zip(total, group, strict=True)
        ]
    return total or []


def _problem(fold: int, point: Floats, middle: Floats) -> Problem:
    """From weights and intercepts of centred rows to those of the rows themselves."""
    coef = np.ascontiguousarray(point[:, :-1])
    return Problem(fold, coef, point[:, -1] - coef @ middle)


def _packed(model: LinearModel, middle: Floats, k: int) -> Floats:
    coef, intercept = model.coef, model.intercept
    if k == 1:
        coef, intercept = coef[1:] - coef[:1], intercept[1:] - intercept[:1]
    return np.concatenate([coef, (intercept + coef @ middle)[:, None]], axis=1)


def curvature(
    moments: Moments, middle: Floats, k: int, penalty: float
) -> Callable[[Floats], Floats]:
    """The inverse of a quarter of the covariance plus the penalty, as a function.

    Parameters
    ----------
    moments, middle
        Of the rows, and their mean.
    k
        Weight vectors: 1 for two classes, C for more.
    penalty
        1 over C times the number of rows.

    Returns
    -------
    From slopes to steps, both shape (k * (d' + 1),): weights and intercept of a class
    beside each other, of centred rows.
    """
    from scipy.linalg import cho_factor, cho_solve

    width = len(middle)
    if moments.products.ndim == 1:
        variance = np.maximum(moments.products / moments.rows - middle**2, 0.0)
        scale = 1.0 / (variance / 4 + penalty)

        def divide(slopes: Floats) -> Floats:
            return slopes * scale

        solve = divide
    else:
        bound = moments.products / moments.rows - np.outer(middle, middle)
        bound /= 4
        # Rounding may leave the covariance a little below zero.
        ridge = penalty + 1e-12 * float(np.trace(bound))
        bound[np.diag_indices(width)] += ridge
        with one_blas_thread():
            factor = cho_factor(bound, overwrite_a=True)

        def solve(slopes: Floats) -> Floats:
            return np.asarray(cho_solve(factor, slopes.T).T, np.float64)

    def apply(gradient: Floats) -> Floats:
        slopes = gradient.reshape(k, width + 1)
        with one_blas_thread():
            inner = solve(slopes[:, :-1])
        out = np.concatenate([inner, 4 * slopes[:, -1:]], axis=1)
        return out.ravel()

    return apply
