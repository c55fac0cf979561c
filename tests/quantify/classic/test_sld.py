"""SLD against its definition, the exact optimum and QuaPy."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from tests.quantify.samples import (
    draw_posteriors,
    field_library,
    make_communities,
    make_nodes,
    slow_sld,
)
from xnq_dist.quantify.classic import sld
from xnq_dist.quantify.classic.sld import Sld, tile_bytes
from xnq_dist.quantify.interface import Communities, Estimates

PRIORS = {
    "even": [0.5, 0.5],
    "rare": [0.97, 0.03],
    "three": [0.2, 0.5, 0.3],
    "five": [0.05, 0.4, 0.25, 0.2, 0.1],
}


def estimate(posteriors, members, prior, quantifier=None, labels=None) -> Estimates:
    nodes = make_nodes(posteriors, labels, prior)
    batch = members if isinstance(members, Communities) else make_communities(*members)
    return (quantifier or Sld()).estimate(batch, nodes)


def shifted_sets(prior, seed=0, sizes=(1, 2, 7, 8, 9, 100, 1500)):
    """Posteriors, and sets whose classes are proportioned otherwise than the prior."""
    rng = np.random.default_rng(seed)
    posteriors, classes = draw_posteriors(4000, np.array(prior), 1.2, seed)
    sets = []
    for size in sizes:
        weights = rng.dirichlet(np.ones(len(prior)))[classes]
        chosen = rng.choice(4000, size, replace=False, p=weights / weights.sum())
        sets.append(np.sort(chosen))
    return posteriors, sets


@pytest.fixture(params=[1, 1000], ids=["gathered again", "kept"])
def tiles_of_16(request, monkeypatch):
    """Tiles of 16 members, of which one or all are kept between steps."""
    monkeypatch.setattr(sld, "TILE", 16)
    monkeypatch.setattr(sld, "KEPT", request.param * 16 * 8 * 5)


@pytest.mark.usefixtures("tiles_of_16")
@pytest.mark.parametrize("prior", PRIORS.values(), ids=PRIORS)
def test_communities_of_one_or_many_tiles_follow_the_definition(prior):
    posteriors, sets = shifted_sets(prior)
    posteriors[::37] = 0
    labels = np.where(np.arange(4000) % 5 == 2, 1, -1)
    found = estimate(posteriors, sets, prior, labels=labels)
    usable = (labels < 0) & posteriors.any(axis=1)
    for s, members in enumerate(sets):
        q, converged = slow_sld(posteriors[members[usable[members]]], np.array(prior))
        np.testing.assert_allclose(found.prevalence[s], q, rtol=0, atol=1e-12)
        assert found.converged[s] == converged


def test_kept_tiles_are_at_most_512_mib():
    assert tile_bytes(1, 2) == tile_bytes(4096, 2) == 4096 * 16
    assert tile_bytes(4097, 3) == 2 * 4096 * 24
    assert 511 << 20 < tile_bytes(10**9, 7) <= 512 << 20


@pytest.mark.oracle
def test_zero_prior_and_saturated_posteriors_agree_with_quapy():
    emq = field_library().EMQ
    rng = np.random.default_rng(2)
    saturated = np.eye(3, dtype=np.float32)[rng.integers(0, 3, 200)]
    saturated[:50] = rng.dirichlet(np.ones(3), 50)
    for prior in ([0.5, 0.5, 0.0], [0.2, 0.3, 0.5]):
        found = estimate(saturated, [np.arange(200)], prior)
        theirs, _ = emq.EM(np.array(prior), saturated.astype(float))
        np.testing.assert_allclose(found.prevalence[0], theirs, atol=1e-9)


@pytest.mark.oracle
def test_iteration_limit_agrees_with_quapy(monkeypatch):
    emq = field_library().EMQ
    posteriors, sets = shifted_sets([0.5, 0.5], sizes=(50,))
    monkeypatch.setattr(emq, "MAX_ITER", 14)
    found = estimate(posteriors, sets, [0.5, 0.5], Sld(1e-12, 14))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "the method has reached the maximum")
        theirs, _ = emq.EM(np.array([0.5, 0.5]), posteriors[sets[0]].astype(float), 0.0)
    np.testing.assert_allclose(found.prevalence[0], theirs, atol=1e-12)
    assert not found.converged[0]
