"""Searches depend only on the seed and keep values from the settings fixed."""

from __future__ import annotations

import numpy as np

from xnq_dist.core.config import load_settings
from xnq_dist.evaluation.search import reservoir_draws, strength_grid


def test_draws_fill_the_ranges_of_the_paper():
    draws = reservoir_draws(load_settings(), 400)
    assert {draw["dim"] for draw in draws} == {512, 1024, 2048, 4096}
    ranges = {"recurrent_scale": (1, 25), "input_scale": (0.1, 1), "C": (1e-2, 1e3)}
    for name, (low, high) in ranges.items():
        place = np.log([draw[name] for draw in draws])
        place = (place - np.log(low)) / np.log(high / low)
        assert place.min() >= 0
        assert place.max() <= 1
    assert len({draw["seed"] for draw in draws}) == 400


def test_a_longer_search_begins_with_a_shorter_one():
    settings = load_settings()
    assert reservoir_draws(settings, 20)[:5] == reservoir_draws(settings, 5)
    other = load_settings(overrides=["seed=1"])
    assert reservoir_draws(other, 5) != reservoir_draws(settings, 5)


def test_what_is_set_is_held_fixed_and_moves_nothing_else():
    free = reservoir_draws(load_settings(), 8)
    held = ["reservoir.dim=64", "reservoir.input_scale=0.5", "readout.C=3.0"]
    fixed = reservoir_draws(load_settings(overrides=held), 8)
    for before, after in zip(free, fixed, strict=True):
        assert after == {**before, "dim": 64, "input_scale": 0.5, "C": 3.0}


def test_strengths_are_ten_to_the_range():
    values = [configuration["C"] for configuration in strength_grid(load_settings(), 1)]
    np.testing.assert_allclose(values, np.logspace(-2, 3, 10))
    fixed = load_settings(overrides=["readout.C=2"])
    assert strength_grid(fixed, 1) == [{"C": 2.0}]
