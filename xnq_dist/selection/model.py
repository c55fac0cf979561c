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

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.special import expit, log_expit

from xnq_dist.core.arrays import Floats, Ints32
from xnq_dist.selection.scored_rows import ScoredRows

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
    codes: tuple[Ints32, ...] = ()
    """Group of every node by each factor, -1: none, shape (n,) each."""
    sizes: tuple[int, ...] = ()
    """Number of groups of each factor."""
    spreads: tuple[float, ...] = ()
    """Variance of the groups' effects, for each factor."""

    @property
    def width(self) -> int:
        """Total number of effects."""
        return int(self.dense.shape[1]) + sum(self.sizes)

    def constant(self, rate: float) -> Floats:
        """Effects for which P(R = 1) is `rate` for every node, shape (width,)."""
        effects = np.zeros(self.width)
        # The folds' columns, which have flat priors, add up to 1 for every node.
        effects[np.flatnonzero(self.precision == FLAT)] = np.log(rate) - np.log1p(-rate)
        return effects

    def values(self, effects: Floats) -> Floats:
        """Value of g for every node, shape (n,)."""
        g = self.dense @ effects[: self.dense.shape[1]]
        for codes, of_groups in zip(self.codes, self._split(effects), strict=True):
            g += np.append(of_groups, 0.0)[codes]
        return np.asarray(g)

    def _split(self, effects: Floats) -> list[Floats]:
        ends = self.dense.shape[1] + np.cumsum([0, *self.sizes])
        return [effects[ends[i] : ends[i + 1]] for i in range(len(self.sizes))]

    def slopes(self, rows: Floats) -> Floats:
        """Sum over nodes of each effect's column times `rows`, shape (width,)."""
        by_group = [
            np.bincount(codes + 1, rows, size + 1)[1:]
            for codes, size in zip(self.codes, self.sizes, strict=True)
        ]
        return np.concatenate([self.dense.T @ rows, *by_group])

    def precisions(self) -> Floats:
        """Prior precision of every effect, shape (width,)."""
        parts = [
            np.full(size, 1.0 / spread)
            for size, spread in zip(self.sizes, self.spreads, strict=True)
        ]
        return np.concatenate([self.precision, *parts])

    def information(self, additional: Floats, weights: Floats) -> Floats:
        """Weighted cross products of columns `additional` (n, M) and those of g."""
        columns = np.concatenate([additional, self.dense], axis=1)
        weighted = columns * weights[:, None]
        first, total = columns.shape[1], columns.shape[1] + sum(self.sizes)
        products = np.zeros((total, total))
        products[:first, :first] = columns.T @ weighted
        begin = first
        for i, (codes, size) in enumerate(zip(self.codes, self.sizes, strict=True)):
            factor = slice(begin, begin + size)
            for j in range(first):
                sums = np.bincount(codes + 1, weighted[:, j], size + 1)[1:]
                products[j, factor] = products[factor, j] = sums
            at = np.arange(begin, begin + size)
            products[at, at] = np.bincount(codes + 1, weights, size + 1)[1:]
            after = begin + size
            for k in range(i + 1, len(self.sizes)):
                other, width = self.codes[k], self.sizes[k]
                cells = (codes + 1) * np.int64(width + 1) + other + 1
                sums = np.bincount(cells, weights, (size + 1) * (width + 1))
                block = sums.reshape(size + 1, width + 1)[1:, 1:]
                products[factor, after : after + width] = block
                products[after : after + width, factor] = block.T
                after += width
            begin += size
        return products


def plain_terms(folds: Ints32) -> Terms:
    """Terms of M0: one value of g for each fold."""
    used = np.unique(folds)
    dense = (folds[:, None] == used[None]).astype(np.float64)
    return Terms(dense, np.full(len(used), FLAT))


def contrasts(n_classes: int) -> Floats:
    """Orthonormal directions whose entries sum to 0, shape (C, C - 1)."""
    basis = np.zeros((n_classes, n_classes - 1))
    for k in range(n_classes - 1):
        basis[: k + 1, k] = 1.0
        basis[k + 1, k] = -(k + 1.0)
        basis[:, k] /= np.sqrt((k + 1.0) * (k + 2.0))
    return basis


@dataclass(frozen=True, eq=False)
class SelectionFit:
    """The model at its maximum a posteriori."""

    shift: Floats
    """a, shape (C,)."""
    slope: float
    """s."""
    bias: Floats
    """b, which sums to 0, shape (C,)."""
    effects: Floats
    """Effects of g, shape (`Terms.width`,)."""
    objective: float
    """Log-likelihood minus the priors' penalties."""
    information: Floats
    """Expected information on (a, s, b in `contrasts` unless fixed at 0, g), priors
    included."""
    rates: Floats
    """P(R = 1) of every node, shape (n,)."""
    posteriors: Floats
    """p, shape (n, C)."""
    free: bool
    """Whether b was fitted."""
    converged: bool

    @property
    def log_determinant(self) -> float:
        """Logarithm of the information's determinant."""
        return float(np.linalg.slogdet(self.information)[1])

    @property
    def covariance(self) -> Floats:
        """Covariance of b, marginal over the rest, (C, C); 0 if b was fixed at 0."""
        n_classes = len(self.bias)
        if not self.free:
            return np.zeros((n_classes, n_classes))
        of_bias = slice(n_classes + 1, 2 * n_classes)
        basis = contrasts(n_classes)
        right = np.zeros((len(self.information), n_classes - 1))
        right[of_bias] = np.eye(n_classes - 1)
        inverse = cho_solve(cho_factor(self.information), right)[of_bias]
        return np.asarray(basis @ inverse @ basis.T)


