"""SLD-BCTS against QuaPy's recalibration and plain SLD."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest

from tests.quantify.samples import (
    draw_posteriors,
    field_library,
    labelled_reference,
    make_communities,
    make_nodes,
    their_quantifier,
)
from xnq_dist.quantify.classic.sld_bcts import SldBcts


def over_confident(prior, seed, n=1600):
    """Posteriors sharpened and tilted: what BCTS can undo."""
    posteriors, classes = draw_posteriors(n, np.array(prior), 1.0, seed)
    logits = 2.5 * np.log(np.maximum(posteriors.astype(float), 1e-12))
    logits[:, 0] += 0.7
    shares = np.exp(logits - logits.max(axis=1, keepdims=True))
    return (shares / shares.sum(axis=1, keepdims=True)).astype(np.float32), classes


@pytest.mark.oracle
@pytest.mark.parametrize("prior", [[0.7, 0.3], [0.2, 0.5, 0.3]], ids=len)
def test_estimates_are_those_of_quapy(prior):
    pytest.importorskip("abstention")
    made = field_library().EMQ
    posteriors, classes = over_confident(prior, 0)
    reference = labelled_reference(posteriors[:600], classes[:600])
    options = {"calib": "bcts", "exact_train_prev": False}
    with warnings.catch_warnings():
        # A warning of the calibration library, which converts an array to a float.
        warnings.simplefilter("ignore", DeprecationWarning)
        theirs = their_quantifier(
            made, reference.posteriors, reference.labels, **options
        )
    rng = np.random.default_rng(0)
    sets = [rng.integers(600, 1600, n) for n in (50, 300, 500)]
    nodes, batch = make_nodes(posteriors), make_communities(*sets)
    # The readout's prior, which the calibrated posteriors no longer have, is not used.
    moved = replace(reference, prior=np.arange(1, len(prior) + 1) / 10)
    found = SldBcts().estimate(batch, nodes, moved)
    for ours, members in zip(found.prevalence, sets, strict=True):
        other = theirs.aggregate(posteriors[members].astype(np.float64))
        np.testing.assert_allclose(ours, other, atol=1e-3)


def test_saturated_posteriors_keep_estimates_finite():
    rng = np.random.default_rng(0)
    posteriors = np.eye(2, dtype=np.float32)[rng.integers(0, 2, 300)]
    classes = posteriors.argmax(axis=1)
    classes[:20] = 1 - classes[:20]
    reference = labelled_reference(posteriors[:100], classes[:100])
    batch = make_communities(np.arange(100, 300))
    found = SldBcts().estimate(batch, make_nodes(posteriors), reference)
    assert np.isfinite(found.prevalence).all()
