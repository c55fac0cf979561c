"""Two-part pooling: the fast form against a slow one, and what the labels change."""

from __future__ import annotations

import dataclasses
from itertools import product

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import logsumexp, xlogy

from tests.quantify.samples import (
    draw_posteriors,
    make_communities,
    make_nodes,
    members_of,
    with_own_reference,
)
from xnq_dist.quantify.default.auto import Auto
from xnq_dist.quantify.default.estimator_fit import Learnt
from xnq_dist.quantify.default.pooling import (
    NOISE,
    PSEUDO,
    SPREADS,
    fit_weights,
    label_evidence,
    pooled_members,
)
from xnq_dist.quantify.interface import (
    UNSEEN,
    Communities,
    NodeTable,
    combine,
)

SIZE = 60
PARTS = 2 * len(SPREADS)
PLAIN = np.eye(PARTS)[[0, 0]]
"""All weight on the smallest spread around 0."""


def tables(n_classes: int, shift: float, seed: int = 0):
    """Nodes of 30 communities; in every third one, class odds are shifted."""
    rng = np.random.default_rng(seed)
    prior = np.arange(1, n_classes + 1) / np.arange(1, n_classes + 1).sum()
    posteriors, _ = draw_posteriors(30 * SIZE, prior, 0.7, seed)
    community = np.arange(30 * SIZE) // SIZE
    factors = np.ones((30, n_classes))
    factors[::3, -1] = np.exp(shift)
    moved = posteriors * factors[community]
    moved /= moved.sum(axis=1, keepdims=True)
    classes = (moved.cumsum(axis=1) < rng.random((len(moved), 1))).sum(axis=1)
    classes = np.minimum(classes, n_classes - 1)
    labels = np.where(rng.random(len(classes)) < 0.3, classes, -1)
    labels[community == 29] = -1
    nodes = with_own_reference(make_nodes(posteriors, labels))
    sets = [np.flatnonzero(community == s) for s in range(30)]
    return nodes, make_communities(*sets), classes


def slow(
    batch: Communities,
    nodes: NodeTable,
    weights: np.ndarray,
    tilts: np.ndarray | float,
):
    """The definition, by SciPy: evidence, mean and variance of each community.

    In the coordinates of the issue: one intercept for every class but the last, which
    is the difference of two of the symmetric ones.
    """
    n_classes = nodes.posteriors.shape[1]
    f = nodes.posteriors / nodes.posteriors.sum(axis=1, keepdims=True, dtype=float)
    noisy = (1 - NOISE) * f + NOISE / n_classes
    free_rows = f * tilts / (f * tilts).sum(axis=1, keepdims=True)
    inverse = np.linalg.inv(np.eye(n_classes - 1) + 1.0) * 2

    def shifted(rows, b):
        logs = np.log(rows) + np.append(b, 0.0)
        return np.exp(logs - logsumexp(logs, axis=1, keepdims=True))

    def curvature(p):
        p = p[:, :-1]
        return np.diag(p.sum(axis=0)) - p.T @ p

    prior = nodes.posteriors[nodes.labels < 0].mean(axis=0, dtype=float)
    evidence, means, variances = [], [], []
    for s in range(len(batch)):
        members = members_of(batch, s)
        known = members[nodes.labels[members] >= 0]
        free = members[nodes.labels[members] < 0]
        codes, rows, parts = nodes.labels[known], noisy[known], []
        q = prior
        for _ in range(1000):
            p = f[free] * q / prior
            p /= p.sum(axis=1, keepdims=True)
            q = (p.sum(axis=0) + 10 * prior) / (len(free) + 10)
        shift = np.log(q / prior)
        shift = (shift - shift[-1])[:-1]
        for middle, t in product((0 * shift, shift), SPREADS):

            def loss(b, t=t, rows=rows, codes=codes, middle=middle):
                p = shifted(rows, b)
                fit = np.log(p[np.arange(len(codes)), codes]).sum()
                return (b - middle) @ inverse @ (b - middle) / (2 * t * t) - fit

            def slope(b, t=t, rows=rows, codes=codes, middle=middle):
                p = shifted(rows, b)
                seen = np.bincount(codes, minlength=n_classes)
                return inverse @ (b - middle) / t**2 - (seen - p.sum(axis=0))[:-1]

            b = minimize(loss, middle, jac=slope, method="BFGS", tol=1e-10).x
            h = curvature(shifted(rows, b)) + inverse / t**2
            det = np.linalg.slogdet(h)[1] - np.linalg.slogdet(inverse / t**2)[1]
            p = shifted(free_rows[free], b)
            g = np.zeros((n_classes, n_classes - 1))
            for row in p:
                g += np.diag(row)[:, :-1] - np.outer(row, row[:-1])
            spread = (p * (1 - p)).sum(axis=0)
            spread += np.einsum("ij,jk,ik->i", g, np.linalg.inv(h), g)
            parts.append((-loss(b) - det / 2, p.sum(axis=0), spread))
        logs = np.array([part[0] for part in parts])
        evidence.append(logs)
        shares = np.exp(logs - logs.max()) * weights
        share, wide = shares / shares.sum(axis=1, keepdims=True)
        sums = np.array([part[1] for part in parts])
        mean = share @ sums
        inside = wide @ np.array([part[2] for part in parts])
        means.append(mean / max(len(free), 1))
        variances.append(inside + wide @ (sums - mean) ** 2)
    return np.array(evidence), np.array(means), np.array(variances)


