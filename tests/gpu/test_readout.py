"""The readout's solver on every backend, against scikit-learn's optimum."""

from __future__ import annotations

import numpy as np
import pytest

from tests.readout.samples import states
from tests.readout.test_logistic import assert_optimum
from xnq_dist.core import backend as backends
from xnq_dist.readout import objective
from xnq_dist.readout.logistic import FitJob, fit, fit_jobs
from xnq_dist.readout.objective import MemoryRows


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("C", [0.01, 10.0, 1000.0])
def test_optimum_over_blocks_is_scikit_learns(any_backend, classes, C, monkeypatch):
    monkeypatch.setattr(objective, "DEVICE_VALUES", 64 * 24)
    x, y = states(300, 24, classes)
    x += 5.0
    folds = (np.arange(300) % 3).astype(np.int32)
    weights = np.random.default_rng(0).exponential(1.0, 300)
    rows = MemoryRows.of(x, y, folds, classes, weights, backend=any_backend)
    whole, part = fit_jobs(rows, [FitJob((), C), FitJob((1,), C)])
    assert whole.model.converged
    assert_optimum(whole.model, x, y, C, weights)
    seen = folds != 1
    assert_optimum(part.model, x[seen], y[seen], C, weights[seen])
    (warm,) = fit_jobs(rows, [FitJob((), C, whole.model)])
    np.testing.assert_allclose(warm.model.coef, whole.model.coef, atol=1e-4)


@pytest.mark.parametrize("smooth", [False, True])
def test_gpu_and_cpu_agree(device, monkeypatch, smooth):
    monkeypatch.setattr(backends, "gpu", lambda: device)
    monkeypatch.setattr(backends, "gpu_facts", lambda: backends.GpuFacts({}, 1, ""))
    x, y = states(200, 10, 2)
    weights = np.random.default_rng(0).exponential(1.0, 200)
    there, here = (fit(x, y, 2, 1.0, name, smooth, weights) for name in ("gpu", "cpu"))
    np.testing.assert_allclose(there.coef, here.coef, atol=1e-5)
    np.testing.assert_allclose(there.intercept, here.intercept, atol=1e-5)
