"""Exact solvers: optimality, edge cases and their Python form."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xnq_dist.quantify.classic import simplex


def most_likely(ratios, sets):
    offsets = np.cumsum([0, *map(len, sets)]).astype(np.int64)
    members = np.concatenate([np.empty(0, np.int64), *map(np.asarray, sets)])
    found = np.full((len(sets), ratios.shape[1]), np.nan)
    done = np.ones(len(sets), np.bool_)
    table = members.astype(np.int64), np.asarray(ratios, np.float64)
    simplex.likelihood_kernel(offsets, *table, found, done)
    return found, done


def nearest(samples, shares):
    samples, shares = np.asarray(samples, np.float64), np.asarray(shares, np.float64)
    found = np.full((len(samples), len(shares)), np.nan)
    done = np.ones(len(samples), np.bool_)
    simplex.topsoe_kernel(samples, shares, found, done)
    return found, done


def adjusted(matrix, counts):
    counts = np.asarray(counts, np.float64)
    found = np.full((len(counts), matrix.shape[1]), np.nan)
    done = np.zeros(len(counts), np.bool_)
    simplex.mixture_kernel(np.asarray(matrix, np.float64), counts, found, done)
    return found, done


def topsoe(a, b):
    """The definition, 0 log 0 = 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return sum(np.nansum(z * np.log(2 * z / (a + b))) for z in (a, b))


def gap(slopes, p):
    """How far the value at shares p of a convex function can be above its minimum."""
    return p @ slopes - slopes.min()


def topsoe_slopes(sample, shares, p):
    mixture = p @ shares
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log(2 * mixture / (sample + mixture))
    return shares @ np.nan_to_num(logs, nan=np.log(2))


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**31), st.integers(2, 6), st.integers(1, 300))
def test_solutions_are_optimal_and_independent_of_other_rows(seed, classes, size):
    rng = np.random.default_rng(seed)
    ratios = rng.dirichlet(np.full(classes, 0.15), 60)
    ratios[rng.random(ratios.shape) < 0.2] = 0
    ratios[ratios.sum(axis=1) == 0, 0] = 1
    scaled = ratios * 10.0 ** rng.integers(-50, 50, (60, 1))
    members = rng.integers(0, 60, min(size, 40))
    likely, done = most_likely(scaled, [members, []])
    # Sparse histograms of a million nodes: classes without common bins, bins that no
    # class has. Shares far below one node leave the search short of its gap, 1e-10.
    shares = rng.multinomial(10**6, rng.dirichlet(np.full(12, 0.1), classes)) / 1e6
    shares[rng.random(shares.shape) < 0.4] = 0
    shares[shares.sum(axis=1) == 0, 3] = 1
    shares /= shares.sum(axis=1, keepdims=True)
    sample = rng.multinomial(size, rng.dirichlet(np.full(12, 0.3))) / size
    near, ended = nearest([sample, np.zeros(12)], shares)
    assert done.all()
    assert ended.all()
    some = ratios[members]
    slopes = -(some / (some @ likely[0])[:, None]).mean(axis=0)
    assert gap(slopes, likely[0]) <= 1e-9
    assert gap(topsoe_slopes(sample, shares, near[0]), near[0]) <= 1e-9
    for found in (likely, near):
        assert found[0].sum() == pytest.approx(1, abs=1e-12)
        assert (found[0] >= 0).all()
        assert np.isnan(found[1]).all()
    np.testing.assert_array_equal(most_likely(scaled, [members])[0][0], likely[0])
    np.testing.assert_array_equal(nearest([sample], shares)[0][0], near[0])


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**31), st.integers(2, 7))
def test_adjusted_counts_are_the_nearest_shares(seed, classes):
    rng = np.random.default_rng(seed)
    matrix = rng.dirichlet(np.full(classes, 0.5), classes).T + 0.3 * np.eye(classes)
    matrix /= matrix.sum(axis=0)
    counts = rng.dirichlet(np.full(classes, 0.4), 3)
    counts[1] = np.nan
    found, done = adjusted(matrix, counts)
    assert np.isnan(found[1]).all()
    for q, p in zip(counts[::2], found[::2], strict=True):
        assert p.sum() == pytest.approx(1, abs=1e-12)
        assert (p >= 0).all()
        assert gap(2 * matrix.T @ (matrix @ p - q), p) <= 1e-9
    assert done[::2].all()


def test_of_equally_good_adjusted_counts_the_most_uniform_is_chosen():
    # Votes cannot distinguish classes 1 and 2: only the sum of their shares is known.
    matrix = np.array([[1, 0, 0], [0, 0.5, 0.5], [0, 0.5, 0.5]])
    found, _ = adjusted(matrix, [[0.4, 0.3, 0.3]])
    np.testing.assert_allclose(found, [[0.4, 0.3, 0.3]], atol=1e-5)
    useless, _ = adjusted(np.full((2, 2), 0.5), [[0.9, 0.1]])
    np.testing.assert_allclose(useless, [[0.5, 0.5]])


def test_equal_impossible_and_separate_classes_converge():
    for ratios, expected in (
        (np.ones((9, 3)), None),
        (np.tile([[1.0, 0.0]], (9, 1)), [1, 0]),
        (np.repeat(np.eye(3), [5, 3, 2], axis=0), [0.5, 0.3, 0.2]),
    ):
        found, done = most_likely(ratios, [np.arange(len(ratios))])
        assert done.all()
        assert found.sum() == pytest.approx(1)
        if expected is not None:
            np.testing.assert_allclose(found[0], expected, atol=1e-9)


def test_steep_cells_converge():
    # All that the sample shows of class 0 is in a cell that class 1 hardly has: a full
    # first step would leave so little of it that the next ones would see nothing.
    shares = np.array([[0.9998, 2e-4, 0.0], [0.9995, 3e-39, 5e-4]])
    sample = np.array([0.0, 0.4, 0.6])
    found, done = nearest([sample], shares)
    assert done.all()
    assert gap(topsoe_slopes(sample, shares, found[0]), found[0]) <= 1e-10


def test_a_search_that_ends_early_is_reported(monkeypatch):
    search = simplex._minimise.py_func
    monkeypatch.setattr(simplex, "MAX_STEPS", 1)
    ratios = np.random.default_rng(1).dirichlet(np.full(3, 0.2), 40)
    columns, seen = np.ascontiguousarray(ratios.T), np.full(40, 1 / 40)
    assert not search(columns, seen, False, np.empty(3))
