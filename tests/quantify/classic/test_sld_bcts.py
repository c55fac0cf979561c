"""SLD-BCTS against QuaPy's recalibration and plain SLD."""

from __future__ import annotations

import warnings

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
from xnq_dist.quantify.classic.sld import Sld
from xnq_dist.quantify.classic.sld_bcts import SldBcts
from xnq_dist.readout.calibration import fit_calibration


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
    found = SldBcts().estimate(batch, nodes, reference)
    for ours, members in zip(found.prevalence, sets, strict=True):
        other = theirs.aggregate(posteriors[members].astype(np.float64))
        np.testing.assert_allclose(ours, other, atol=1e-3)


def test_posteriors_are_recalibrated_and_the_readouts_prior_has_no_effect():
    posteriors, classes = over_confident([0.7, 0.3], 1)
    reference = labelled_reference(posteriors[:600], classes[:600])
    logits = np.log(np.maximum(posteriors.astype(np.float64), 1e-12))
    fitted = fit_calibration("bcts", logits[:600], classes[:600])
    rng = np.random.default_rng(0)
    batch = make_communities(*[rng.integers(600, 1600, 400) for _ in range(3)])
    found = SldBcts().estimate(batch, make_nodes(posteriors), reference)
    calibrated = make_nodes(fitted.apply(logits))
    expected = Sld().estimate(batch, calibrated, reference)
    np.testing.assert_allclose(found.prevalence, expected.prevalence, atol=1e-12)
    # The readout's prior, which the posteriors no longer have, is not used.
    other = labelled_reference(posteriors[:600], classes[:600])
    object.__setattr__(other, "prior", np.array([0.01, 0.99]))
    again = SldBcts().estimate(batch, make_nodes(posteriors), other)
    np.testing.assert_array_equal(again.prevalence, found.prevalence)


def test_saturated_posteriors_keep_estimates_finite():
    rng = np.random.default_rng(0)
    posteriors = np.eye(2, dtype=np.float32)[rng.integers(0, 2, 300)]
    classes = posteriors.argmax(axis=1)
    classes[:20] = 1 - classes[:20]
    reference = labelled_reference(posteriors[:100], classes[:100])
    batch = make_communities(np.arange(100, 300))
    found = SldBcts().estimate(batch, make_nodes(posteriors), reference)
    assert np.isfinite(found.prevalence).all()
