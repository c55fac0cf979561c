"""KDEy-ML: densities against scikit-learn's, estimates against QuaPy."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.neighbors import KernelDensity

from tests.quantify.samples import (
    draw_posteriors,
)
from xnq_dist.quantify.classic import kdey_ml as density
from xnq_dist.quantify.classic.kdey_ml import log_densities


def exact_posteriors(n, prior, seed):
    """Rows that sum to 1 in float64, and their classes."""
    posteriors, classes = draw_posteriors(n, np.array(prior), 1.1, seed)
    values = posteriors.astype(np.float64)
    return values / values.sum(axis=1, keepdims=True), classes


def by_field(at, posteriors, labels):
    columns = []
    for y in range(posteriors.shape[1]):
        kernel = KernelDensity(bandwidth=density.BANDWIDTH).fit(posteriors[labels == y])
        columns.append(kernel.score_samples(at))
    return relative(np.stack(columns, axis=1))


def relative(logs):
    return logs - logs.max(axis=1, keepdims=True)


@pytest.mark.parametrize("prior", [[0.8, 0.2], [0.2, 0.5, 0.3]], ids=len)
def test_densities_are_those_of_scikit_learn(prior):
    posteriors, classes = exact_posteriors(500, prior, 0)
    held, labels = posteriors[:200], classes[:200]
    edges = np.eye(len(prior))[[0, -1]]
    at = np.concatenate([posteriors[200:], edges, held[:3]])
    found = relative(log_densities(held, labels)(at))
    np.testing.assert_allclose(found, by_field(at, held, labels), atol=1e-7)


def test_chunks_keep_every_bit_and_distance_keeps_densities_positive(monkeypatch):
    posteriors, classes = exact_posteriors(300, [0.3, 0.3, 0.4], 1)
    held, labels = posteriors[:100], classes[:100]
    # At this bandwidth densities are below the smallest float64.
    monkeypatch.setattr(density, "BANDWIDTH", 0.01)
    whole = log_densities(held, labels)(posteriors)
    assert relative(whole).min() < -800
    assert np.isfinite(whole).all()
    monkeypatch.setattr(density, "PAIRS", 150)
    np.testing.assert_array_equal(log_densities(held, labels)(posteriors), whole)
