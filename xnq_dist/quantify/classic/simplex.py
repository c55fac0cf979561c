"""Quadratic programmes and convex distances over the simplex, for all communities.

Distances are minimised exactly. They are the likelihood of a mixture and the Topsoe
distance. Each Newton step, damped by halving, is a quadratic programme. The search
stops with a certificate: for a convex f with gradient g, no point of the simplex is
lower than f(p) by more than ``g . p - min(g)``.

References
----------
Y. Kim et al., "A fast algorithm for maximum likelihood estimation of mixture
proportions using sequential quadratic programming", JCGS 29(2), 2020.
M. Jaggi, "Revisiting Frank-Wolfe", ICML 2013 (the certificate).
"""

from __future__ import annotations

import numpy as np

from xnq_dist.core.arrays import Bools, Floats, Ints
from xnq_dist.core.kernel import kernel

__all__ = [
    "likelihood_kernel",
    "mixture_kernel",
    "topsoe_kernel",
]

CURVATURE = 1e-12
"""Ridge of a Newton step's curvature, in units of its trace."""

MIN_CURVATURE = 1e-9
"""The same where there is no curvature at all: the step then goes to a corner."""

GAP = 1e-10
"""Certified distance from the optimum at which Newton's method stops."""

MAX_STEPS = 200
"""Maximum number of Newton steps; about ten are needed."""

MIN_STEP = 1e-12
"""Length of the shortest Newton step."""

RISE = 0.1
"""Slope at the end of a step, in units of that at its start, up to which it is kept."""

NOISE = 1e-14
"""Slope that is attributed to rounding."""

LOG_2 = float(np.log(2.0))
"""Slope of the Topsoe distance where nothing is seen."""

TOLERANCE = 1e-12
"""Largest violation of a quadratic programme's optimality conditions."""
RIDGE = 1e-10
"""Weight of ||p||^2 in least squares: of several solutions that fit equally well, the
one nearest to uniform is chosen."""


@kernel
def mixture_kernel(
    matrix: Floats, counts: Floats, prevalence: Floats, converged: Bools
) -> None:
    """Minimise ||M p - q|| over the simplex for every row q of `counts`.

    M has the shape (K, C). Fills in `prevalence` with p and `converged` with whether
    the optimality conditions hold within `TOLERANCE`; rows with NaN are skipped.
    """
    n_classes = matrix.shape[1]
    gram = RIDGE * np.eye(n_classes)
    for row in matrix:
        gram += np.outer(row, row)
    for s in range(counts.shape[0]):
        if np.isnan(counts[s, 0]):
            continue
        p = prevalence[s]
        p[:] = 1.0 / n_classes
        linear = (matrix.T * counts[s]).sum(axis=1)
        converged[s] = _quadratic(gram, linear, p)
        _project(p)


@kernel
def likelihood_kernel(
    offsets: Ints,
    members: Ints,
    ratios: Floats,
    prevalence: Floats,
    converged: Bools,
) -> None:
    """Maximise each community's mean of ``log sum_y q(y) ratio(y)`` over q.

    `ratios` (n, C) are every node's class densities, up to one factor per node; each
    row has an entry above 0. Communities without members keep their values; where
    several q are equally likely (classes with equal ratios) the result is any of them.
    """
    for s in range(len(prevalence)):
        own = members[offsets[s] : offsets[s + 1]]
        if len(own):
            columns = np.ascontiguousarray(ratios[own].T)
            seen = np.full(len(own), 1.0 / len(own))
            converged[s] = _minimise(columns, seen, False, prevalence[s])


@kernel
def topsoe_kernel(
    samples: Floats,
    shares: Floats,
    prevalence: Floats,
    converged: Bools,
) -> None:
    """Minimise the Topsoe distance between each sample and ``p' shares`` over p.

    Samples and shares sum to 1; samples of zeros are skipped.
    """
    for s in range(len(samples)):
        if samples[s].any():
            converged[s] = _minimise(shares, samples[s], True, prevalence[s])


@kernel
def _quadratic(gram: Floats, linear: Floats, p: Floats) -> bool:
    """Minimise ``p' gram p / 2 - linear' p`` over the simplex, starting from p.

    A primal active-set method: it moves to the optimum over the free classes (at first
    those above 0), fixes a class that would become negative, and frees one whose
    multiplier is negative. The objective falls strictly, so no set of free classes
    occurs twice. Returns whether the optimality conditions hold.
    """
    is_free = p > 0.0
    for _ in range(50 + 10 * len(p)):
        free = np.flatnonzero(is_free)
        size = len(free)
        system = np.ones((size + 1, size + 2))
        system[:size, :size] = gram[free][:, free]
        system[size, size] = 0.0
        system[:size, size + 1] = linear[free]
        best = _solve(system)
        # Step length up to the optimum, or until a class reaches 0, and that class.
        length = 1.0
        blocking = -1
        for a in range(size):
            i = free[a]
            if best[a] < 0.0 and p[i] < length * (p[i] - best[a]):
                length = p[i] / (p[i] - best[a])
                blocking = i
        p[free] += length * (best[:size] - p[free])
        if blocking >= 0:
            p[blocking] = 0.0
            is_free[blocking] = False
            continue
        # At the optimum of the free classes, free the class with the worst multiplier.
        slopes = best[size] - linear + (gram * p).sum(axis=1)
        slopes[is_free] = 0.0
        freed = slopes.argmin()
        if slopes[freed] >= -TOLERANCE:
            return True
        is_free[freed] = True
    return False


