"""Which communities are suppressed, and what is left out of their rows."""

from __future__ import annotations

import numpy as np
import pytest

from xnq_dist.core.config import load_settings
from xnq_dist.quantify.quality import too_small


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
