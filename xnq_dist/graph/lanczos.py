"""The largest eigenvalue of a large symmetric matrix, with three vectors of memory.

The three-term recurrence of Lanczos (1950), without reorthogonalisation: rounding makes
copies of eigenvalues that have converged, which does no harm to the largest one (Paige
1972). It stops at the first step whose residual says that the value is found.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

__all__ = ["largest_eigenvalue"]

Vector = NDArray[np.float64]

STEPS = 400
"""Products after which it is given up."""
LOOK_EVERY = 8
"""Steps between two looks at the eigenvalues, once they are many."""
NEAR, EXACT = 1e-5, 1e-11
"""The residual may be as large as `NEAR` where the gap to the next eigenvalue bounds
the error by `EXACT`, both relative to the eigenvalue."""


def largest_eigenvalue(
    matvec: Callable[[Vector], Vector], start: Vector, tolerance: float
) -> float | None:
    """Largest eigenvalue of a symmetric matrix; None when it is not found.

    Parameters
    ----------
    matvec
        Product with a vector of shape (n,); its result may be overwritten.
    start
        Shape (n,), not orthogonal to the eigenvector that is sought: a positive vector
        for a matrix without negative entries. It is overwritten.
    tolerance
        Residual relative to the eigenvalue that is small enough in any case.

    Notes
    -----
    The error of a Ritz value is at most its residual r, and r^2 over the distance to
    the other eigenvalues (Parlett 1998, theorem 11.7.1); the second Ritz value stands
    in for these.

    References
    ----------
    C. Lanczos, J. Res. Natl. Bur. Stand. 45 (1950) 255. B. N. Parlett, The Symmetric
    Eigenvalue Problem, SIAM 1998.
    """
    from scipy.linalg import eigh_tridiagonal

    current = start
    current /= _norm(current)
    before = np.zeros_like(current)
    diagonal: list[float] = []
    beside: list[float] = []
    beta = 0.0
    for step in range(1, STEPS + 1):
        coming = matvec(current)
        alpha = float(np.dot(coming, current))
        # In place: another vector of all nodes would be a third of the memory.
        before *= beta
        coming -= before
        np.multiply(current, alpha, out=before)
        coming -= before
        beta = _norm(coming)
        diagonal.append(alpha)
        if step % LOOK_EVERY == 0 or step <= 4 * LOOK_EVERY or not beta:
            values, vectors = eigh_tridiagonal(
                np.array(diagonal),
                np.array(beside),
                select="i",
                select_range=(max(step - 2, 0), step - 1),
            )
            value = float(values[-1])
            residual = beta * abs(float(vectors[-1, -1]))
            size = max(abs(value), np.finfo(np.float64).tiny)
            gap = value - float(values[0])
            sharp = gap > 0 and residual <= NEAR * size
            if residual <= tolerance * size or (
                sharp and residual * residual <= EXACT * size * gap
            ):
                return value
        beside.append(beta)
        coming /= beta
        before, current = current, coming
    return None


def _norm(x: Vector) -> float:
    return float(np.sqrt(np.dot(x, x)))
