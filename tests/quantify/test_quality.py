"""Which communities are suppressed, and standard errors."""

from __future__ import annotations

import numpy as np
import pytest

from xnq_dist.core.config import load_settings
from xnq_dist.quantify.quality import standard_errors, too_small


@pytest.mark.parametrize("labelled", ["count", "exclude"])
def test_communities_below_the_minimum_are_suppressed(labelled):
    chosen = (f"labelled={labelled}", "disclosure.min_size=5")
    arrays = {
        "n_nodes": np.array([4, 5, 9, 4]),
        "n_estimated": np.array([4, 4, 5, 0]),
        "prevalence": np.array([[0.5, 0.5]] * 3 + [[np.nan, np.nan]]),
    }
    found = too_small(arrays, load_settings(overrides=chosen))
    # Where nothing is estimated, the note says why.
    expected = [True, labelled == "exclude", False, False]
    assert found.tolist() == expected


def test_an_interval_implies_a_standard_error():
    lower, upper = np.array([[0.1, 0.2]]), np.array([[0.5, 0.6]])
    found = standard_errors(np.array([[0.05, np.nan]]), lower, upper, 0.95)
    assert found[0].tolist() == pytest.approx([0.05, 0.4 / 3.919928], rel=1e-5)
