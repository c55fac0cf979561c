"""AE and RAE against QuaPy."""

from __future__ import annotations

import numpy as np
import pytest

from xnq_dist.evaluation.scoring import errors_of


@pytest.fixture
def vectors():
    rng = np.random.default_rng(1)
    true = rng.dirichlet(np.ones(4), 50)
    true[:10] = np.eye(4)[rng.integers(0, 4, 10)]
    return true, rng.dirichlet(np.ones(4), 50)


@pytest.mark.oracle
def test_errors_are_those_of_quapy(vectors):
    quapy = pytest.importorskip("quapy")
    true, estimate = vectors
    found = errors_of(true, estimate, np.full(50, 500))
    np.testing.assert_allclose(found["ae"], quapy.error.ae(true, estimate), rtol=1e-12)
    expected = quapy.error.rae(true, estimate, eps=1 / 1000)
    # QuaPy smooths both vectors; the denominators of its smoothing cancel.
    np.testing.assert_allclose(found["rae"], expected, rtol=1e-9)


def test_relative_error_of_an_absent_class_is_large_but_finite():
    found = errors_of(np.array([[1.0, 0.0]]), np.array([[0.9, 0.1]]), np.array([50]))
    np.testing.assert_allclose(found["rae"], [(0.1 / 1.01 + 0.1 / 0.01) / 2])
