"""SLD of one large community equals its definition, for any threads and storage."""

from __future__ import annotations

import numpy as np
import pytest

from tests.quantify.samples import (
    draw_posteriors,
    make_communities,
    make_nodes,
    reference_of,
    slow_sld,
)
from xnq_dist.quantify.classic import giants, sld, tiles
from xnq_dist.quantify.classic.giants import giant_sld, store_bytes
from xnq_dist.quantify.classic.sld import Sld

PRIORS = {"two": [0.7, 0.3], "three": [0.2, 0.5, 0.3]}
RULE = 1e-4, 1000


def sample(prior, count=2000):
    """Posteriors with rows of zeros, and members of which some are labelled."""
    posteriors, classes = draw_posteriors(3000, np.array(prior), 0.9, 4)
    posteriors[::37] = 0
    weights = np.array([2.0, 1.0, 3.0])[classes]
    rng = np.random.default_rng(5)
    members = rng.choice(3000, count, replace=False, p=weights / weights.sum())
    unlabelled = rng.random(3000) < 0.8
    return posteriors.astype(np.float32), np.sort(members), unlabelled


@pytest.fixture
def small(monkeypatch):
    """Chunks of 48 members in tiles of 16, so that a few hundred make a giant."""
    monkeypatch.setattr(giants, "TILE", 16)
    monkeypatch.setattr(giants, "CHUNK", 48)


@pytest.mark.parametrize("prior", PRIORS.values(), ids=PRIORS)
def test_giants_follow_the_definition(small, prior):
    posteriors, members, unlabelled = sample(prior)
    found = giant_sld(members, unlabelled, posteriors, np.array(prior), *RULE)
    usable = unlabelled[members] & (posteriors[members].sum(axis=1) > 0)
    q, steps, converged = slow_sld(posteriors[members[usable]], np.array(prior))
    np.testing.assert_allclose(found[0], q, rtol=0, atol=1e-12)
    assert found[1:] == (steps, converged)


@pytest.mark.parametrize("prior", PRIORS.values(), ids=PRIORS)
def test_threads_and_the_store_keep_every_bit(small, monkeypatch, prior):
    posteriors, members, unlabelled = sample(prior)
    table = unlabelled, posteriors, np.array(prior)
    expected = giant_sld(members, *table, *RULE, threads=1)
    chunk = store_bytes(1, len(prior))
    for kept in (0, 7, 1000):
        monkeypatch.setattr(giants, "STORE", kept * chunk)
        assert store_bytes(len(members), len(prior)) == min(kept, 42) * chunk
        for threads in (1, 2, 5):
            found = giant_sld(members, *table, *RULE, threads=threads)
            np.testing.assert_array_equal(found[0], expected[0])
            assert found[1:] == expected[1:]


@pytest.mark.parametrize("prior", PRIORS.values(), ids=PRIORS)
def test_compiled_chunks_agree_with_their_python(small, monkeypatch, prior):
    posteriors, members, unlabelled = sample(prior, 150)
    table = unlabelled, posteriors, np.array(prior)
    monkeypatch.setattr(giants, "STORE", 2 * store_bytes(1, len(prior)))
    compiled = giant_sld(members, *table, *RULE, threads=1)
    two = "_add_expected_of_two"
    monkeypatch.setattr(tiles, two, getattr(tiles, two).py_func)
    for name in ("gather", "add_expected", "expected_of_chunks"):
        monkeypatch.setattr(giants, name, getattr(giants, name).py_func)
    slow = giant_sld(members, *table, *RULE, threads=1)
    np.testing.assert_allclose(slow[0], compiled[0], atol=1e-13)
    assert slow[1:] == compiled[1:]


def test_giants_leave_other_communities_unchanged(monkeypatch):
    prior = PRIORS["two"]
    posteriors, members, unlabelled = sample(prior)
    labels = np.where(unlabelled, -1, 1)
    sets = [members[:50], members, members[:7], [], members[:1500], members[9:20]]
    batch, nodes = make_communities(*sets), make_nodes(posteriors, labels)
    plain = Sld().estimate(batch, nodes, reference_of(prior))
    monkeypatch.setattr(sld, "LARGE", 1000)
    found = Sld().estimate(batch, nodes, reference_of(prior))
    np.testing.assert_allclose(found.prevalence, plain.prevalence, atol=1e-12)
    np.testing.assert_array_equal(found.prevalence[5], plain.prevalence[5])
    np.testing.assert_array_equal(found.iterations, plain.iterations)
    np.testing.assert_array_equal(found.converged, plain.converged)


def test_giants_without_usable_members_get_nothing_or_the_prior(small):
    posteriors, members, unlabelled = sample(PRIORS["two"])
    prior = np.array(PRIORS["two"])
    nobody = giant_sld(members, np.zeros(3000, bool), posteriors, prior, *RULE)
    assert np.isnan(nobody[0]).all()
    assert nobody[1:] == (0, True)
    silent = giant_sld(members, unlabelled, np.zeros_like(posteriors), prior, *RULE)
    np.testing.assert_array_equal(silent[0], prior)
