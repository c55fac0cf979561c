"""The selection model: classes of labelled nodes, and which nodes are labelled.

With l the log of a node's score, y its class and R whether it is labelled,

    p_y(l) = P(y | l, R = 1) = softmax(a + s l)_y,
    logit P(R = 1 | l) = g - log sum_y p_y(l) exp(-b_y),

so that a labelled and an unlabelled node of the same scores and place differ only by
the factors exp(b_y): ``P(y | l, R = 0)`` is proportional to ``p_y exp(-b_y)``. All
parameters are fitted together: maximum a posteriori by Fisher scoring, with normal
priors. ``b = 0`` means that selection depends on the class only through the scores and
g; with constant g it depends on the class alone. In M0, g has one value for each fold,
whose scores are from one model; in M1 it also has effects of the graph's groups, of
degree and of the rate of labelling in the neighbourhood.

References
----------
J. J. Heckman, "Sample selection bias as a specification error", Econometrica 47, 1979
(a selection equation next to the outcome's). Z. Lipton, Y.-X. Wang, A. Smola,
"Detecting and correcting for label shift with black box predictors", ICML 2018 (a
constant g).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy.linalg import cho_factor, cho_solve, helmert
from scipy.sparse import csr_array, hstack
from scipy.special import expit, log_expit

from xnq_dist.core.arrays import Floats, Ints32
from xnq_dist.selection.scored_rows import ScoredRows
from xnq_dist.selection.tilt import tilted

__all__ = ["SelectionFit", "Terms", "contrasts", "fit_model", "plain_terms"]


SCALE_PRIOR = 4.0
"""Precision of the slope s around 1."""
SHIFT_PRIOR = 1.0
"""Precision of the intercepts a around 0."""
FLAT = 1e-4
"""Precision of effects with an almost flat prior."""
ROUNDS = 60
TOLERANCE = 1e-9
"""Expected gain of another step, per node, at which the search stops."""


@dataclass(frozen=True, eq=False)
class Terms:
    """Columns and factors of g, with the priors of their effects."""

    dense: Floats
    """Columns, shape (n, D)."""
    precision: Floats
    """Prior precision of each column's effect, around 0, shape (D,)."""
    factors: tuple[csr_array[Any], ...] = ()
    """Indicators of the groups of each factor, shape (n, groups)."""
    spreads: tuple[float, ...] = ()
    """Variance of the groups' effects, for each factor."""

    @cached_property
    def groups(self) -> csr_array[Any]:
        """Indicators of the groups of all factors."""
        none = csr_array((len(self.dense), 0))
        return csr_array(hstack([none, *self.factors], format="csr"))

    def constant(self, rate: float) -> Floats:
        """Effects for which P(R = 1) is `rate` for every node, shape (E,)."""
        effects = np.zeros(len(self.precisions()))
        # The folds' columns, which have flat priors, add up to 1 for every node.
        effects[np.flatnonzero(self.precision == FLAT)] = np.log(rate) - np.log1p(-rate)
        return effects

    def split(self, effects: Floats) -> list[Floats]:
        """Effects of the dense columns, and of each factor's groups."""
        sizes = [self.dense.shape[1], *(each.shape[1] for each in self.factors)]
        return np.split(effects, np.cumsum(sizes)[:-1])

    def values(self, effects: Floats) -> Floats:
        """Value of g for every node, shape (n,)."""
        of_columns, *of_groups = self.split(effects)
        g = self.dense @ of_columns
        for factor, its_effects in zip(self.factors, of_groups, strict=True):
            g += factor @ its_effects
        return g

    def slopes(self, rows: Floats) -> Floats:
        """Sum over nodes of each effect's column times `rows`, shape (E,)."""
        return np.concatenate([self.dense.T @ rows, self.groups.T @ rows])

    def precisions(self) -> Floats:
        """Prior precision of every effect, shape (E,)."""
        parts = [
            np.full(factor.shape[1], 1.0 / spread)
            for factor, spread in zip(self.factors, self.spreads, strict=True)
        ]
        return np.concatenate([self.precision, *parts])

    def information(self, additional: Floats, weights: Floats) -> Floats:
        """Weighted cross products of columns `additional` (n, M) and those of g."""
        columns = np.concatenate([additional, self.dense], axis=1)
        weighted = columns * weights[:, None]
        cross = self.groups.T @ weighted
        of_groups = self.groups.T @ self.groups.multiply(weights[:, None]).tocsr()
        return np.block([[columns.T @ weighted, cross.T], [cross, of_groups.toarray()]])


def plain_terms(folds: Ints32) -> Terms:
    """Terms of M0: one value of g for each fold."""
    used = np.unique(folds)
    dense = (folds[:, None] == used[None]).astype(np.float64)
    return Terms(dense, np.full(len(used), FLAT))


def contrasts(n_classes: int) -> Floats:
    """Orthonormal directions whose entries sum to 0, shape (C, C - 1)."""
    return np.ascontiguousarray(helmert(n_classes).T)


@dataclass(frozen=True, eq=False)
class _State:
    """The model at one point."""

    point: Floats
    """(a, s, b in `contrasts` unless fixed at 0, effects of g)."""
    bias: Floats
    """b, which sums to 0, shape (C,)."""
    posteriors: Floats
    """p, shape (n, C)."""
    rates: Floats
    """P(R = 1) of every node, shape (n,)."""
    objective: float
    """Log-likelihood minus the priors' penalties."""


