"""Search spaces: the paper's random draws and grids, from a seed alone."""

from __future__ import annotations

import math

import numpy as np

from xnq_dist.core.config import Settings
from xnq_dist.core.errors import SettingsError
from xnq_dist.core.random_bits import Purpose, stream, stream_key
from xnq_dist.evaluation.methods.method_interface import Configuration

__all__ = ["grid", "reservoir_draws", "strength_grid"]


STRENGTHS = (1e-2, 1e3)
RECURRENT_SCALES = (1.0, 25.0)
INPUT_SCALES = (0.1, 1.0)
"""Ranges, sampled log-uniformly (the paper, section "Hyperparameters")."""


def reservoir_draws(settings: Settings, draws: int) -> list[Configuration]:
    """Random configurations of reservoir and readout.

    The first ones of a longer search are those of a shorter one. What is set in the
    settings is held fixed; the other values of a draw do not change with it.

    Raises
    ------
    SettingsError
        When `draws` is below 1.
    """
    if draws < 1:
        raise SettingsError(f"a search of {draws} draws finds nothing: give at least 1")
    dims = settings.evaluation.dims
    found = []
    for draw in range(draws):
        key = settings.seed, Purpose.SEARCH, draw
        random = stream(*key)
        # The size by a uniform number, so that another list of sizes moves no other.
        size, *scales = random.random(4).tolist()
        configuration: Configuration = {
            "dim": dims[int(size * len(dims))],
            "recurrent_scale": _log_uniform(RECURRENT_SCALES, scales[0]),
            "input_scale": _log_uniform(INPUT_SCALES, scales[1]),
            "C": _log_uniform(STRENGTHS, scales[2]),
            "seed": int(stream_key(*key).generate_state(1)[0]),
        }
        wanted = settings.reservoir
        if "dim" in wanted.model_fields_set:
            configuration["dim"] = wanted.dim
        for name in ("recurrent_scale", "input_scale"):
            value = getattr(wanted, name)
            if value != "select":
                configuration[name] = value
        if settings.readout.C != "select":
            configuration["C"] = settings.readout.C
        found.append(configuration)
    return found


def strength_grid(settings: Settings, count: int = 10) -> list[Configuration]:
    """The grid of C of a readout without anything else to search."""
    if settings.readout.C != "select":
        return [{"C": settings.readout.C}]
    low, high = (math.log10(end) for end in STRENGTHS)
    return [{"C": float(10.0**power)} for power in np.linspace(low, high, count)]


def grid(**values: tuple[object, ...]) -> list[Configuration]:
    """Every combination of the values, the last name running fastest.

    Examples
    --------
    >>> grid(a=(1, 2), b=("x",))
    [{'a': 1, 'b': 'x'}, {'a': 2, 'b': 'x'}]
    """
    found: list[Configuration] = [{}]
    for name, options in values.items():
        found = [{**before, name: option} for before in found for option in options]
    return found


def _log_uniform(ends: tuple[float, float], uniform: float) -> float:
    low, high = (math.log(end) for end in ends)
    # Six digits: enough for a scale, and the same in a table as in the run.
    return float(f"{math.exp(low + uniform * (high - low)):.6g}")
