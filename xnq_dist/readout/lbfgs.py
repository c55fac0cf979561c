"""L-BFGS as a generator, so that several fits can share each pass over the rows.

References
----------
J. Nocedal, S. J. Wright, "Numerical Optimization", 2nd edition, 2006, algorithm 7.4.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any

import numpy as np

from xnq_dist.core.arrays import Floats

__all__ = ["CONVERGED", "STACKED", "TOLERANCE", "Minimum", "minimise"]

TOLERANCE, CONVERGED = 1e-10, 1e-7
"""Expected decreases by another step, relative to the value: at which a fit stops
(posteriors at most 5e-5 from the optimum's in 24 fits to 400 rows), and up to which one
that rounding stops has converged (1e-3).
"""
STACKED = 1e-5
"""The same for models whose output others use: even 1e-4 changed the log-loss of
unlabelled nodes by .1 % only (nine tasks), and with 1e-7 fits took 1.5 times as long.
"""
MEMORY = 20
"""Number of recent steps in the model of the curvature."""
SUFFICIENT = 1e-4
"""Part of the predicted decrease that a step must reach (Armijo)."""
HALVINGS = 40
ROUNDING = 1e-14
"""Relative increase of the value that is attributed to rounding."""

Evaluation = Generator[Any, Any, tuple[float, Floats]]
"""Of a point: yields what it needs sums of, is sent them, returns value and gradient.
"""


@dataclass(frozen=True, eq=False)
class Minimum:
    """Result of a minimisation."""

    point: Floats
    gain: float
    """Predicted decrease by another step, relative to the value."""
    rounds: int
    """Number of points evaluated."""


def minimise(
    start: Floats,
    evaluate: Callable[[Floats], Evaluation],
    tolerance: float,
    max_rounds: int,
) -> Generator[Any, Any, Minimum]:
    """Minimise a smooth convex function.

    Coordinates should be scaled so that the curvature is at most about 1. The search
    stops where the predicted decrease by another step, relative to the value, is below
    `tolerance`, after `max_rounds` points, or where rounding prevents a decrease: see
    `Minimum.gain`.
    """
    point = start.copy()
    value, gradient = yield from evaluate(point)
    rounds = 1
    steps: list[tuple[Floats, Floats, float]] = []
    while True:
        direction = -_inverse_times(gradient, steps)
        slope = float(gradient @ direction)
        if slope > 0:  # rounding has made the model indefinite: restart it
            steps, direction = [], -gradient
            slope = float(gradient @ direction)
        gain = -slope / 2 / max(abs(value), np.finfo(float).tiny)
        if gain <= tolerance or rounds >= max_rounds:
            break
        length = 1.0
        slack = ROUNDING * abs(value)
        for _ in range(HALVINGS):
            trial = point + length * direction
            new_value, new_gradient = yield from evaluate(trial)
            rounds += 1
            if new_value <= value + SUFFICIENT * length * slope + slack:
                break
            length /= 2
        else:
            break
        step, change = trial - point, new_gradient - gradient
        curvature = float(step @ change)
        # Positive by convexity, except for rounding near the optimum.
        if curvature > 1e-12 * float(np.sqrt((step @ step) * (change @ change))):
            steps = [*steps[-MEMORY + 1 :], (step, change, curvature)]
        point, value, gradient = trial, new_value, new_gradient
    return Minimum(point, gain, rounds)


def _inverse_times(
    gradient: Floats, steps: list[tuple[Floats, Floats, float]]
) -> Floats:
    """Inverse Hessian times the gradient, by the two-loop recursion."""
    rest = gradient.copy()
    shares = []
    for step, change, curvature in reversed(steps):
        share = float(step @ rest) / curvature
        rest -= share * change
        shares.append(share)
    if steps:
        _, change, curvature = steps[-1]
        rest *= curvature / float(change @ change)
    for (step, change, curvature), share in zip(steps, reversed(shares), strict=True):
        rest += (share - float(change @ rest) / curvature) * step
    return rest
