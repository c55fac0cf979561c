"""Tails of sums by three moments, against the sums' own distributions."""

from __future__ import annotations

import numpy as np
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