@pytest.mark.parametrize("n_classes", [2, 4])
def test_kernels_agree_with_the_definition(n_classes):
    nodes, batch, _ = tables(n_classes, 1.5)
    evidence = label_evidence(batch, nodes)
    weights = fit_weights(evidence)
    some = [0, 1, 15, 29]  # communities, of which the last has no labels
    few = make_communities(*(np.arange(s * SIZE, (s + 1) * SIZE) for s in some))
    tilts = np.linspace(0.5, 1.5, n_classes)
    for factors in (1.0, tilts):
        pooled = pooled_members(batch, nodes, weights, factors)
        expected = slow(few, nodes, weights, factors)
        around_0 = slice(len(SPREADS))
        of_some = evidence[some[:-1]]
        np.testing.assert_allclose(
            of_some[:, around_0], expected[0][:-1, around_0], rtol=2e-5, atol=1e-5
        )
        np.testing.assert_allclose(of_some, expected[0][:-1], rtol=2e-4, atol=1e-5)
        # SLD's EM stops at a change of 1e-5.
        for one, other in zip(
            (pooled.mean, pooled.variance), expected[1:], strict=True
        ):
            np.testing.assert_allclose(one[some], other, rtol=2e-4, atol=1e-5)


def test_weights_maximise_the_likelihood_with_the_pseudo_communities():
    nodes, batch, _ = tables(2, 1.5)
    evidence = label_evidence(batch, nodes)
    likelihood = np.exp(evidence)

    def value(w, added):
        return np.log(likelihood @ w).sum() + xlogy(added, w).sum()

    rng = np.random.default_rng(0)
    for best, added in zip(fit_weights(evidence), PSEUDO, strict=True):
        assert best.sum() == pytest.approx(1)
        for _ in range(200):
            other = rng.dirichlet(np.ones(PARTS))
            for step in (1.0, 0.01):
                near = best + step * (other - best)
                assert value(near, added) <= value(best, added) + 1e-4


def test_samples_by_class_need_posteriors_with_skill():
    nodes, batch, _ = tables(2, 1.5)
    noise = dataclasses.replace(nodes, posteriors=np.full_like(nodes.posteriors, 0.5))
    blind = label_evidence(batch, with_own_reference(noise))
    assert (blind[1, len(SPREADS) :] == -np.inf).all()
    assert fit_weights(blind)[:, len(SPREADS) :].sum() == 0


