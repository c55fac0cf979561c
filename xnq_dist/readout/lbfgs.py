"""L-BFGS that asks for gradients instead of calling for them.

Written as a generator, so that several fits can share each pass over the rows: every
round asks for one point each.

References
----------
J. Nocedal, S. J. Wright, "Numerical Optimization", 2nd edition, 2006, algorithm 7.4.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass

import numpy as np

from xnq_dist.core.arrays import Floats

__all__ = ["Minimum", "minimise"]

MEMORY = 20
"""Steps that the model of the curvature remembers."""
SUFFICIENT = 1e-4
"""Share of the promised decrease that a step must bring (Armijo)."""
HALVINGS = 40
ROUNDING = 1e-14
"""A rise of the value below this share of it is rounding."""

Answer = tuple[float, Floats]


@dataclass(frozen=True, eq=False)
class Minimum:
    """Where a minimisation ended."""

    point: Floats
    gain: float
    """Decrease that another step promises, as a share of the value."""
    rounds: int
    """Points that were asked for."""


def minimise(
    start: Floats, tolerance: float, most: int = 1000
) -> Generator[Floats, Answer, Minimum]:
    """Minimise a smooth convex function; yields points, is sent value and gradient.

    Coordinates are expected to be scaled so that the curvature is at most about 1. It
    stops where another step promises less than `tolerance`, as a share of the value,
    after `most` points, or where rounding ends it: see `Minimum.gain`.
    """
    point = start.copy()
    value, gradient = yield point
    asked = 1
    steps: list[tuple[Floats, Floats, float]] = []
    while True:
        direction = -_inverse_times(gradient, steps)
        promised = float(gradient @ direction)
        if promised > 0:  # rounding has spoilt the model: start it anew
            steps, direction = [], -gradient
            promised = float(gradient @ direction)
        gain = -promised / 2 / max(abs(value), np.finfo(float).tiny)
        if gain <= tolerance or asked >= most:
            break
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
    return Minimum(point, gain, asked)


def _inverse_times(
    gradient: Floats, steps: list[tuple[Floats, Floats, float]]
) -> Floats:
    """The two-loop recursion."""
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
