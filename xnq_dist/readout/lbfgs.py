"""L-BFGS that asks for gradients instead of calling for them.

Written as a generator, so that several fits can be driven side by side: every round
asks for one point each, and one pass over the rows answers all of them.

References
----------
J. Nocedal, S. J. Wright, "Numerical Optimization", 2nd edition, 2006, algorithm 7.4.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Found", "minimise"]

MEMORY = 20
"""Steps that the model of the curvature remembers."""
SUFFICIENT = 1e-4
"""Share of the promised decrease that a step must bring (Armijo)."""
HALVINGS = 40
ROUNDING = 1e-14
"""A rise of the value below this share of it is rounding."""

Vector = NDArray[np.float64]
Answer = tuple[float, Vector]


@dataclass(frozen=True, eq=False)
class Found:
    """Where a minimisation ended."""

    point: Vector
    slope: float
    """Largest entry of the gradient there."""
    rounds: int
    """Points that were asked for."""


def minimise(
    start: Vector,
    precondition: Callable[[Vector], Vector],
    tolerance: float,
    most: int = 1000,
) -> Generator[Vector, Answer, Found]:
    """Minimise a smooth convex function; yields points, is sent value and gradient.

    Parameters
    ----------
    start
        First point, shape (p,).
    precondition
        A symmetric positive model of the inverse Hessian, applied to a vector.
    tolerance
        Largest entry of the gradient at which it stops.
    most
        Most points asked for.

    Returns
    -------
    Found
        Also where rounding or `most` ended it: see `slope`.
    """
    point = start.copy()
    value, gradient = yield point
    asked = 1
    steps: list[tuple[Vector, Vector, float]] = []
    while float(np.abs(gradient).max()) > tolerance and asked < most:
        direction = -_inverse_times(gradient, steps, precondition)
        promised = float(gradient @ direction)
        if promised >= 0:  # rounding has spoilt the model: start it anew
            steps, direction = [], -precondition(gradient)
            promised = float(gradient @ direction)
        length = 1.0
        slack = ROUNDING * abs(value)
        for _ in range(HALVINGS):
            trial = point + length * direction
            new_value, new_gradient = yield trial
            asked += 1
            if new_value <= value + SUFFICIENT * length * promised + slack:
                break
            length /= 2
        else:
            break
        step, change = trial - point, new_gradient - gradient
        curvature = float(step @ change)
        # Convexity makes it positive; what is left of it near the optimum may not be.
        if curvature > 1e-12 * float(np.sqrt((step @ step) * (change @ change))):
            steps = [*steps[-MEMORY + 1 :], (step, change, curvature)]
        point, value, gradient = trial, new_value, new_gradient
    return Found(point, float(np.abs(gradient).max()), asked)


def _inverse_times(
    gradient: Vector,
    steps: list[tuple[Vector, Vector, float]],
    precondition: Callable[[Vector], Vector],
) -> Vector:
    """The two-loop recursion."""
    rest = gradient.copy()
    shares = []
    for step, change, curvature in reversed(steps):
        share = float(step @ rest) / curvature
        rest -= share * change
        shares.append(share)
    found = precondition(rest)
    if steps:
        _, change, curvature = steps[-1]
        found = found * (curvature / float(change @ precondition(change)))
    for (step, change, curvature), share in zip(steps, reversed(shares), strict=True):
        found += (share - float(change @ found) / curvature) * step
    return found
