"""Kernels of `auto` against integrals taken by SciPy, and simulated communities."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import expit, log_expit
from scipy.stats import binom, norm

from tests.quantify.samples import make_communities, make_nodes
from xnq_dist.quantify.auto import Auto, Learnt, _hypotheses
from xnq_dist.quantify.hypotheses import (
    EM_STEPS,
    HYPOTHESES,
    PSEUDO,
    STRENGTH,
    learn_weights,
    prior_weights,
)
from xnq_dist.quantify.intercept import answer_kernel, evidence_kernel
from xnq_dist.quantify.interface import Reference
from xnq_dist.quantify.sld import Sld

ALL = tuple(range(len(HYPOTHESES)))
OPEN = np.array([[0.2, 0.01], [0.01, 0.02]])


def draw_set(n, labelled, seed):
    """Logits and codes of one community."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(-0.5, 1.5, n)
    codes = np.full(n, -1, np.int8)
    codes[:labelled] = rng.random(labelled) < expit(logits[:labelled] + 0.7)
    return logits, codes


def slow_shift(logits, prior, pseudo):
    """Fixed point of SLD with pseudo-nodes at the prior, as log-odds moved."""
    share = prior
    for _ in range(5000):
        move = np.log(share / (1 - share)) - np.log(prior / (1 - prior))
        share = (expit(logits + move).sum() + pseudo * prior) / (len(logits) + pseudo)
    return np.log(share / (1 - share)) - np.log(prior / (1 - prior))


def slow_density(one, logits, codes, prior):
    """Density of the intercept times the likelihood of the labels, as a function."""
    free = logits[codes == -1]
    shift = one.strength and one.strength * slow_shift(free, prior, one.pseudo)
    mean = logits.mean()
    left = OPEN[0, 0] + 2 * OPEN[0, 1] * mean + OPEN[1, 1] * mean**2
    deviation = np.sqrt(one.spread**2 + left * one.widening**2)
    own, other = logits[codes == 1], logits[codes == 0]

    def density(u):
        likelihood = log_expit(one.slope * own + u).sum()
        likelihood += log_expit(-(one.slope * other + u)).sum()
        return norm.pdf(u, shift * one.widening, deviation) * np.exp(likelihood)

    return density, shift * one.widening, deviation


@pytest.mark.parametrize(("n", "labelled"), [(30, 0), (40, 6), (400, 300)])
def test_evidence_differs_from_the_integral(n, labelled):
    logits, codes = draw_set(n, labelled, 1)
    evidence = np.empty((1, len(HYPOTHESES)))
    offsets = np.array([0, n])
    evidence_kernel(
        offsets, logits, codes, np.array([0]), 0.3, OPEN, *_hypotheses(ALL), evidence
    )
    for h in (0, 13, 22, 47):
        density, middle, deviation = slow_density(HYPOTHESES[h], logits, codes, 0.3)
        grid = np.linspace(middle - 9 * deviation, middle + 9 * deviation, 4001)
        peak = grid[np.argmax([density(u) for u in grid])]
        top = density(peak)
        whole = quad(
            lambda u, f=density, t=top: f(u) / t,
            middle - 9 * deviation,
            middle + 9 * deviation,
            points=[peak],
            limit=500,
        )[0]
        expected = np.log(whole) + np.log(top)
        # Logits lie in bins, which a steep likelihood of many labels shows.
        steep = HYPOTHESES[h].slope ** 2 * labelled
        assert evidence[0, h] == pytest.approx(expected, abs=0.02 + 5e-4 * steep)


@pytest.mark.parametrize(("n", "labelled"), [(30, 0), (60, 10), (500, 400)])
def test_median_or_interval_differs_from_a_fine_sum(n, labelled):
    logits, codes = draw_set(n, labelled, 2)
    h = HYPOTHESES.index(
        next(x for x in HYPOTHESES if (x.sharpness, x.strength, x.spread) == (1, 0, 1))
    )
    answers = np.empty((1, 4))
    answer_kernel(
        np.array([0, n]),
        logits,
        codes,
        0.3,
        OPEN,
        *_hypotheses((h,)),
        np.ones(1),
        0.025,
        answers,
    )
    density, middle, deviation = slow_density(HYPOTHESES[h], logits, codes, 0.3)
    u = np.linspace(middle - 8 * deviation, middle + 8 * deviation, 20001)
    weight = np.array([density(x) for x in u])
    weight /= weight.sum()
    free = HYPOTHESES[h].slope * logits[codes == -1]
    share = np.array([expit(free + x).mean() for x in u])
    below = np.cumsum(weight)
    assert answers[0, 0] == pytest.approx(share[np.searchsorted(below, 0.5)], abs=2e-3)
    rng = np.random.default_rng(0)
    drawn = rng.choice(u, 20000, p=weight)
    counts = np.array([(rng.random(len(free)) < expit(free + x)).sum() for x in drawn])
    low, high = np.quantile(counts, [0.025, 0.975]) / len(free)
    slack = 1.5 / len(free) + 0.005
    assert answers[0, 1] == pytest.approx(low, abs=slack)
    assert answers[0, 2] == pytest.approx(high, abs=slack)


