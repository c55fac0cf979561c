"""Data of the funnel plot: typical errors and the reference."""

from __future__ import annotations

import numpy as np
import pytest

from tests.report.fake_run import compared, prevalence_table
from xnq_dist.core.config import load_settings
from xnq_dist.core.settings import Settings
from xnq_dist.report.funnel import reference_of, typical_error


def test_typical_error_is_the_median_at_the_size():
    sizes = np.repeat([10.0, 100.0, 1000.0], 50)
    error = np.repeat([0.3, 0.2, 0.1], 50)
    error[::5] = np.nan
    error[7] = 0.9
    at = np.array([10.0, 100.0, 1000.0, 1.0, 1e6, 10**1.5])
    found = typical_error(sizes, error, at)
    assert found == pytest.approx([0.3, 0.2, 0.1, 0.3, 0.1, 0.25])
    nothing = np.full(3, np.nan)
    assert typical_error(np.ones(3), nothing, at).tolist() == [0.0] * 6
    # Few communities give one value for all sizes.
    few = typical_error(np.arange(1.0, 9), np.linspace(0, 1, 8), at)
    assert few == pytest.approx([0.5] * 6)


def test_reference_of_the_plot_is_that_of_the_anomalies():
    table = prevalence_table(np.arange(40), intervals=True)
    view, found = compared(table, Settings())
    weights, last = view.n_nodes, view.prevalence[:, -1]
    assert reference_of(view, found, Settings()) == found.centre[-1]
    mean = (weights * last).sum() / weights.sum()
    assert reference_of(view, None, Settings()) == pytest.approx(mean)
    fixed = load_settings(overrides=["anomalies.reference=.25"])
    assert reference_of(*compared(table, fixed), fixed) == 0.25
