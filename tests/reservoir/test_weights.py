"""Weights depend on the seed only and have the right spectral radius."""

import numpy as np
import pytest
from scipy.sparse import linalg

from tests.conftest import small_settings
from tests.reservoir import reference
from xnq_dist.reservoir import weights as w
from xnq_dist.reservoir.embed import reservoir_spec


def draw(matrix="dense", dim=60, seed=3):
    return reference.draw(seed, dim, 7, matrix, 5.0, 0.5, 4.0)


@pytest.mark.parametrize("matrix", ["dense", "sparse"])
def test_radius_of_w_is_scale_over_rho(matrix):
    drawn = draw(matrix)
    moduli = np.abs(np.linalg.eigvals(reference.dense(drawn.recurrent)))
    assert moduli.max() == pytest.approx(5.0 / 4.0, rel=1e-4)


def test_rho_zero_uses_the_recurrent_scale_as_it_is():
    settings = small_settings("reservoir.matrix=dense")
    [part] = reservoir_spec(settings, {"rho": 0.0}, 5.0, 0.5).parts
    moduli = np.abs(np.linalg.eigvals(part.draw(7).recurrent.values.astype(float)))
    assert moduli.max() == pytest.approx(5.0, rel=1e-4)


@pytest.mark.parametrize(
    ("matrix", "converges"), [("dense", True), ("sparse", True), ("sparse", False)]
)
def test_large_matrices_are_never_decomposed(matrix, converges, monkeypatch):
    """All eigenvalues of 4,096 units take as long as many supersteps."""

    def refuse(_):
        raise AssertionError("all eigenvalues of a large matrix")

    def stop(*_, **__):
        raise linalg.ArpackNoConvergence("no convergence", np.empty(0), np.empty(0))

    monkeypatch.setattr(w, "NONZEROS", 4)
    drawn = w.draw_recurrent(1, 300, matrix)
    expected = np.abs(np.linalg.eigvals(reference.dense(drawn))).max()
    monkeypatch.setattr(w, "EIGEN_UNITS", 299)
    monkeypatch.setattr(np.linalg, "eigvals", refuse)
    monkeypatch.setattr(np.linalg, "eig", refuse)
    if not converges:
        monkeypatch.setattr(linalg, "eigs", stop)
    error = 1e-5 if converges else 2e-3
    assert w.recurrent_radius(drawn, 1) == pytest.approx(expected, rel=error)


def test_ranges_and_seed():
    first, same, other = draw(), draw(), draw(seed=4)
    np.testing.assert_array_equal(first.inputs, same.inputs)
    np.testing.assert_array_equal(first.recurrent.values, same.recurrent.values)
    assert np.abs(first.inputs - other.inputs).max() > 0.1
    assert np.abs(first.inputs).max() <= 0.5
    assert np.abs(first.inputs).max() > 0.49
    assert np.abs(first.bias).max() <= 0.1
    # The three streams are not one another's copies.
    assert not np.allclose(first.inputs[:, 0] / 0.5, first.bias / 0.1)


def test_sparse_rows_have_distinct_sorted_columns():
    drawn = w.draw_recurrent(0, 200, "sparse")
    assert (np.diff(drawn.columns, axis=1) > 0).all()
    # Every unit is read by some other: no column range is left out.
    assert len(np.unique(drawn.columns)) > 190


def test_earlier_rows_of_the_input_weights_stay_with_more_units():
    np.testing.assert_array_equal(draw(dim=40).inputs, draw(dim=60).inputs[:40])