def test_learnt_weights_are_not_most_likely():
    rng = np.random.default_rng(3)
    evidence = rng.normal(0, 3, (400, len(HYPOTHESES)))
    evidence[:, 5] += np.where(rng.random(400) < 0.7, 6, 0)
    shares = rng.uniform(0.2, 1, 400)
    weights = learn_weights(evidence, shares)
    assert weights.sum() == pytest.approx(1)

    def likelihood(w):
        return float(shares @ np.log(np.exp(evidence) @ w))

    for _ in range(50):
        other = 0.9 * weights + 0.1 * rng.dirichlet(np.ones(len(weights)))
        assert likelihood(other) < likelihood(weights) + 0.05
    assert weights.argmax() == 5
    nothing = learn_weights(np.empty((0, len(HYPOTHESES))), np.empty(0))
    assert nothing.sum() == pytest.approx(1)
    assert {x.pseudo for x in HYPOTHESES if x.strength} == set(PSEUDO)


def test_learnt_weights_are_not_those_of_em():
    rng = np.random.default_rng(4)
    evidence = rng.normal(-40, 3, (60, len(HYPOTHESES)))
    shares = rng.uniform(0.2, 1, 60)
    prior = prior_weights()
    weights = prior
    for _ in range(EM_STEPS):
        belongs = np.exp(evidence - evidence.max(axis=1, keepdims=True)) * weights
        belongs /= belongs.sum(axis=1, keepdims=True)
        weights = shares @ belongs + STRENGTH * prior
        weights /= weights.sum()
    np.testing.assert_allclose(learn_weights(evidence, shares), weights, rtol=1e-9)