@pytest.mark.parametrize("n_classes", [2, 3])
def test_the_interval_is_the_mixtures_with_the_shared_errors(n_classes):
    nodes, batch, _ = tables(n_classes, 3.0, seed=3)
    learnt = Learnt.of(nodes, np.arange(len(nodes.labels)) // 90)
    weights = fit_weights(label_evidence(batch, nodes))
    alone = Auto(learnt=learnt)
    former = alone.estimate(batch, nodes)
    auto = dataclasses.replace(alone, parts=weights)
    found = auto.estimate(batch, nodes)
    pooled = pooled_members(batch, nodes, weights)
    free = np.array(
        [(nodes.labels[s * SIZE : (s + 1) * SIZE] < 0).sum() for s in range(30)]
    )[:, None]
    binomial = pooled_members(batch, nodes, PLAIN)
    shared = (former.sd * free) ** 2 - binomial.variance
    np.testing.assert_allclose(found.prevalence, pooled.mean)
    np.testing.assert_allclose(
        (found.sd * free) ** 2, pooled.variance + shared, rtol=0.02
    )
    notes = combine(batch, nodes, found, "count").notes
    assert [note == UNSEEN for note in notes] == [s == 29 for s in range(30)]


def test_a_community_keeps_its_bits_among_any_others():
    nodes, batch, _ = tables(3, 1.0)
    evidence = label_evidence(batch, nodes)
    weights = fit_weights(evidence)
    whole = pooled_members(batch, nodes, weights)
    for s in (0, 7, 29):
        members = members_of(batch, s)
        some = make_communities(np.arange(100), members, np.arange(40))
        own = label_evidence(some, nodes)[1:-1]  # none without labels
        np.testing.assert_array_equal(own, evidence[s : s + 1])
        alone = pooled_members(some, nodes, weights)
        np.testing.assert_array_equal(alone.mean[1], whole.mean[s])
        np.testing.assert_array_equal(alone.variance[1], whole.variance[s])


def test_no_labelled_member_and_no_unlabelled_one_give_the_prior_and_nothing():
    nodes, _, _ = tables(2, 1.0)
    labelled = np.flatnonzero(nodes.labels >= 0)
    batch = make_communities([], labelled[:5], np.flatnonzero(nodes.labels < 0)[:5])
    evidence = label_evidence(batch, nodes)
    assert evidence.shape == (1, PARTS)
    found = pooled_members(batch, nodes, fit_weights(evidence))
    assert found.known.tolist() == [0, 5, 0]
    assert np.isnan(found.mean[:2]).all()
    assert (found.variance[:2] == 0).all()


def test_labels_of_unequal_weight_count_as_many_as_they_are_worth():
    nodes, batch, _ = tables(2, 1.0)
    rows = nodes.reference.rows

    def evidence(weights):
        reference = dataclasses.replace(nodes.reference, weights=weights)
        weighted = dataclasses.replace(nodes, reference=reference)
        return label_evidence(batch, weighted)

    equal = evidence(np.full(len(rows), 7.0))
    np.testing.assert_array_equal(label_evidence(batch, nodes), equal)
    own = np.isin(rows, batch.members[: batch.offsets[1]])
    np.testing.assert_allclose(evidence(np.where(own, 9.0, 1.0))[0], equal[0])
    some = evidence(np.where(np.arange(len(rows)) % 2, 1e-9, 1.0))
    half = dataclasses.replace(nodes, labels=nodes.labels.copy())
    half.labels[rows[1::2]] = -1
    # SLD's shift depends on who is unlabelled.
    around_0 = slice(len(SPREADS))
    np.testing.assert_allclose(
        some[:, around_0],
        label_evidence(batch, with_own_reference(half))[:, around_0],
        atol=1e-6,
    )
