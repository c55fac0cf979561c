"""The Lanczos recurrence agrees with dense eigenvalues, also if some are close."""

from __future__ import annotations

import numpy as np
import pytest

from xnq_dist.graph import spectral
from xnq_dist.graph.spectral import largest_eigenvalue

TOLERANCE = 1e-7


def with_values(values, seed):
    rng = np.random.default_rng(seed)
    vectors, _ = np.linalg.qr(rng.standard_normal((len(values), len(values))))
    return np.asarray((vectors * values) @ vectors.T)


@pytest.mark.parametrize("gap", [1e-1, 1e-3, 1e-5])
@pytest.mark.parametrize("seed", range(3))
def test_a_close_second_eigenvalue_is_resolved(gap, seed):
    rng = np.random.default_rng(seed)
    values = np.r_[7.0, 7.0 * (1 - gap), rng.uniform(-6, 6, 198)]
    matrix = with_values(values, seed)
    found = largest_eigenvalue(lambda x: matrix @ x, rng.random(200), TOLERANCE)
    assert found == pytest.approx(7.0, rel=max(1e-9, 1e-7 if gap < 1e-4 else 0))


def test_an_eigenvector_as_the_start_is_handled():
    ring = np.roll(np.eye(100), 1, axis=1)
    ring += ring.T
    found = largest_eigenvalue(lambda x: ring @ x, np.ones(100), TOLERANCE)
    assert found == pytest.approx(2.0, rel=1e-12)
    star = np.zeros((100, 100))
    star[0, 1:] = star[1:, 0] = 1.0
    found = largest_eigenvalue(lambda x: star @ x, np.ones(100), TOLERANCE)
    assert found == pytest.approx(np.sqrt(99), rel=1e-12)
    zero = np.zeros((100, 100))
    assert largest_eigenvalue(lambda x: zero @ x, np.ones(100), TOLERANCE) == 0.0


def test_copies_of_a_found_value_end_it(monkeypatch):
    monkeypatch.setattr(spectral, "NEAR", 0.0)
    rng = np.random.default_rng(0)
    matrix = with_values(np.r_[1e6, rng.uniform(-1, 1, 79)], 0)
    found = largest_eigenvalue(lambda x: matrix @ x, rng.random(80), 1e-13)
    assert found == pytest.approx(1e6, rel=1e-12)


def test_a_slow_matrix_gives_a_lower_bound_and_a_warning(monkeypatch, caplog):
    monkeypatch.setattr(spectral, "STEPS", 5)
    path = np.eye(300, k=1) + np.eye(300, k=-1)
    found = largest_eigenvalue(lambda x: path @ x, np.ones(300), TOLERANCE)
    assert 1.98 < found < 2 * np.cos(np.pi / 301)
    assert "may be inaccurate in its last digits" in caplog.text


def test_a_long_path_has_its_radius_to_six_digits(
    caplog,
):
    def product(x):
        return np.r_[x[1:], 0.0] + np.r_[0.0, x[:-1]]

    found = largest_eigenvalue(product, np.ones(2_000), TOLERANCE)
    assert found == pytest.approx(2 * np.cos(np.pi / 2_001), rel=1e-6)
