"""Usable members against a slow twin, and properties of every quantifier."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.quantify.samples import (
    draw_posteriors,
    make_communities,
    make_nodes,
    members_of,
    with_reference,
)
from xnq_dist.core.config import load_settings
from xnq_dist.core.errors import InputError
from xnq_dist.core.records import QUANTIFIERS
from xnq_dist.quantify.classic import histograms
from xnq_dist.quantify.classic.members import usable_members
from xnq_dist.quantify.interface import make_quantifier

NEED_ROWS = ["hdy", "dys", "dmy", "kdey_ml"]
ADJUSTED = ["acc", "pacc", "nacc", "npacc"]
PRIORS = {2: [0.6, 0.4], 3: [0.2, 0.5, 0.3]}
CASES = [
    (name, n)
    for name in QUANTIFIERS
    for n in PRIORS
    if n == 2 or name not in ("hdy", "dys")
]


def made(name):
    return make_quantifier(name, load_settings())


def drawn(classes, seed=0):
    posteriors, codes = draw_posteriors(500, np.array(PRIORS[classes]), 1.1, seed)
    return posteriors[200:], (posteriors[:200], codes[:200])


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**31))
def test_usable_members_are_those_of_their_definition(seed):
    rng = np.random.default_rng(seed)
    posteriors = rng.dirichlet(np.ones(2), 40).astype(np.float32)
    posteriors[rng.random(40) < 0.3] = 0
    labels = np.where(rng.random(40) < 0.3, 1, -1)
    sets = [rng.integers(0, 40, rng.integers(0, 6)) for _ in range(5)]
    nodes, batch = make_nodes(posteriors, labels), make_communities(*sets)
    found = usable_members(batch, nodes)
    kept = [[v for v in m if labels[v] < 0 and posteriors[v].any()] for m in sets]
    rows = sorted({v for m in kept for v in m})
    np.testing.assert_array_equal(found.nodes.posteriors, posteriors[rows])
    for s, expected in enumerate(kept):
        own = members_of(found.sets, s)
        np.testing.assert_array_equal(np.array(rows, np.int64)[own], expected)
        assert found.unlabelled[s] == sum(labels[v] < 0 for v in sets[s])


@pytest.mark.parametrize(("name", "classes"), CASES)
def test_members_drawn_twice_count_twice_and_other_communities_keep_every_bit(
    name, classes, monkeypatch
):
    monkeypatch.setattr(histograms, "BLOCK", 2)
    posteriors, known = drawn(classes)
    rng = np.random.default_rng(1)
    sets = [rng.integers(0, 300, n) for n in (1, 7, 90)]
    sets.append(np.repeat(sets[1], 4))
    sets.append(np.concatenate([np.repeat(5, 30), np.arange(20)]))
    nodes = with_reference(make_nodes(posteriors), *known)
    whole = made(name).estimate(make_communities(*sets), nodes)
    np.testing.assert_allclose(whole.prevalence.sum(axis=1), 1, atol=1e-12)
    assert (whole.prevalence >= 0).all()
    for s, chosen in enumerate(sets):
        batch = make_communities(chosen)
        alone = made(name).estimate(batch, nodes)
        np.testing.assert_array_equal(alone.prevalence[0], whole.prevalence[s])
        # As if every draw were a separate node.
        unrolled = with_reference(make_nodes(posteriors[chosen]), *known)
        own = make_communities(np.arange(len(chosen)))
        apart = made(name).estimate(own, unrolled)
        np.testing.assert_allclose(apart.prevalence[0], whole.prevalence[s], atol=1e-9)
    four, once = whole.prevalence[3], whole.prevalence[1]
    np.testing.assert_allclose(four, once, atol=1e-7)


@pytest.mark.parametrize("name", QUANTIFIERS)
def test_communities_of_labelled_or_no_members_have_no_estimate(name):
    posteriors, known = drawn(2)
    posteriors[10:14] = 0
    labels = np.where(np.arange(300) % 3 == 0, 1, -1)
    sets = [np.arange(60), [0, 3, 3], [], np.flatnonzero(labels[:60] < 0), [10, 11]]
    nodes = with_reference(make_nodes(posteriors, labels), *known)
    found = made(name).estimate(make_communities(*sets), nodes)
    assert np.isnan(found.prevalence[1:3]).all()
    assert found.converged[1:3].all()
    np.testing.assert_array_equal(found.prevalence[0], found.prevalence[3])
    np.testing.assert_allclose(found.prevalence[4].sum(), 1)
    nothing = make_communities()
    empty = made(name).estimate(nothing, nodes)
    assert empty.prevalence.shape == (0, 2)


@pytest.mark.parametrize("name", [*NEED_ROWS, *ADJUSTED])
def test_missing_reference_or_class_is_explained(name):
    posteriors, known = drawn(2)
    nodes, batch = make_nodes(posteriors), make_communities([0, 1])
    with pytest.raises(InputError, match="role calibration, or set quantifier = sld"):
        made(name).estimate(batch, nodes)
    if name in ADJUSTED:
        return  # a class without labelled nodes is assumed to be predicted correctly
    one = with_reference(nodes, known[0], np.zeros(200, np.int32))
    with pytest.raises(InputError, match=r"every class .* class 'c1' has none"):
        made(name).estimate(batch, one)