@kernel
def _project(p: Floats) -> None:
    """Project p onto the simplex, in place, to remove rounding errors."""
    inside = np.maximum(p, 0.0)
    p[:] = inside / inside.sum()


@kernel
def _minimise(columns: Floats, seen: Floats, topsoe: bool, p: Floats) -> bool:
    """Minimise over p the distance of what is `seen` (n,) from m = p' columns.

    `columns` has the shape (C, n). The distance is ``-sum s log m``, or, with `topsoe`,
    ``sum s log(2 s / (s + m)) + m log(2 m / (s + m))``; both are convex in p. Returns
    whether no p has a distance lower by more than `GAP`.
    """
    n_classes = len(p)
    mixture, gradient = np.empty(len(seen)), np.empty(n_classes)
    hessian = np.empty((n_classes, n_classes))
    p[:] = 1.0 / n_classes
    for turn in range(MAX_STEPS + 1):
        gradient[:] = 0.0
        hessian[:] = 0.0
        for k in range(len(seen)):
            mixture[k] = _mixed(columns, p, k)
            slope, curve = _derivatives(seen[k], mixture[k], topsoe)
            for i in range(n_classes):
                gradient[i] += slope * columns[i, k]
                for j in range(i + 1):
                    hessian[i, j] += curve * columns[i, k] * columns[j, k]
        gap = (gradient * p).sum() - gradient.min()
        if gap <= GAP or turn == MAX_STEPS:
            break
        trace = np.diag(hessian).sum()
        for i in range(n_classes):
            hessian[i, i] += CURVATURE * trace if trace > 0.0 else MIN_CURVATURE
            hessian[:i, i] = hessian[i, :i]
        target = p.copy()
        _quadratic(hessian, (hessian * p).sum(axis=1) - gradient, target)
        step, length = target - p, 1.0
        # A convex objective has not increased where it still falls: a step that ends
        # where it rises is halved, unless it rises little.
        limit = NOISE - RISE * (gradient * step).sum()
        while (
            length > MIN_STEP
            and _slope(columns, seen, topsoe, mixture, step) > length * limit
        ):
            length *= 0.5
            step *= 0.5
        p += step
    _project(p)
    return bool(gap <= GAP)


@kernel
def _slope(
    columns: Floats, seen: Floats, topsoe: bool, mixture: Floats, step: Floats
) -> float:
    """Derivative of the objective at a step's end; infinite beyond its domain."""
    total = 0.0
    for k in range(len(seen)):
        along = _mixed(columns, step, k)
        end = mixture[k] + along
        if seen[k] > 0.0 and end <= 0.0 < mixture[k]:
            return np.inf
        total += along * _derivatives(seen[k], end, topsoe)[0]
    return total


@kernel
def _derivatives(seen: float, mixture: float, topsoe: bool) -> tuple[float, float]:
    """First and second derivative of one term of the objective by the mixture."""
    if not topsoe:
        return -seen / mixture, seen / (mixture * mixture)
    if seen > 0.0 and mixture > 0.0:
        both = seen + mixture
        return np.log(2.0 * mixture / both), seen / (mixture * both)
    return LOG_2, 0.0


@kernel
def _mixed(columns: Floats, weights: Floats, k: int) -> float:
    """Entry k of the weighted sum of columns (C, n)."""
    total = 0.0
    for i in range(len(weights)):
        total += weights[i] * columns[i, k]
    return total


@kernel
def _solve(system: Floats) -> Floats:
    """Gaussian elimination with partial pivoting, in place, of (n, n + 1): A and b.

    Returns the solution, a view of the last column.
    """
    size = len(system)
    for k in range(size):
        pivot = k + np.argmax(np.abs(system[k:, k]))
        if pivot != k:
            row = system[k].copy()
            system[k] = system[pivot]
            system[pivot] = row
        for i in range(k + 1, size):
            factor = system[i, k] / system[k, k]
            for j in range(k, size + 1):
                system[i, j] -= factor * system[k, j]
    solution = system[:, size]
    for k in range(size - 1, -1, -1):
        for j in range(k + 1, size):
            solution[k] -= system[k, j] * solution[j]
        solution[k] /= system[k, k]
    return solution
