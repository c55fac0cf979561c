"""Estimates of the quantifiers that QuaPy has, next to its own."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from tests.quantify.samples import (
    draw_posteriors,
    field_library,
    make_communities,
    make_nodes,
    their_quantifier,
    with_reference,
)
from xnq_dist.core.config import load_settings
from xnq_dist.core.records import QUANTIFIERS
from xnq_dist.quantify.interface import make_quantifier

THEIRS = {
    "cc": ("PCC", {}, 1e-7),
    "pcc": ("PCC", {}, 1e-6),
    "acc": ("PACC", {}, 1e-3),
    "pacc": ("PACC", {}, 1e-3),
    "sld": ("EMQ", {}, 1e-9),
    "hdy": ("HDy", {}, 1e-9),
    "dys": ("DyS", {"n_bins": 8, "divergence": "topsoe"}, 1e-9),
    "dmy": ("DMy", {"nbins": 8, "divergence": "topsoe"}, 5e-3),
    "kdey_ml": ("KDEyML", {}, 1e-3),
}
"""QuaPy's class, its options and how far its own solver leaves its estimates off."""


def over_confident(prior, seed=0, n=1600):
    """Posteriors sharpened and tilted: what BCTS can undo."""
    posteriors, classes = draw_posteriors(n, np.array(prior), 1.0, seed)
    logits = 2.5 * np.log(np.maximum(posteriors.astype(float), 1e-12))
    logits[:, 0] += 0.7
    shares = np.exp(logits - logits.max(axis=1, keepdims=True))
    return (shares / shares.sum(axis=1, keepdims=True)).astype(np.float32), classes


@pytest.mark.oracle
@pytest.mark.parametrize(
    ("name", "prior"),
    [
        (name, prior)
        for name in THEIRS
        for prior in ([0.7, 0.3], [0.1, 0.4, 0.3, 0.2])
        if QUANTIFIERS[name].defined_for(len(prior))
    ],
)
def test_estimates_are_those_of_quapy(name, prior, monkeypatch):
    kind, options, tolerance = THEIRS[name]
    library = field_library()
    monkeypatch.setattr(
        "quapy.functional.prevalence_linspace", lambda **_: np.linspace(0, 1, 101)
    )
    posteriors, classes = over_confident(prior)
    nodes = with_reference(make_nodes(posteriors), posteriors[:600], classes[:600])
    said = posteriors.astype(np.float64)
    if name in ("cc", "acc"):
        said = np.eye(len(prior))[posteriors.argmax(axis=1)]
    with warnings.catch_warnings():
        # A warning of the calibration library, which converts an array to a float.
        warnings.simplefilter("ignore", DeprecationWarning)
        theirs = their_quantifier(
            getattr(library, kind), said[:600], classes[:600], **options
        )
    if name == "sld":
        theirs.train_prevalence = nodes.prior
    rng = np.random.default_rng(0)
    sets = [rng.integers(600, 1600, n) for n in (4, 50, 300, 500)]
    batch = make_communities(*sets)
    found = make_quantifier(name, load_settings()).estimate(batch, nodes)
    assert found.converged.all()
    for ours, members in zip(found.prevalence, sets, strict=True):
        other = theirs.aggregate(said[members])
        np.testing.assert_allclose(ours, other, atol=tolerance)
