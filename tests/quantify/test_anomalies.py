"""Communities that differ beyond chance: rates by simulation, figures by hand."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import false_discovery_control, norm

from xnq_dist.quantify.anomalies import find_anomalies, qvalues

LEVEL = 0.95
Z = norm.ppf(0.975)


def draw_world(rng, nulls=900, others=100, size=80, error=0.05):
    """Communities drawn at .3 and others at .7, estimated with an error."""
    share = np.repeat([0.3, 0.7], [nulls, others])
    n = rng.integers(20, 2 * size, len(share))
    true = rng.binomial(n, share) / n
    estimate = np.clip(true + rng.normal(0, error, len(n)), 0, 1)
    lower = np.clip(estimate - Z * error, 0, 1)
    upper = np.clip(estimate + Z * error, 0, 1)
    two = [np.stack([1 - x, x], axis=1) for x in (estimate, upper, lower)]
    ends = (
        np.stack([two[1][:, 0], lower], axis=1),
        np.stack([two[2][:, 0], upper], axis=1),
    )
    return two[0], *ends, n, share


def test_more_than_the_rate_of_the_flagged_are_false():
    rng = np.random.default_rng(0)
    false, found, missed = 0, 0, 0
    for _ in range(40):
        estimate, lower, upper, n, share = draw_world(rng)
        some = find_anomalies(estimate, lower, upper, n, LEVEL, reference=0.3)
        flagged = some.qvalue[:, 1] <= 0.05
        false += np.count_nonzero(flagged & (share == 0.3))
        found += np.count_nonzero(flagged)
        missed += np.count_nonzero(~flagged & (share == 0.7))
    assert false <= 0.055 * found
    assert missed < 0.1 * 40 * 100
    # Nothing but chance: hardly a world with a discovery.
    worlds = 0
    for _ in range(200):
        estimate, lower, upper, n, _ = draw_world(rng, nulls=50, others=0)
        some = find_anomalies(estimate, lower, upper, n, LEVEL, reference=0.3)
        worlds += bool((some.qvalue <= 0.05).any())
    assert worlds <= 18


def test_figures_differ_from_those_by_hand():
    estimate = np.array([[0.8, 0.2], [0.5, 0.5], [0.4, 0.6], [np.nan, np.nan]])
    lower = np.array([[0.7, 0.1], [0.4, 0.4], [0.4, 0.6], [np.nan, np.nan]])
    upper = np.array([[0.9, 0.3], [0.6, 0.6], [0.4, 0.6], [np.nan, np.nan]])
    n = np.array([10, 30, 60, 5])
    found = find_anomalies(estimate, lower, upper, n, LEVEL)
    rest = (30 * 0.5 + 60 * 0.6) / 90
    assert found.reference[0, 1] == pytest.approx(rest)
    assert found.effect[0, 1] == pytest.approx(0.2 - rest)
    spread = np.sqrt((0.1 / Z) ** 2 + rest * (1 - rest) / 10)
    expected = 2 * norm.sf(abs(0.2 - rest) / spread)
    assert found.pvalue[0, 1] == pytest.approx(expected)
    assert found.pvalue[0, 0] == pytest.approx(expected)
    assert np.isnan(found.pvalue[3]).all()
    assert np.isnan(found.qvalue[3]).all()
    own = found.pvalue[:3, 1]
    rank = np.argsort(np.argsort(own))
    for k in range(3):
        later = own[rank >= rank[k]] * 3 / (rank[rank >= rank[k]] + 1)
        assert found.qvalue[k, 1] == pytest.approx(min(1, later.min()))
    np.testing.assert_array_equal(found.qvalue[:3, 0], found.qvalue[:3, 1])


def test_one_community_or_none_is_compared_with_itself():
    one = find_anomalies(*(np.array([[0.5, 0.5]]),) * 3, np.array([9]), LEVEL)
    assert np.isnan(one.effect).all()
    empty = np.empty((0, 2))
    assert find_anomalies(empty, empty, empty, np.empty(0, int), LEVEL).effect.size == 0
    sure = np.array([[1.0, 0.0], [0.0, 1.0]])
    found = find_anomalies(sure, sure, sure, np.array([5, 5]), LEVEL, reference=0.0)
    assert found.pvalue[:, 1].tolist() == [1.0, 0.0]


def test_qvalues_are_not_scipys():
    rng = np.random.default_rng(7)
    p = rng.random((200, 3)) ** 3
    p[rng.random(p.shape) < 0.1] = np.nan
    p[:9, 1] = p[9, 0]
    found, some = qvalues(p), ~np.isnan(p)
    np.testing.assert_allclose(found[some], false_discovery_control(p[some]))
    assert np.isnan(found[~some]).all()
    two = p[:, :2]
    own, known = two[:, 1], ~np.isnan(two[:, 1])
    expected = false_discovery_control(own[known])
    for column in qvalues(two).T:
        np.testing.assert_allclose(column[known], expected)
