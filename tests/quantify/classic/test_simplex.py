"""Exact solvers against plain loops, SLSQP, random points and their Python form."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from tests.quantify.samples import draw_posteriors, exact_sld
from xnq_dist.quantify.classic import simplex
from xnq_dist.quantify.classic.simplex import likelihood_kernel, topsoe_kernel

KERNELS = (
    "_solve",
    "_quadratic",
    "_write",
    "_gap",
    "_newton_target",
    "_gather",
    "_mixture",
    "_minus_log",
    "_product",
    "_topsoe",
    "_max_length",
    "likelihood_kernel",
    "topsoe_kernel",
)


def most_likely(ratios, sets, tile=64, steps=200, kernel=likelihood_kernel):
    offsets = np.cumsum([0, *map(len, sets)]).astype(np.int64)
    members = np.concatenate([np.empty(0, np.int64), *map(np.asarray, sets)])
    found = np.full((len(sets), ratios.shape[1]), np.nan)
    taken, done = np.zeros(len(sets), np.int32), np.ones(len(sets), np.bool_)
    ratios, members = np.asarray(ratios, np.float64), members.astype(np.int64)
    kernel(offsets, members, ratios, 1e-10, steps, tile, found, taken, done)
    return found, taken, done


def nearest(samples, shares, steps=200, kernel=topsoe_kernel):
    samples, shares = np.asarray(samples, np.float64), np.asarray(shares, np.float64)
    found = np.full((len(samples), len(shares)), np.nan)
    taken, done = np.zeros(len(samples), np.int32), np.ones(len(samples), np.bool_)
    kernel(samples, shares, 1e-10, steps, found, taken, done)
    return found, taken, done


def topsoe(a, b):
    """The definition, 0 log 0 = 0."""
    total = 0.0
    for x, y in zip(a, b, strict=True):
        for z in (x, y):
            total += z * np.log(2 * z / (x + y)) if z > 0 else 0.0
    return total


def by_slsqp(cost, classes):
    found = minimize(
        cost,
        np.full(classes, 1 / classes),
        method="SLSQP",
        bounds=[(0, 1)] * classes,
        constraints={"type": "eq", "fun": lambda x: 1 - x.sum()},
    )
    return found.x.clip(0) / found.x.clip(0).sum()


@pytest.mark.parametrize("classes", [2, 3, 6])
def test_maximum_likelihood_agrees_with_its_twin(classes):
    rng = np.random.default_rng(classes)
    prior = rng.dirichlet(np.full(classes, 3.0))
    posteriors, _ = draw_posteriors(700, prior, 1.1, classes)
    sets = [rng.choice(700, n) for n in (1, 2, 9, 63, 64, 65, 400)]
    found, taken, done = most_likely(posteriors / prior, sets)
    assert done.all()
    assert taken.max() < 30
    for q, members in zip(found, sets, strict=True):
        twin, _ = exact_sld(posteriors[members], prior)
        a = posteriors[members] / prior
        assert np.log(a @ q).mean() >= np.log(a @ twin).mean() - 1e-9
        gradient = (a / (a @ q)[:, None]).mean(axis=0)
        assert gradient.max() - 1 <= 1e-9
        if len(members) > 50:
            np.testing.assert_allclose(q, twin, atol=1e-6)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**31), st.integers(2, 6), st.integers(1, 40))
def test_maximum_likelihood_is_above_other_points_and_independent_of_other_communities(
    seed, classes, size
):
    rng = np.random.default_rng(seed)
    ratios = rng.dirichlet(np.full(classes, 0.15), 60)
    ratios[rng.random(ratios.shape) < 0.2] = 0
    ratios[ratios.sum(axis=1) == 0, 0] = 1
    ratios *= 10.0 ** rng.integers(-30, 30, (60, 1))
    sets = [rng.integers(0, 60, size), [], np.arange(60)]
    found, _, done = most_likely(ratios, sets, tile=16)
    assert done.all()
    assert np.isnan(found[1]).all()
    for s in (0, 2):
        chosen = ratios[sets[s]] / ratios[sets[s]].max(axis=1, keepdims=True)
        best = np.log(chosen @ found[s]).mean()
        assert found[s].sum() == pytest.approx(1, abs=1e-12)
        with np.errstate(divide="ignore"):
            others = np.log(rng.dirichlet(np.ones(classes), 100) @ chosen.T)
        assert others.mean(axis=1).max() <= best + 1e-9
        alone, _, _ = most_likely(ratios, [sets[s]], tile=16)
        np.testing.assert_array_equal(alone[0], found[s])
        larger, _, _ = most_likely(ratios, [sets[s]], tile=128)
        chosen_mean = np.log(chosen @ larger[0]).mean()
        assert chosen_mean == pytest.approx(best, abs=1e-9)


def test_equal_and_impossible_classes_converge():
    alike, _, done = most_likely(np.ones((9, 3)), [np.arange(9)])
    assert done.all()
    np.testing.assert_allclose(alike.sum(), 1)
    corner, _, done = most_likely(np.tile([[1.0, 0.0]], (9, 1)), [np.arange(9)])
    np.testing.assert_allclose(corner, [[1.0, 0.0]], atol=1e-10)
    apart = np.repeat(np.eye(3), [5, 3, 2], axis=0)
    found, _, done = most_likely(apart, [np.arange(10)])
    assert done.all()
    np.testing.assert_allclose(found, [[0.5, 0.3, 0.2]], atol=1e-9)


def test_product_of_tiny_mixtures_keeps_its_logarithm():
    tiny = np.full(16, 1e-60)
    assert simplex._minus_log(tiny, 16) == pytest.approx(16 * 60 * np.log(10))
    assert simplex._minus_log(np.full(16, 1e60), 13) < 0
    tiny[11] = 0.0
    assert simplex._minus_log(tiny, 16) == np.inf


@pytest.mark.parametrize(("classes", "cells"), [(2, 8), (3, 24), (7, 56)])
def test_topsoe_minimum_is_as_good_as_slsqp(classes, cells):
    rng = np.random.default_rng(classes)
    shares = rng.dirichlet(np.full(cells, 0.4), classes)
    shares[:, rng.integers(0, cells, cells // 4)] = 0
    shares[1, : cells // 3] = 0
    shares /= shares.sum(axis=1, keepdims=True)
    samples = rng.multinomial(60, rng.dirichlet(np.ones(classes), 12) @ shares) / 60
    found, taken, done = nearest(samples, shares)
    assert done.all()
    assert taken.max() < 60
    for sample, p in zip(samples, found, strict=True):

        def cost(at, sample=sample):
            return topsoe(sample, np.maximum(at, 0) @ shares)

        theirs = by_slsqp(cost, classes)
        assert cost(p) <= cost(theirs) + 1e-10
        np.testing.assert_allclose(p, theirs, atol=2e-2)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**31), st.integers(2, 6), st.integers(1, 300))
def test_topsoe_minimum_is_below_other_points_and_independent_of_other_samples(
    seed, classes, size
):
    rng = np.random.default_rng(seed)
    # Sparse histograms: classes without common bins, bins that no class has.
    shares = rng.dirichlet(np.full(12, 0.1), classes)
    shares[rng.random(shares.shape) < 0.4] = 0
    shares[shares.sum(axis=1) == 0, 3] = 1
    shares /= shares.sum(axis=1, keepdims=True)
    samples = rng.multinomial(size, rng.dirichlet(np.full(12, 0.3)), 3) / size
    samples[1] = 0
    found, _, done = nearest(samples, shares)
    assert done.all()
    assert np.isnan(found[1]).all()
    for s in (0, 2):
        best = topsoe(samples[s], found[s] @ shares)
        assert found[s].sum() == pytest.approx(1, abs=1e-12)
        assert (found[s] >= 0).all()
        corners = np.concatenate([rng.dirichlet(np.ones(classes), 60), np.eye(classes)])
        assert min(topsoe(samples[s], p @ shares) for p in corners) >= best - 1e-9
        np.testing.assert_array_equal(
            nearest(samples[s : s + 1], shares)[0][0], found[s]
        )


def test_steep_cells_converge():
    # All that the sample shows of class 0 is in a cell that class 1 hardly has: a full
    # first step would leave so little of it that the next ones would see nothing.
    shares = [[0.9998, 2e-4, 0.0], [0.9995, 3e-39, 5e-4]]
    found, taken, done = nearest([[0.0, 0.4, 0.6]], shares)
    assert done.all()
    assert taken[0] < 25
    grid = np.linspace(0, 1, 2001)[1:-1, None] * np.array([1.0, -1.0]) + [0.0, 1.0]
    sample = np.array([0.0, 0.4, 0.6])
    best = min(topsoe(sample, p @ np.array(shares)) for p in grid)
    assert topsoe(sample, found[0] @ np.array(shares)) <= best + 1e-10


def test_estimates_at_the_limit_of_steps_are_marked():
    rng = np.random.default_rng(0)
    ratios = rng.dirichlet(np.full(3, 0.2), 50)
    _, taken, done = most_likely(ratios, [np.arange(50)], steps=1)
    assert (taken[0], done[0]) == (1, False)
    shares = rng.dirichlet(np.ones(8), 3)
    _, taken, done = nearest([0.2 * shares[0] + 0.7 * shares[1] + 0.0125], shares, 1)
    assert (taken[0], done[0]) == (1, False)


def test_compiled_code_agrees_with_its_python(monkeypatch):
    rng = np.random.default_rng(1)
    ratios = rng.dirichlet(np.full(3, 0.2), 40)
    ratios[:20] = np.eye(3)[rng.integers(0, 3, 20)]
    sets = [np.arange(40), rng.integers(0, 40, 13), [], [3], np.arange(20, 29)]
    shares = rng.dirichlet(np.full(10, 0.2), 3)
    shares[:, 2] = 0
    shares[:2, 7] = 0
    shares /= shares.sum(axis=1, keepdims=True)
    samples = rng.dirichlet(np.full(10, 0.3), 6)
    samples[rng.random(samples.shape) < 0.4] = 0
    samples[:, 2] += 0.1
    samples /= samples.sum(axis=1, keepdims=True)
    samples[3] = 0
    likely = [most_likely(ratios, sets, tile) for tile in (64, 8)]
    near = nearest(samples, shares)
    for name in KERNELS:
        monkeypatch.setattr(simplex, name, getattr(simplex, name).py_func)
    with np.errstate(divide="ignore", invalid="ignore"):
        for compiled, tile in zip(likely, (64, 8), strict=True):
            slow = most_likely(ratios, sets, tile, kernel=simplex.likelihood_kernel)
            np.testing.assert_allclose(slow[0], compiled[0], atol=1e-8)
            np.testing.assert_array_equal(slow[2], compiled[2])
        slow = nearest(samples, shares, kernel=simplex.topsoe_kernel)
    np.testing.assert_allclose(slow[0], near[0], atol=1e-8)
    np.testing.assert_array_equal(slow[2], near[2])
    tiny = np.full(9, 1e-60)
    assert simplex._minus_log(tiny, 9) == pytest.approx(9 * 60 * np.log(10))
