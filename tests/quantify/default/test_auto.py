"""`auto`: sums over nodes, and the variances behind its intervals."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.special import expit

from tests.conftest import small_settings
from tests.quantify.samples import (
    draw_posteriors,
    make_communities,
    make_nodes,
    with_own_reference,
)
from xnq_dist.quantify.classic.sld import Sld
from xnq_dist.quantify.default.auto import Auto, interval_of_counts
from xnq_dist.quantify.default.estimator_fit import Held, Learnt, shift_variance
from xnq_dist.quantify.interface import combine, make_quantifier

N = 600


def drawn(n_classes: int, seed: int = 0):
    """Nodes, groups and the classes of all nodes."""
    prior = np.arange(1, n_classes + 1) / np.arange(1, n_classes + 1).sum()
    posteriors, classes = draw_posteriors(N, prior, 1.0, seed)
    rng = np.random.default_rng(seed + 100)
    labels = np.where(rng.random(N) < 0.3, classes, -1)
    nodes = with_own_reference(make_nodes(posteriors, labels))
    groups = (np.arange(N) * 7 % 20).astype(np.int32)
    return nodes, groups, classes


def slow_covariance(nodes, learnt: Learnt, a, b, k: int, code: int) -> float:
    """The definition, node by node, for two sets of which each node counts once."""
    p = nodes.posteriors.astype(np.float64)
    f = np.clip((p / p.sum(axis=1, keepdims=True))[:, code], learnt.least, 1)
    w = np.minimum(f, 1 - learnt.least)
    w = w * (1 - w)

    def free(members):
        return {v for v in members if nodes.labels[v] < 0}

    one, two = free(a), free(b)
    total = sum(w[v] for v in one & two)
    sums = [sum(w[v] for v in some) for some in (one, two)]
    rows = np.flatnonzero(nodes.labels >= 0)
    for g in range(len(learnt.variances)):
        inside = (learnt.groups == g).any(axis=0)
        part = w[rows[inside[rows]]].sum() / (w[rows].sum() + 0.25)
        d_g = [
            sum(w[v] for v in some if inside[v]) - whole * part
            for some, whole in zip((one, two), sums, strict=True)
        ]
        total += d_g[0] * d_g[1] * learnt.variances[g, k]
    total += sums[0] * sums[1] * learnt.shared[k]
    return float(total / (len(a) * len(b)))


@pytest.mark.parametrize("partitions", [1, 3])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_estimates_are_known_labels_and_mean_posteriors(n_classes, partitions):
    nodes, groups, _ = drawn(n_classes)
    groups = np.stack([groups, np.arange(N) % 3, np.arange(N) // 9])[:partitions]
    auto = Auto(learnt=Learnt.of(nodes, groups))
    sets = [np.arange(40), np.arange(30, 200), np.flatnonzero(nodes.labels >= 0)[:5]]
    sets.append(np.arange(N))
    batch = make_communities(*sets)
    found = auto.estimate(batch, nodes)
    answer = combine(batch, nodes, found, "count")
    p = nodes.posteriors.astype(np.float64)
    p /= p.sum(axis=1, keepdims=True)
    for s, members in enumerate(sets):
        rows = p[members].copy()
        known = nodes.labels[members] >= 0
        rows[known] = np.eye(n_classes)[nodes.labels[members][known]]
        np.testing.assert_allclose(answer.prevalence[s], rows.mean(axis=0), atol=1e-12)
        codes = [1] if n_classes == 2 else range(n_classes)
        for k, code in enumerate(codes):
            slow = slow_covariance(nodes, auto.learnt, members, members, k, code)
            np.testing.assert_allclose(answer.sd[s, code] ** 2, slow, rtol=1e-10)
    assert (answer.sd[2] == 0).all()
    assert (answer.lower[2] == answer.upper[2]).all()
    assert (answer.lower <= answer.prevalence).all()
    assert (answer.prevalence <= answer.upper).all()


def test_nodes_without_a_posterior_count_as_the_prior():
    nodes, groups, _ = drawn(2)
    posteriors = nodes.posteriors.copy()
    free = np.flatnonzero(nodes.labels < 0)
    posteriors[free[:10]] = 0
    nodes = dataclasses.replace(nodes, posteriors=posteriors)
    auto = Auto(learnt=Learnt.of(nodes, groups))
    found = auto.estimate(make_communities(free[:10]), nodes)
    np.testing.assert_allclose(found.prevalence[0], nodes.prior)


@pytest.mark.parametrize("spread", [0.0, 0.6, 1.5])
def test_spread_between_groups_is_recovered(spread):
    rng = np.random.default_rng(3)
    w = rng.uniform(1, 30, 4000)
    r = rng.normal(0, np.sqrt(w + spread**2 * w**2))
    assert shift_variance(r, w, w) == pytest.approx(spread**2, rel=0.08, abs=0.002)


def test_groups_without_labels_are_less_certain():
    """Groups differ much, and posteriors know by how much."""
    rng = np.random.default_rng(4)
    groups = (np.arange(N) * 7 % 20).astype(np.int32)
    level = rng.beta(1, 1, 20)[groups]
    posteriors = np.stack([1 - level, level], axis=1)
    labels = np.where(rng.random(N) < level, 1, 0)
    labels[(rng.random(N) < 0.5) | (groups < 5)] = -1
    nodes = with_own_reference(make_nodes(posteriors, labels))
    learnt = Learnt.of(nodes, groups)
    assert (learnt.without > 5 * learnt.within).all()
    assert learnt.variances[:5].min() > learnt.variances[5:].max()
    # Errors of complete held-out groups replace the bound.
    apart = Held(nodes.reference.rows, nodes.reference.posteriors)
    held = Learnt.of(nodes, groups, held=apart)
    # Of some of the nodes as well: every other one.
    some = Held(*(values[::2] for values in vars(apart).values()))
    half = Learnt.of(nodes, groups, held=some)
    assert (half.without < learnt.without).all()
    assert (held.without < learnt.without).all()


def test_intervals_are_wide_without_labels():
    nodes = make_nodes(drawn(2)[0].posteriors, prior=[0.4, 0.6])
    auto, batch = Auto(), make_communities(np.arange(N))
    found = auto.estimate(batch, nodes)
    assert (found.upper - found.lower > 0.4).all()


@pytest.mark.parametrize("size", [1, 3, 15, 60, 400])
@pytest.mark.parametrize("shift", [0.0, 0.7])
def test_intervals_cover_simulated_communities(size, shift):
    rng = np.random.default_rng(size)
    f = rng.beta(0.8, 2.5, (3000, size))
    w = f * (1 - f)
    moved = np.log(f) - np.log1p(-f) + rng.normal(0, shift, (3000, 1))
    truth = (rng.random(f.shape) < expit(moved)).mean(axis=1)
    sd = np.sqrt(w.sum(axis=1) + shift**2 * w.sum(axis=1) ** 2) / size
    ends = interval_of_counts(f.mean(axis=1), sd, np.full(3000, float(size)), 0.95)
    covered = ((truth >= ends[0] - 1e-9) & (truth <= ends[1] + 1e-9)).mean()
    assert 0.93 <= covered <= (0.98 if size >= 20 else 1)


def test_an_interval_from_zero_starts_at_positive_zero():
    ends = interval_of_counts(np.array([0.1]), np.array([0.1]), np.array([4.0]), 0.95)
    assert not np.signbit(ends[0]).any()


@pytest.mark.parametrize("n_classes", [2, 3])
def test_samples_drawn_by_class_keep_the_estimates_of_sld(n_classes):
    nodes, _, classes = drawn(n_classes)
    free = np.flatnonzero(nodes.labels < 0)
    batch = make_communities(*(free[classes[free] == y][:40] for y in range(n_classes)))
    settings = small_settings("quantifier=auto", "memberships.drawn=by_class")
    by_class = make_quantifier("auto", settings)
    assert by_class.name == "sld"
    found = by_class.estimate(batch, nodes)
    plain = Sld()
    free = nodes.posteriors[nodes.labels < 0].astype(np.float64).mean(axis=0)
    np.testing.assert_allclose(nodes.mean_posterior, free / free.sum(), rtol=1e-9)
    start = dataclasses.replace(nodes, prior=nodes.mean_posterior)
    same = plain.estimate(batch, start)
    np.testing.assert_array_equal(found.prevalence, same.prevalence)
    truth = np.eye(n_classes)
    covered = (found.lower <= truth + 1e-9) & (truth <= found.upper + 1e-9)
    assert covered.mean() > 0.8
    assert (found.upper - found.lower).mean() < 0.6
    mean = make_quantifier("auto", small_settings("quantifier=auto"))
    other = mean.estimate(batch, nodes).prevalence
    assert np.abs(found.prevalence - truth).mean() < np.abs(other - truth).mean() / 2


@pytest.mark.parametrize("n_classes", [2, 4])
def test_samples_match_a_constant_where_posteriors_are_noise(n_classes):
    """Confident posteriors that are independent of the classes, and few labels."""
    rng = np.random.default_rng(n_classes)
    drawn = small_settings("memberships.drawn=by_class")
    quantifiers = [make_quantifier(name, drawn) for name in ("auto", "sld")]
    errors = []
    for _ in range(30):
        noise = rng.normal(0, 0.7, (1000, n_classes))
        posteriors = np.exp(noise) / np.exp(noise).sum(axis=1, keepdims=True)
        truth = rng.integers(0, n_classes, 1000).astype(np.int32)
        labels = np.where(np.arange(1000) < 60, truth, -1).astype(np.int32)
        nodes = with_own_reference(make_nodes(posteriors, labels))
        share = rng.dirichlet(np.ones(n_classes))
        chosen = rng.choice(
            np.arange(60, 1000), 200, p=share[truth[60:]] / share[truth[60:]].sum()
        )
        batch = make_communities(chosen)
        true = np.bincount(truth[chosen], minlength=n_classes) / 200
        found = [q.estimate(batch, nodes).prevalence[0] for q in quantifiers]
        errors.append([np.abs(each - true).mean() for each in (*found, nodes.prior)])
    auto, sld, constant = np.mean(errors, axis=0)
    assert auto < 1.03 * constant < sld


@pytest.mark.parametrize("where", ["everywhere", "half of the groups"])
def test_intervals_cover_groups_unions_and_the_complete_graph(where):
    """Groups have shifts of their own, and the level is calibrated on the labels."""
    rng = np.random.default_rng(5)
    covered: dict[str, list[bool]] = {"one": [], "ten": [], "whole": []}
    error, half = [], []
    for _ in range(60):
        groups = np.repeat(np.arange(40), rng.integers(20, 80, 40)).astype(np.int32)
        n = len(groups)
        logits = rng.normal(-1.0, 1.0, n)
        shift = rng.normal(0, 0.5, 40)[groups]
        truth = rng.random(n) < expit(1.04 * logits + shift)
        known = rng.random(n) < 0.2
        if where != "everywhere":
            known &= groups % 2 == 0
        own = truth[known].sum(), logits[known]
        level = brentq(lambda b, own=own: own[0] - expit(own[1] + b).sum(), -9, 9)
        f = expit(logits + level)
        nodes = make_nodes(np.stack([1 - f, f], axis=1), np.where(known, truth, -1))
        nodes = with_own_reference(nodes)
        auto = Auto(learnt=Learnt.of(nodes, groups))
        ones = [np.flatnonzero(groups == g) for g in range(40)]
        tens = [np.concatenate(ones[k : k + 10]) for k in range(0, 40, 10)]
        kinds = {"one": ones, "ten": tens, "whole": [np.arange(n)]}
        for kind, sets in kinds.items():
            batch = make_communities(*sets)
            found = auto.estimate(batch, nodes)
            for s, members in enumerate(sets):
                share = truth[members[~known[members]]].mean()
                lower, upper = found.lower[s, 1], found.upper[s, 1]
                covered[kind].append(lower - 1e-9 <= share <= upper + 1e-9)
                if kind == "whole":
                    error.append(abs(found.prevalence[s, 1] - share))
                    half.append((upper - lower) / 2)
    for kind, held in covered.items():
        assert np.mean(held) >= 0.9, kind
    assert np.mean(half) < 3.5 * np.mean(error)