def draw_world(spread, seed, sets=300, size=80, labelled=0.2, classes=2):
    """Communities whose logits are off by a random intercept, and their classes."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(-0.4, 1.2, (sets * size, classes))
    own = np.repeat(rng.normal(0, spread, (sets, classes)), size, axis=0)
    slope = np.sqrt(1 + 0.346 * spread**2 * (2 if classes == 2 else 1))
    if classes == 2:
        logits[:, 0] = own[:, 0] = 0.0
        own[:, 1] *= np.sqrt(2)
    posterior = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    scores = slope * logits + own + rng.gumbel(size=logits.shape)
    truth = scores.argmax(axis=1)
    labels = np.where(rng.random(len(truth)) < labelled, truth, -1)
    nodes = make_nodes(posterior, labels)
    batch = make_communities(*np.arange(sets * size).reshape(sets, size))
    known = labels >= 0
    reference = Reference(
        np.bincount(labels[known], minlength=classes) / known.sum(),
        posteriors=nodes.posteriors[known],
        labels=labels[known].astype(np.int32),
    )
    free = ~known.reshape(sets, size)
    shares = np.stack(
        [
            ((truth.reshape(sets, size) == k) & free).sum(axis=1) / free.sum(axis=1)
            for k in range(classes)
        ],
        axis=1,
    )
    return nodes, batch, reference, shares


def learnt_auto(nodes, batch, reference, level=0.95):
    """`auto` after it has learnt, for sets that are held together by edges."""
    from xnq_dist.quantify.cohesion import COUNTS, EdgeCounts, Mixing

    auto = Auto(Sld(), level)
    once = np.ones(len(nodes.labels), np.int32)
    found = auto.summarise(batch, nodes, reference, once, 1, 0)
    weights = np.stack(
        [
            learn_weights(found.evidence[:, k], found.shares)
            for k in range(_width(nodes))
        ]
    )
    classes = len(nodes.classes)
    inside = np.zeros((len(batch), COUNTS), np.int64)
    inside[:, :5] = [1000, 1000, 10**6, 10**6, 10**6]
    edges = EdgeCounts(inside, inside[:, 1])
    even = np.full(classes, 1e9 / classes)
    mixing = Mixing(np.outer(even, even) / 1e9, even, even, 1e9, even)
    return dataclasses.replace(auto, learnt=Learnt(weights, mixing, edges))


def _width(nodes):
    return 1 if len(nodes.classes) == 2 else len(nodes.classes)


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("spread", [0.3, 1.5])
def test_communities_off_by_an_intercept_are_worse_than_by_pcc(spread, classes):
    nodes, batch, reference, shares = draw_world(spread, 4, classes=classes)
    auto = learnt_auto(nodes, batch, reference)
    found = auto.estimate(batch, nodes, reference, "exclude")
    from xnq_dist.quantify.adjusted import Counts

    pcc = Counts("pcc").estimate(batch, nodes, reference, "exclude")
    sld = Sld().estimate(batch, nodes, reference, "exclude")

    def error(estimates):
        return float(np.abs(estimates.prevalence - shares).mean())

    assert error(found) < error(pcc) * (1.02 if spread < 1 else 0.8)
    assert error(found) < 0.8 * error(sld)
    np.testing.assert_allclose(found.prevalence.sum(axis=1), 1)
    held = (shares >= found.lower - 1e-9) & (shares <= found.upper + 1e-9)
    # 300 communities: a binomial error of .013.
    assert 0.92 <= held.mean() <= 0.995
    assert set(found.notes) == {None}
    assert (found.lower <= found.prevalence).all()
    assert (found.prevalence <= found.upper).all()


def test_narrower_level_covers_less():
    nodes, batch, reference, shares = draw_world(1.0, 5)
    auto = learnt_auto(nodes, batch, reference, 0.5)
    found = auto.estimate(batch, nodes, reference, "exclude")
    held = (shares >= found.lower - 1e-9) & (shares <= found.upper + 1e-9)
    assert 0.42 <= held[:, 1].mean() <= 0.72


def test_labels_behind_a_posterior_are_taken_for_evidence():
    nodes, batch, reference, _ = draw_world(1.5, 6, sets=40)
    auto = learnt_auto(nodes, batch, reference)
    without = dataclasses.replace(nodes, out_of_fold=np.zeros(len(nodes.labels), bool))
    blind = np.where(nodes.labels >= 0, 1 - nodes.labels, -1).astype(np.int32)
    turned = dataclasses.replace(without, labels=blind)
    one = auto.estimate(batch, without, reference, "exclude")
    other = auto.estimate(batch, turned, reference, "exclude")
    np.testing.assert_array_equal(one.prevalence, other.prevalence)
    seen = auto.estimate(batch, nodes, reference, "exclude")
    assert np.abs(seen.prevalence - one.prevalence).max() > 0.05
    once = np.ones(len(nodes.labels), np.int32)
    assert not len(auto.summarise(batch, without, reference, once, 1, 0).evidence)


def test_community_of_one_is_sure():
    nodes, _, reference, _ = draw_world(1.0, 7)
    one = make_communities(*([v] for v in range(60)))
    auto = learnt_auto(nodes, one, reference)
    found = auto.estimate(one, nodes, reference, "exclude")
    free = nodes.labels[:60] < 0
    assert np.isnan(found.prevalence[~free]).all()
    width = (found.upper - found.lower)[free, 1]
    # The one node is of the class or not: ends are counts, or the estimate.
    assert ((width < 0.1) | (width == 1)).all()
    unsure = nodes.posteriors[:60][free].max(axis=1) < 0.9
    assert (width[unsure] == 1).all()


def test_interval_of_sld_does_not_hold_its_class_noise():
    """Samples drawn by class: coverage of the interval that SLD's answer gets."""
    rng = np.random.default_rng(8)
    prior, sets, size = 0.3, 300, 100
    means = np.array([-1.0, 1.0])

    def scores(truth):
        x = rng.normal(means[truth], 1.3)
        logits = 2 * x / 1.3**2 + np.log(prior / (1 - prior))
        return np.stack([expit(-logits), expit(logits)], axis=1)

    shift = rng.uniform(0.05, 0.95, sets)
    truth = (rng.random((sets, size)) < shift[:, None]).astype(int)
    known = (rng.random(2000) < prior).astype(np.int32)
    nodes = make_nodes(scores(truth.ravel()))
    reference = Reference(
        np.array([1 - prior, prior]),
        posteriors=scores(known).astype(np.float32),
        labels=known,
    )
    batch = make_communities(*np.arange(sets * size).reshape(sets, size))
    found = Auto(Sld()).estimate(batch, nodes, reference, "exclude")
    sld = Sld().estimate(batch, nodes, reference, "exclude")
    np.testing.assert_array_equal(found.prevalence, sld.prevalence)
    assert all("hardly any edge" in note for note in found.notes)
    share = truth.mean(axis=1)
    held = (share >= found.lower[:, 1] - 1e-9) & (share <= found.upper[:, 1] + 1e-9)
    assert 0.93 <= held.mean() <= 0.995
    width = (found.upper - found.lower)[:, 1].mean()
    assert width < 6 * np.sqrt(binom.var(size, 0.5)) / size


@pytest.mark.parametrize("classes", [2, 3])
def test_evidence_of_some_is_not_that_of_them_among_all(classes):
    nodes, batch, reference, _ = draw_world(0.5, 4, classes=classes)
    auto, counted = Auto(Sld()), np.arange(len(nodes.labels)) % 3
    every, first = 3, 7
    whole = auto.summarise(batch, nodes, reference, counted, 1, 0)
    some = auto.summarise(batch, nodes, reference, counted, every, first)
    asked = (first + np.arange(len(batch))) % every == 0
    assert len(whole.evidence) == len(batch)
    np.testing.assert_array_equal(some.evidence, whole.evidence[asked])
    np.testing.assert_array_equal(some.shares, whole.shares[asked])