@dataclass(frozen=True, eq=False)
class SelectionFit(_State):
    """The model at its maximum a posteriori."""

    information: Floats
    """Expected information on the point, priors included."""
    converged: bool

    @property
    def log_determinant(self) -> float:
        """Logarithm of the information's determinant."""
        return float(np.linalg.slogdet(self.information)[1])

    @property
    def covariance(self) -> Floats:
        """Covariance of b, which was fitted, marginal over the rest, (C, C)."""
        n_classes = len(self.bias)
        of_bias = slice(n_classes + 1, 2 * n_classes)
        basis = contrasts(n_classes)
        right = np.zeros((len(self.information), n_classes - 1))
        right[of_bias] = np.eye(n_classes - 1)
        inverse = cho_solve(cho_factor(self.information), right)[of_bias]
        return basis @ inverse @ basis.T


def fit_model(
    rows: ScoredRows,
    terms: Terms,
    spread: float | None,
    start: SelectionFit | None = None,
) -> SelectionFit:
    """Fit the model, with the prior standard deviation `spread` of b; None: b is 0.

    `start` is a fit with the same terms, and b fixed at 0, to start from.
    """
    problem = _Problem(rows, terms, spread)
    state = problem.state(problem.first(start))
    converged = False
    for _ in range(ROUNDS):
        gradient, information = problem.slopes(state)
        step = cho_solve(cho_factor(information), gradient)
        gain = gradient @ step
        if gain < TOLERANCE * len(rows.labels):
            converged = True
            break
        # With the expected information, a full step may be too long.
        for _ in range(30):
            tried = problem.state(state.point + step)
            if tried.objective >= state.objective:
                break
            step /= 2
        else:
            break
        state = tried
    return SelectionFit(**vars(state), information=information, converged=converged)


class _Problem:
    """Objective, gradient and expected information in (a, s, b, g)."""

    def __init__(self, rows: ScoredRows, terms: Terms, spread: float | None) -> None:
        self.terms = terms
        self.logs = np.log(rows.posteriors)
        self.known = np.flatnonzero(rows.labelled)
        self.codes = rows.labels[self.known]
        self.labelled = rows.labelled.astype(np.float64)
        n_classes = rows.n_classes
        self.n_classes = n_classes
        self.basis = contrasts(n_classes)[:, : 0 if spread is None else n_classes]
        count = self.basis.shape[1]
        self.precision = np.concatenate(
            [
                np.full(n_classes, SHIFT_PRIOR),
                [SCALE_PRIOR],
                np.full(count, 1.0 / (spread or 1.0) ** 2),
                terms.precisions(),
            ]
        )
        self.middle = np.zeros(len(self.precision))
        self.middle[n_classes] = 1.0

    def first(self, start: SelectionFit | None) -> Floats:
        if start is not None:
            unbiased = np.zeros(self.basis.shape[1])
            return np.insert(start.point, self.n_classes + 1, unbiased)
        effects = self.terms.constant(self.labelled.mean())
        return np.concatenate([self.middle[: -len(effects)], effects])

    def state(self, point: Floats) -> _State:
        n, first = self.n_classes, self.n_classes + 1
        last = first + self.basis.shape[1]
        bias = self.basis @ point[first:last]
        logits = point[:n] + point[n] * self.logs
        logits -= logits.max(axis=1, keepdims=True)
        p = np.exp(logits)
        total = p.sum(axis=1)
        likelihood = logits[self.known, self.codes] - np.log(total[self.known])
        p /= total[:, None]
        mass = (p * np.exp(-bias)).sum(axis=1)
        eta = self.terms.values(point[last:]) - np.log(mass)
        signs = 2 * self.labelled - 1
        away = point - self.middle
        objective = likelihood.sum() + log_expit(signs * eta).sum()
        objective -= 0.5 * (self.precision * away * away).sum()
        return _State(point, bias, p, expit(eta), objective)

    def slopes(self, state: _State) -> tuple[Floats, Floats]:
        """Gradient and expected information at a point."""
        n, known, rate = self.n_classes, self.known, state.rates
        p = state.posteriors
        shifted = tilted(p, np.exp(-state.bias))
        moved = p - shifted
        more = np.concatenate(
            [
                moved,
                (moved * self.logs).sum(axis=1, keepdims=True),
                shifted @ self.basis,
            ],
            axis=1,
        )
        excess = self.labelled - rate
        gradient = np.concatenate([more.T @ excess, self.terms.slopes(excess)])
        information = self.terms.information(more, rate * (1 - rate))
        own, logs = p[known], self.logs[known]
        mean = (own * logs).sum(axis=1)
        counts = np.bincount(self.codes, minlength=n)
        gradient[:n] += counts - own.sum(axis=0)
        gradient[n] += (logs[np.arange(len(known)), self.codes] - mean).sum()
        information[:n, :n] += np.diag(own.sum(axis=0)) - own.T @ own
        away = logs - mean[:, None]
        cross = (own * away).sum(axis=0)
        information[:n, n] += cross
        information[n, :n] += cross
        information[n, n] += (own * away**2).sum()
        gradient -= self.precision * (state.point - self.middle)
        at = np.arange(len(information))
        information[at, at] += self.precision
        return gradient, information
