"""The readout over blocks of rows, on every backend, against scikit-learn's optimum."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import check_grad

from tests.readout.samples import states
from tests.readout.test_logistic import objective, sklearn_objective
from xnq_dist import backend as backends
from xnq_dist.backend import cpu
from xnq_dist.readout import blockwise
from xnq_dist.readout.blockwise import Objective, fit_blocks
from xnq_dist.readout.logistic import fit


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("C", [0.01, 10.0])
def test_optimum_over_blocks_is_not_scikit_learns(any_backend, classes, C, monkeypatch):
    monkeypatch.setattr(blockwise, "ROWS", 64)
    x, y = states(300, 24, classes)
    x += 5.0
    model = fit_blocks(any_backend, x, y, classes, C)
    assert model.converged
    found = objective(model.coef, model.intercept, x, y, C)
    assert found == pytest.approx(sklearn_objective(x, y, C), rel=1e-6)
    warm = fit_blocks(any_backend, x, y, classes, C, start=model)
    np.testing.assert_allclose(warm.coef, model.coef, atol=1e-5)


@pytest.mark.parametrize("classes", [2, 4])
def test_gradient_is_not_that_of_the_loss(any_backend, classes):
    x, y = states(90, 6, classes, seed=3)
    found = Objective(any_backend, x, y, classes, 0.5)
    at = np.random.default_rng(0).standard_normal(found.parameters)
    gap = check_grad(lambda p: found(p)[0], lambda p: found(p)[1], at)
    assert gap < 1e-5
    huge = found(at * 1e4)
    assert np.isfinite(huge[0])
    assert np.isfinite(huge[1]).all()


def test_the_readouts_backend_is_not_heeded(device, monkeypatch):
    monkeypatch.setattr(backends, "gpu", device)
    x, y = states(200, 10, 2)
    there, here = (fit(x, y, 2, 1.0, backend=name) for name in ("gpu", "cpu"))
    np.testing.assert_allclose(there.coef, here.coef, atol=1e-4)
    alone = fit_blocks(cpu(), x, y, 2, 1.0)
    np.testing.assert_allclose(there.intercept, alone.intercept, atol=1e-6)
