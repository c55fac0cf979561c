"""Evidence of labels and posteriors: an obvious loop, batches, calibrated samples."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from tests.quantify.default.test_auto import drawn
from tests.quantify.samples import draw_posteriors, make_communities, make_nodes
from xnq_dist.quantify.checks.evidence import (
    FAR,
    Evidence,
    EvidenceMoments,
    gather_evidence,
)
from xnq_dist.quantify.default.estimator_fit import Learnt


def made(n_classes, seed=0):
    nodes, reference, groups, classes = drawn(n_classes, seed)
    both = np.stack([groups, np.arange(len(groups)) // 9])
    return nodes, reference, Learnt.of(nodes, reference, both), classes


def normal(nodes, code):
    p = nodes.posteriors.astype(np.float64)
    return (p / p.sum(axis=1, keepdims=True))[:, code]


def slow_covariance(w, learnt, one, two, k):
    """B of two sets of nodes, group by group."""
    off = []
    for members in (one, two):
        by_group = np.zeros(len(learnt.variances))
        for v in members:
            by_group[learnt.groups[:, v]] += w[v]
        off.append(by_group - w[members].sum() * learnt.labelled[:, k])
    shared = learnt.shared[k] * w[one].sum() * w[two].sum()
    return float((off[0] * off[1] * learnt.variances[:, k]).sum() + shared)


def slow_evidence(nodes, reference, learnt, members, code, k):
    """The formulas of the docstring for one community and class."""
    m, f = EvidenceMoments.of(nodes, reference.prior), normal(nodes, code)
    s = np.clip(f, m.low[k], m.high[k])
    inside = np.clip(f, learnt.least, 1 - learnt.least)
    w = inside * (1 - inside)
    known = members[nodes.labels[members] >= 0]
    free = members[nodes.labels[members] < 0]
    y = nodes.labels[known] == code
    scale = {
        name: len(some) * m.weight[k] / w[some].sum() if len(some) else 0.0
        for name, some in (("l", known), ("u", free))
    }
    ll = slow_covariance(w, learnt, known, known, k)
    ul = slow_covariance(w, learnt, free, known, k) * scale["u"] * scale["l"]
    uu = slow_covariance(w, learnt, free, free, k) * scale["u"] ** 2
    inner = len(known) * m.noise[k] + ll * scale["l"] ** 2
    b = ul / inner if len(known) else 0.0
    d = s[known].sum() - len(known) * m.rest[k] - m.step[k] * y.sum()
    steps = len(free) * m.step[k]
    share = (s[free].sum() - len(free) * m.rest[k] - b * d) / steps
    shift = uu - b * ul
    bent = m.curve[k] * shift / (len(free) * m.weight[k])
    variance = len(free) * m.noise[k] + shift + bent**2 / 2
    skew = len(free) * m.skew[k] + 3 * bent * shift + bent**3
    skew += 6 * m.growth[k] * shift
    return Evidence(
        scores=share,
        error=np.sqrt(variance) / steps,
        skew=skew / steps**3,
    )


@pytest.mark.parametrize("n_classes", [2, 3])
def test_evidence_is_that_of_the_obvious_loop(n_classes):
    nodes, reference, learnt, _ = made(n_classes)
    sets = [np.arange(40), np.arange(30, 200), np.flatnonzero(nodes.labels < 0)[:25]]
    batch, moments = make_communities(*sets), EvidenceMoments.of(nodes, reference.prior)
    found = gather_evidence(batch, nodes, reference, learnt, moments)
    codes = [1] if n_classes == 2 else range(n_classes)
    for s, members in enumerate(sets):
        for k, code in enumerate(codes):
            slow = slow_evidence(nodes, reference, learnt, members, code, k)
            for field in dataclasses.fields(Evidence):
                value = getattr(found, field.name)[s, k]
                expected = getattr(slow, field.name)
                assert value == pytest.approx(expected, rel=2e-5, abs=1e-7), field.name


@pytest.mark.parametrize("n_classes", [2, 3])
def test_moments_are_those_of_calibrated_posteriors_by_class(n_classes):
    prior = np.arange(1, n_classes + 1) / np.arange(1, n_classes + 1).sum()
    rows, classes = draw_posteriors(200_000, prior, 1.0, 4)
    nodes = make_nodes(rows)
    found = EvidenceMoments.of(nodes, prior)
    for k, code in enumerate([1] if n_classes == 2 else range(n_classes)):
        f = normal(nodes, code)
        assert found.high[k] == pytest.approx(
            min(f.mean() + FAR * f.std(), 1), abs=1e-6
        )
        s, own = np.clip(f, found.low[k], found.high[k]), classes == code
        assert found.rest[k] == pytest.approx(s[~own].mean(), abs=3e-3)
        assert found.step[k] == pytest.approx(s[own].mean() - s[~own].mean(), abs=5e-3)
        within = np.where(own, s - s[own].mean(), s - s[~own].mean())
        assert found.noise[k] == pytest.approx((within**2).mean(), rel=0.03)
        chance = prior[code] * (1 - prior[code])
        third = ((s - s.mean()) ** 3).mean()
        third -= found.step[k] ** 3 * chance * (1 - 2 * prior[code])
        assert found.skew[k] == pytest.approx(third, abs=1e-3)
        moved = np.clip(
            f * np.exp(1e-4) / (f * np.exp(1e-4) + 1 - f), found.low[k], found.high[k]
        )
        assert found.weight[k] == pytest.approx((moved - s).mean() * 1e4, rel=0.01)


def test_scores_need_posteriors_that_vary():
    nodes, reference, learnt, _ = made(2)
    same = dataclasses.replace(nodes, posteriors=np.full((600, 2), 0.5, np.float32))
    moments = EvidenceMoments.of(same, reference.prior)
    batch = make_communities(np.arange(50))
    found = gather_evidence(batch, same, reference, learnt, moments)
    assert np.isnan(found.scores).all()