def fit_model(
    rows: ScoredRows,
    terms: Terms,
    spread: float | None,
    start: SelectionFit | None = None,
) -> SelectionFit:
    """Fit the model, with the prior standard deviation `spread` of b; None: b is 0.

    `start` is a fit with the same terms to start from.
    """
    problem = _Problem(rows, terms, spread)
    point = problem.first(start)
    state = problem.state(point)
    converged = False
    for _ in range(ROUNDS):
        gradient, information = problem.slopes(point, state)
        step = cho_solve(cho_factor(information), gradient)
        gain = float(gradient @ step)
        if gain < TOLERANCE * len(rows.labels):
            converged = True
            break
        # With the expected information, a full step may be too long.
        for _ in range(30):
            tried = problem.state(point + step)
            if tried.objective >= state.objective:
                break
            step /= 2
        else:
            break
        point, state = point + step, tried
    shift, slope, bias, effects = problem.parts(point)
    return SelectionFit(
        shift,
        slope,
        bias,
        effects,
        state.objective,
        information,
        expit(state.eta),
        state.p,
        spread is not None,
        converged,
    )


@dataclass(frozen=True, eq=False)
class _State:
    """The model at one point."""

    p: Floats
    tilted: Floats
    """p exp(-b), normalised."""
    eta: Floats
    objective: float


class _Problem:
    """Objective, gradient and expected information in (a, s, b, g)."""

    def __init__(self, rows: ScoredRows, terms: Terms, spread: float | None) -> None:
        self.rows, self.terms = rows, terms
        self.logs = np.log(rows.posteriors)
        self.known = np.flatnonzero(rows.labelled)
        self.codes = rows.labels[self.known]
        self.labelled = rows.labelled.astype(np.float64)
        n_classes = rows.n_classes
        self.n_classes = n_classes
        self.basis = contrasts(n_classes)[:, : 0 if spread is None else n_classes]
        count = self.basis.shape[1]
        self.middle = np.zeros(n_classes + 1 + count + terms.width)
        self.middle[n_classes] = 1.0
        self.precision = np.concatenate(
            [
                np.full(n_classes, SHIFT_PRIOR),
                [SCALE_PRIOR],
                np.full(count, 1.0 / (spread or 1.0) ** 2),
                terms.precisions(),
            ]
        )

    def first(self, start: SelectionFit | None) -> Floats:
        point = self.middle.copy()
        if start is None:
            effects = slice(len(point) - self.terms.width, None)
            point[effects] = self.terms.constant(self.labelled.mean())
            return point
        slope, bias = np.array([start.slope]), self.basis.T @ start.bias
        return np.concatenate([start.shift, slope, bias, start.effects])

    def parts(self, point: Floats) -> tuple[Floats, float, Floats, Floats]:
        """Split a point into a, s, b and the effects of g."""
        n, count = self.n_classes, self.basis.shape[1]
        bias = self.basis @ point[n + 1 : n + 1 + count]
        return point[:n], float(point[n]), np.asarray(bias), point[n + 1 + count :]

    def state(self, point: Floats) -> _State:
        shift, slope, bias, effects = self.parts(point)
        logits = shift + slope * self.logs
        logits -= logits.max(axis=1, keepdims=True)
        p = np.exp(logits)
        total = p.sum(axis=1)
        likelihood = logits[self.known, self.codes] - np.log(total[self.known])
        p /= total[:, None]
        tilted = p * np.exp(-bias)
        mass = tilted.sum(axis=1)
        eta = self.terms.values(effects) - np.log(mass)
        signs = 2 * self.labelled - 1
        away = point - self.middle
        objective = float(likelihood.sum() + log_expit(signs * eta).sum())
        objective -= 0.5 * float((self.precision * away * away).sum())
        return _State(p, tilted / mass[:, None], eta, objective)

    def slopes(self, point: Floats, state: _State) -> tuple[Floats, Floats]:
        """Gradient and expected information at a point."""
        n = self.n_classes
        p, tilted, known = state.p, state.tilted, self.known
        rate = expit(state.eta)
        moved = p - tilted
        more = np.concatenate(
            [
                moved,
                (moved * self.logs).sum(axis=1, keepdims=True),
                tilted @ self.basis,
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
        cross = (own * (logs - mean[:, None])).sum(axis=0)
        information[:n, n] += cross
        information[n, :n] += cross
        information[n, n] += (own * (logs - mean[:, None]) ** 2).sum()
        gradient -= self.precision * (point - self.middle)
        at = np.arange(len(information))
        information[at, at] += self.precision
        return gradient, information
