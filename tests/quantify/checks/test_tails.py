"""Tails of sums by three moments, against the sums' own distributions."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from xnq_dist.quantify.checks.tails import upper_tail


def test_tails_are_those_of_pearsons_third_type_and_of_the_normal():
    at = np.linspace(-3, 6, 19)
    for skew in (-1.5, -0.2, 0.0, 0.3, 2.0):
        variance = np.full(len(at), 2.0)
        expected = stats.pearson3.sf(at, skew, loc=0, scale=np.sqrt(2))
        if skew < 0:
            normal = stats.norm.sf(at / np.sqrt(2))
            expected = np.where(at > 0, np.maximum(expected, normal), expected)
        found = upper_tail(at, variance, skew * variance**1.5)
        np.testing.assert_allclose(found, expected, atol=1e-9)


def test_sums_of_variance_zero_are_zero():
    at = np.array([-1.0, 0.0, 1.0])
    assert upper_tail(at, np.zeros(3), np.zeros(3)).tolist() == [1.0, 1.0, 0.0]


@pytest.mark.parametrize("rare", [0.01, 0.1, 0.4])
def test_counts_of_unequal_chances_have_nearly_their_exact_tails(rare):
    rng = np.random.default_rng(1)
    chance = np.clip(rng.beta(1, 1 / rare - 1, 60), 1e-4, 0.95)
    exact = np.ones(1)
    for p in chance:
        exact = np.convolve(exact, [1 - p, p])
    tail = exact[::-1].cumsum()[::-1]
    spread = chance * (1 - chance)
    counts = np.arange(len(exact))
    some = (counts > chance.sum() + 0.5) & (tail > 1e-6)
    found = upper_tail(
        counts[some] - 0.5 - chance.sum(),
        np.full(some.sum(), spread.sum()),
        np.full(some.sum(), (spread * (1 - 2 * chance)).sum()),
    )
    # Within a fifth at 5 %, and never far too small.
    ratio = found / tail[some]
    assert ratio.min() > 0.6
    assert np.abs(np.log(ratio[tail[some] > 0.005])).max() < 0.25
