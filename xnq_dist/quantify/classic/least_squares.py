"""Quadratic programmes over the simplex, and least squares for every community."""

from __future__ import annotations

import numpy as np

from xnq_dist.core.arrays import Bools, Floats
from xnq_dist.core.kernel import kernel

__all__ = ["mixture_kernel", "project", "quadratic"]

TOLERANCE = 1e-12
"""Largest violation of a quadratic programme's optimality conditions."""

RIDGE = 1e-10
"""Weight of ||p||^2 in least squares: of several solutions that fit equally well, the
one nearest to uniform is chosen."""


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


@kernel
def quadratic(gram: Floats, linear: Floats, p: Floats) -> bool:
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
def project(p: Floats) -> None:
    """Project p onto the simplex, in place, to remove rounding errors."""
    inside = np.maximum(p, 0.0)
    p[:] = inside / inside.sum()


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
        converged[s] = quadratic(gram, linear, p)
        project(p)
