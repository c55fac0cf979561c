"""Posteriors tilted by class, and the tilt that gives known shares."""

from __future__ import annotations

import numpy as np
import pytest

from tests.selection.simulated import draw_world
from xnq_dist.selection.tilt import logit_variance, solve_bias, tilted_mean

HALF = np.full(2, 0.5)


@pytest.mark.parametrize("n_classes", [2, 5])
def test_known_shares_are_met(n_classes):
    world = draw_world(0, 3000, n_classes)
    rows = np.arange(0, 3000, 2)
    shares = np.linspace(1, 3, n_classes)
    shares /= shares.sum()
    bias = solve_bias(world.posteriors, rows, shares, shares)
    assert abs(bias.sum()) < 1e-9
    mean, _ = tilted_mean(world.posteriors, rows, np.exp(-bias), shares)
    np.testing.assert_allclose(mean, shares, atol=1e-10)


@pytest.mark.parametrize("share", [1e-4, 0.5, 0.9999])
def test_extreme_shares_are_met(share):
    rng = np.random.default_rng(1)
    p = np.clip(rng.beta(0.02, 0.02, 500), 1e-9, 1 - 1e-9)
    posteriors = np.stack([1 - p, p], axis=1)
    shares = np.array([1 - share, share])
    bias = solve_bias(posteriors, np.arange(500), shares, shares)
    mean, _ = tilted_mean(posteriors, np.arange(500), np.exp(-bias), shares)
    np.testing.assert_allclose(mean, shares, atol=1e-8)


def test_variance_of_a_shift_is_that_of_the_logit_of_the_mean():
    rng = np.random.default_rng(2)
    root_of = rng.normal(0, 0.3, (3, 3))
    covariance = root_of @ root_of.T
    shares = np.array([0.2, 0.5, 0.3])
    draws = rng.multivariate_normal(np.zeros(3), covariance * 1e-4, 200_000)
    moved = shares * np.exp(draws)
    moved /= moved.sum(axis=1, keepdims=True)
    odds = np.log(moved) - np.log1p(-moved)
    expected = odds.var(axis=0) * 1e4
    np.testing.assert_allclose(logit_variance(covariance, shares), expected, rtol=0.02)


def test_rows_of_zeros_are_tilted_as_the_prior():
    posteriors = np.zeros((10, 2))
    prior, factors = np.array([0.8, 0.2]), np.array([1.0, 4.0])
    mean, spread = tilted_mean(posteriors, np.arange(10), factors, prior)
    np.testing.assert_allclose(mean, [0.5, 0.5])
    np.testing.assert_allclose(spread, [0.25, 0.25])
