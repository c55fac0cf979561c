"""KDEy-ML: densities against scikit-learn's, estimates against QuaPy."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.neighbors import KernelDensity

from tests.quantify.samples import (
    draw_posteriors,
    field_library,
    labelled_reference,
    make_communities,
    make_nodes,
    their_quantifier,
)
from xnq_dist.quantify.classic import kdey_ml as density
from xnq_dist.quantify.classic.kdey_ml import KdeyMl, log_densities


def exact_posteriors(n, prior, seed):
    """Rows that sum to 1 in float64, and their classes."""
    posteriors, classes = draw_posteriors(n, np.array(prior), 1.1, seed)
    values = posteriors.astype(np.float64)
    return values / values.sum(axis=1, keepdims=True), classes


def by_field(at, posteriors, labels, bandwidth):
    columns = []
    for y in range(posteriors.shape[1]):
        kernel = KernelDensity(bandwidth=bandwidth).fit(posteriors[labels == y])
        columns.append(kernel.score_samples(at))
    found = np.stack(columns, axis=1)
    return found - found.max(axis=1, keepdims=True)


@pytest.mark.parametrize("bandwidth", [0.02, 0.1, 0.5])
@pytest.mark.parametrize("prior", [[0.8, 0.2], [0.2, 0.5, 0.3]], ids=len)
def test_densities_are_those_of_scikit_learn(prior, bandwidth):
    posteriors, classes = exact_posteriors(500, prior, 0)
    held, labels = posteriors[:200], classes[:200]
    edges = np.eye(len(prior))[[0, -1]]
    at = np.concatenate([posteriors[200:], edges, held[:3]])
    found = log_densities(at, held, labels, bandwidth)
    found -= found.max(axis=1, keepdims=True)
    expected = by_field(at, held, labels, bandwidth)
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_chunks_keep_every_bit_and_distance_keeps_densities_positive(monkeypatch):
    posteriors, classes = exact_posteriors(300, [0.3, 0.3, 0.4], 1)
    held, labels = posteriors[:100], classes[:100]
    whole = log_densities(posteriors, held, labels, 0.01)
    # At this bandwidth densities are below the smallest float64.
    assert whole.min() < -800
    assert np.isfinite(whole).all()
    monkeypatch.setattr(density, "PAIRS", 150)
    np.testing.assert_array_equal(log_densities(posteriors, held, labels, 0.01), whole)


@pytest.mark.oracle
@pytest.mark.parametrize("prior", [[0.7, 0.3], [0.1, 0.4, 0.3, 0.2]], ids=len)
def test_estimates_are_those_of_quapy(prior):
    made = field_library().KDEyML
    posteriors, classes = draw_posteriors(1500, np.array(prior), 1.1, 2)
    reference = labelled_reference(posteriors[:300], classes[:300])
    theirs = their_quantifier(made, reference.posteriors, reference.labels)
    rng = np.random.default_rng(0)
    sets = [rng.integers(300, 1500, n) for n in (50, 300, 500)]
    nodes, batch = make_nodes(posteriors), make_communities(*sets)
    found = KdeyMl(0.1).estimate(batch, nodes, reference)
    assert found.converged.all()
    for ours, members in zip(found.prevalence, sets, strict=True):
        other = theirs.aggregate(posteriors[members].astype(np.float64))
        np.testing.assert_allclose(ours, other, atol=1e-3)
