"""Estimates and intervals where labels may have been chosen by class."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from tests.conftest import small_settings
from tests.quantify.default.test_auto import N, drawn
from tests.quantify.samples import make_communities, make_nodes, with_own_reference
from xnq_dist.core.errors import InputError, SettingsError
from xnq_dist.core.sections import LabelSettings
from xnq_dist.quantify.default.auto import Auto
from xnq_dist.quantify.default.estimator_fit import Learnt
from xnq_dist.quantify.default.scenarios import (
    Tilt,
    check_prior,
    tilt_of,
)
from xnq_dist.quantify.default.surroundings import study
from xnq_dist.selection.verdict import Selection

EVERY = make_communities(np.arange(N))


def tilted_by_hand(nodes, factors):
    p = nodes.posteriors.astype(np.float64) * factors
    return p / p.sum(axis=1, keepdims=True)


def some_tilt(n_classes: int) -> Tilt:
    bias = np.linspace(-0.7, 0.7, n_classes)
    width = 1 if n_classes == 2 else n_classes
    return Tilt(np.exp(-bias), 0.3, False, np.full(width, 0.2), 1.3)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_estimates_are_the_mixture_of_two_scenarios_or_one_alone(n_classes):
    nodes, groups, _ = drawn(n_classes)
    tilt = some_tilt(n_classes)
    auto = Auto(learnt=Learnt.of(nodes, groups, tilt=tilt))
    sets = [np.arange(40), np.arange(30, 200), np.arange(600)]
    inputs = make_communities(*sets), nodes
    found = auto.estimate(*inputs)
    plain = tilted_by_hand(nodes, np.ones(n_classes))
    both = 0.7 * plain + 0.3 * tilted_by_hand(nodes, tilt.factors)
    for s, members in enumerate(sets):
        free = members[nodes.labels[members] < 0]
        np.testing.assert_allclose(found.prevalence[s], both[free].mean(axis=0))
    both = [auto.in_scenario(each, *inputs) for each in (None, tilt)]
    for part in both:
        assert (found.lower <= part.lower).all()
        assert (part.upper <= found.upper).all()
    ends = [getattr(part, end) for part in both for end in ("lower", "upper")]
    np.testing.assert_array_equal(found.lower, np.min(ends, axis=0))
    np.testing.assert_array_equal(found.upper, np.max(ends, axis=0))
    # The shift of all nodes is in the tilted scenario only, and so is the inflation.
    wide, narrow = both[1].sd[2], both[0].sd[2]
    assert (wide > 1.3 * narrow).all()
    alone = dataclasses.replace(tilt, share=1.0, alone=True)
    auto = Auto(learnt=dataclasses.replace(auto.learnt, tilt=alone))
    one = auto.estimate(*inputs)
    for name in ("prevalence", "lower", "upper"):
        np.testing.assert_array_equal(getattr(one, name), getattr(both[1], name))


def found_selection(**changes) -> Selection:
    base = Selection(
        by_place=False,
        by_class=False,
        pvalue=0.4,
        bias=np.array([-0.5, 0.5]),
        covariance=np.array([[0.04, -0.04], [-0.04, 0.04]]),
        probability=0.1,
        factors=np.array([2.0, 2.0]),
    )
    return dataclasses.replace(base, **changes)


@pytest.mark.parametrize(
    ("declared", "changes", "share", "alone"),
    [
        ("unknown", {}, 0.1, False),
        ("unknown", {"by_class": True}, 1.0, True),
        ("unknown", {"by_place": True}, 0.0, False),
        ("unknown", {"by_place": True, "by_class": True}, 0.5, False),
        ("by_class", {"by_place": True, "by_class": True}, 1.0, True),
        ("by_class", {}, 1.0, True),
        ("random", {"by_class": True}, None, None),
        ("by_place", {"by_class": True}, None, None),
        ("weighted", {}, None, None),
    ],
)
def test_labels_drawn_decides_between_the_scenarios(declared, changes, share, alone):
    nodes, groups, _ = drawn(2)
    labels = LabelSettings(drawn=declared)
    tilt = tilt_of(labels, found_selection(**changes), nodes)
    if share is None:
        assert tilt is None
        return
    assert (tilt.share, tilt.alone) == (share, alone)
    np.testing.assert_allclose(tilt.factors, np.exp([0.5, -0.5]))
    # b of class 1 less that of class 0 has the variance .04 + .04 + 2 * .04.
    extra = 0.16 if not changes.get("by_place") else tilt.shift[0]
    assert tilt.shift[0] == pytest.approx(extra)
    if changes.get("by_place"):
        free = nodes.posteriors[nodes.unlabelled]
        f = tilted_by_hand(dataclasses.replace(nodes, posteriors=free), tilt.factors)
        q, w = f[:, 1].mean(), (f[:, 1] * f[:, 0]).mean()
        more = (tilt.shift[0] - 0.16) * w**2
        assert more == pytest.approx((0.5 * q * (1 - q)) ** 2, rel=1e-6)
    learnt = Learnt.of(nodes, groups, tilt=tilt)
    again = Learnt.from_arrays(groups, learnt.arrays())
    np.testing.assert_array_equal(again.variances, learnt.variances)
    np.testing.assert_array_equal(again.tilt.factors, tilt.factors)
    assert (again.tilt.share, again.tilt.alone) == (tilt.share, tilt.alone)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_the_complete_graph_has_the_shares_that_are_known(n_classes):
    nodes, groups, _ = drawn(n_classes)
    shares = np.arange(n_classes, 0, -1) / np.arange(1, n_classes + 1).sum()
    prior = {name: float(q) for name, q in zip(nodes.classes, shares, strict=True)}
    labels = LabelSettings(prior=prior)
    tilt = tilt_of(labels, None, nodes)
    auto = Auto(learnt=Learnt.of(nodes, groups, tilt=tilt))
    free = auto.estimate(EVERY, nodes).prevalence[0]
    known = np.bincount(nodes.labels[nodes.labels >= 0], minlength=n_classes)
    whole = (known + np.count_nonzero(nodes.unlabelled) * free) / len(nodes.labels)
    np.testing.assert_allclose(whole, shares, atol=1e-9)
    # The level is known, so no interval includes a common shift.
    unsure = dataclasses.replace(tilt, known=False)
    other = Auto(learnt=dataclasses.replace(auto.learnt, tilt=unsure))
    sd = [one.estimate(EVERY, nodes).sd for one in (auto, other)]
    assert (sd[0] < sd[1]).all()


def test_shares_below_those_of_the_labels_are_refused():
    nodes, *_ = drawn(2)
    prior = dict(zip(nodes.classes, (0.999, 0.001), strict=True))
    wrong = r"gives class 'c1' 1 of 600 nodes, but \d+ have its label"
    with pytest.raises(InputError, match=wrong):
        tilt_of(LabelSettings(prior=prior), None, nodes)


def test_classes_of_the_prior_are_those_of_the_labels():
    check_prior(None, ("a", "b"))
    check_prior({"b": 0.5, "a": 0.5}, ("a", "b"))
    with pytest.raises(
        SettingsError,
        match="shares of the classes a, c, and the labels have a, b: name",
    ):
        check_prior({"a": 0.5, "c": 0.5}, ("a", "b"))


def test_a_tilt_found_in_the_nodes_corrects_the_level():
    """Labels of class 1 are five times as likely; posteriors follow the labels."""
    rng = np.random.default_rng(3)
    n = 4000
    p = rng.beta(0.6, 2.0, n)
    classes = (rng.random(n) < p).astype(np.int32)
    known = rng.random(n) < np.where(classes == 1, 0.5, 0.1)
    odds = p / (1 - p) * 5
    seen = odds / (1 + odds)
    labels = np.where(known, classes, -1)
    nodes = make_nodes(np.stack([1 - seen, seen], axis=1), labels)
    nodes = with_own_reference(nodes)
    groups = (rng.integers(0, 20, n).astype(np.int32),)

    def nobody(rows):
        return [np.zeros((len(rows), 6))]

    settings = small_settings("method=xnq+", "readout.folds=5")
    selection = study(nodes, groups, nobody, settings)
    assert selection.verdict == "class"
    tilt = tilt_of(LabelSettings(), selection, nodes)
    auto = Auto(learnt=Learnt.of(nodes, groups[0], tilt=tilt))
    found = auto.estimate(make_communities(np.arange(n)), nodes)
    truth = classes[~known].mean()
    assert found.lower[0, 1] <= truth <= found.upper[0, 1]
    corrected = abs(found.prevalence[0, 1] - truth)
    assert corrected < abs(seen[~known].mean() - truth) / 4
