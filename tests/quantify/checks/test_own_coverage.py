"""Coverage on the user's labels: simulated groups, and a plain implementation."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from xnq_dist.quantify.checks.own_coverage import own_coverage
from xnq_dist.quantify.default.auto import interval_of_counts
from xnq_dist.quantify.default.estimator_fit import (
    PRIOR_VARIANCE,
    Held,
    Learnt,
    shift_variance,
)


def drawn(seed, spread, count=60, size=30, n_classes=2):
    """Groups with a common bias of their logits, of standard deviation `spread`."""
    rng = np.random.default_rng(seed)
    groups = np.repeat(np.arange(count), size)
    logits = rng.normal(0, 1, (len(groups), n_classes))
    posteriors = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    moved = np.exp(logits + rng.normal(0, spread, (count, n_classes))[groups])
    moved /= moved.sum(axis=1, keepdims=True)
    labels = (rng.random((len(groups), 1)) > moved.cumsum(axis=1)).sum(axis=1)
    rows = np.sort(rng.choice(len(groups), len(groups) // 2, replace=False))
    return groups, Held(rows, labels[rows].astype(np.int32), posteriors[rows])


def learnt_on(groups, least, within=0.0, n_classes=2):
    width = 1 if n_classes == 2 else n_classes
    one, each = np.full(width, within), np.zeros((1, width))
    return Learnt(groups[None].astype(np.int32), each, one, each, least, one, one, each)


@pytest.mark.parametrize("spread", [0.0, 0.8])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_simulated_groups_are_covered(spread, n_classes):
    found = [
        own_coverage(held, learnt_on(groups, 0.001, 0.0, n_classes), 0.95)
        for groups, held in (drawn(s, spread, 60, 80, n_classes) for s in range(20))
    ]
    assert np.mean([one["groups"] for one in found]) > 55
    # Intervals are extended to integer numbers of nodes.
    assert np.mean([one["covered"] for one in found]) > 0.93
    # Four standard deviations: of 40 labels and of the groups' shifts.
    sd = np.sqrt(0.25 / 40 + (0.2 * spread) ** 2)
    assert np.mean([one["width"] for one in found]) < 4.5 * sd


def test_spread_of_a_group_is_learnt_from_the_others_alone():
    """The same group by group, with the spread learnt from all others."""
    groups, held = drawn(0, 0.6, count=15, size=24)
    learnt = learnt_on(groups, 1e-9, 0.1)
    other = 15 + np.arange(len(groups)) % 4
    weight = held.posteriors[:, 1] * (1 - held.posteriors[:, 1])
    learnt = dataclasses.replace(
        learnt,
        groups=np.stack([groups, other]).astype(np.int32),
        without=np.array([0.4]),
        information=np.bincount(other[held.rows], weight)[:, None],
    )
    f, own = held.posteriors[:, 1], groups[held.rows]
    w, y = f * (1 - f), held.labels == 1
    residuals, weights = np.bincount(own, y - f), np.bincount(own, w)
    number = np.bincount(own)
    covered, widths = [], []
    for group in np.flatnonzero(number >= 5):
        others = (np.arange(15) != group) & (number >= 5)
        between = 0.1 + shift_variance(residuals[others], weights[others])
        shared = 1 / (weights[number >= 5].sum() + 1 / PRIOR_VARIANCE)
        mine, size = own == group, np.array(float(number[group]))
        variance = weights[group] + (between + shared) * weights[group] ** 2
        for e in range(15, 19):
            part = w[mine & (other[held.rows] == e)].sum()
            left = w[~mine & (other[held.rows] == e)].sum()
            variance += part**2 / (1 / 0.4 + left)
        sd = np.sqrt(variance) / size
        lower, upper = interval_of_counts(f[mine].mean(), sd, size, 0.95)
        covered.append(lower - 1e-9 <= y[mine].mean() <= upper + 1e-9)
        widths.append(upper - lower)
    found = own_coverage(held, learnt, 0.95)
    assert found["covered"] == pytest.approx(np.mean(covered))
    assert found["width"] == pytest.approx(np.mean(widths))
    assert found["groups"] == len(covered)


def test_coverage_needs_ten_groups():
    groups, held = drawn(1, 0.0, count=9)
    assert own_coverage(held, learnt_on(groups, 0.001), 0.95) is None
