"""Search spaces: the paper's random draws and grids, which depend on the seed only."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import numpy as np

from xnq_dist.core.random_bits import Purpose, stream, stream_key
from xnq_dist.core.settings import Settings

__all__ = ["Configuration", "grid", "reservoir_draws", "strength_grid"]

Configuration = dict[str, Any]
"""Values of a method's hyperparameters: JSON values."""

DIMS = (512, 1024, 2048, 4096)
"""Reservoir dimensions of the paper."""
STRENGTHS = (1e-2, 1e3)
RECURRENT_SCALES = (1.0, 25.0)
INPUT_SCALES = (0.1, 1.0)
"""Ranges of log-uniform draws (the paper, section "Hyperparameters")."""


def reservoir_draws(settings: Settings, draws: int) -> list[Configuration]:
    """Random configurations of reservoir and readout.

    A longer search begins with the configurations of a shorter one. Values that the
    settings specify are fixed, and the other values of a draw do not change with them.

    """
    reservoir = settings.reservoir
    given = {
        "recurrent_scale": reservoir.recurrent_scale,
        "input_scale": reservoir.input_scale,
        "C": settings.readout.C,
    }
    fixed = {name: value for name, value in given.items() if value != "select"}
    if "dim" in reservoir.model_fields_set:
        fixed["dim"] = reservoir.dim
    configurations = []
    for draw in range(draws):
        key = settings.seed, Purpose.SEARCH, draw
        random = stream(*key)
        # A uniform number chooses the size, so that other values of the draw do not
        # depend on the list of sizes.
        size, *scales = random.random(4).tolist()
        configuration: Configuration = {
            "dim": DIMS[int(size * len(DIMS))],
            "recurrent_scale": _log_uniform(RECURRENT_SCALES, scales[0]),
            "input_scale": _log_uniform(INPUT_SCALES, scales[1]),
            "C": _log_uniform(STRENGTHS, scales[2]),
            "seed": int(stream_key(*key).generate_state(1)[0]),
        }
        configurations.append(configuration | fixed)
    return configurations


def strength_grid(settings: Settings, draws: int) -> list[Configuration]:
    """Grid of C for a readout that has no other hyperparameters."""
    if settings.readout.C != "select":
        return [{"C": settings.readout.C}]
    low, high = (math.log10(end) for end in STRENGTHS)
    return [{"C": float(10.0**power)} for power in np.linspace(low, high, 10)]


def grid(**values: tuple[object, ...]) -> list[Configuration]:
    """Every combination of the values; the last name varies fastest.

    Without values there is one configuration, which is empty.

    Examples
    --------
    >>> grid(a=(1, 2), b=("x",))
    [{'a': 1, 'b': 'x'}, {'a': 2, 'b': 'x'}]
    """
    return [
        dict(zip(values, chosen, strict=True)) for chosen in product(*values.values())
    ]


def _log_uniform(ends: tuple[float, float], uniform: float) -> float:
    low, high = (math.log(end) for end in ends)
    # Rounded to six digits, so that a person can set the exact value.
    return float(f"{math.exp(low + uniform * (high - low)):.6g}")
