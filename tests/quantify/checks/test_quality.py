"""Standard errors."""

from __future__ import annotations

import numpy as np
import pytest

from xnq_dist.quantify.quality import standard_errors


def test_an_interval_implies_a_standard_error():
    lower, upper = np.array([[0.1, 0.2]]), np.array([[0.5, 0.6]])
    found = standard_errors(np.array([[0.05, np.nan]]), lower, upper, 0.95)
    assert found[0].tolist() == pytest.approx([0.05, 0.4 / 3.919928], rel=1e-5)
