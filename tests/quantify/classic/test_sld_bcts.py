"""SLD-BCTS at posteriors of 0 and 1."""

from __future__ import annotations

import numpy as np

from tests.quantify.samples import (
    labelled_reference,
    make_communities,
    make_nodes,
)
from xnq_dist.quantify.classic.sld_bcts import SldBcts


def test_saturated_posteriors_keep_estimates_finite():
    rng = np.random.default_rng(0)
    posteriors = np.eye(2, dtype=np.float32)[rng.integers(0, 2, 300)]
    classes = posteriors.argmax(axis=1)
    classes[:20] = 1 - classes[:20]
    reference = labelled_reference(posteriors[:100], classes[:100])
    batch = make_communities(np.arange(100, 300))
    found = SldBcts().estimate(batch, make_nodes(posteriors), reference)
    assert np.isfinite(found.prevalence).all()
