"""Posteriors raked to benchmarks, against slow and obvious implementations."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq, minimize

from tests.quantify.samples import draw_posteriors, make_communities, make_nodes
from xnq_dist.quantify.default.node_sums import node_sums
from xnq_dist.quantify.default.raking import Cells, contradiction, rake
from xnq_dist.quantify.interface import CellTilt

N = 120


def made(n_classes: int, seed: int = 0, size: int = N):
    """Nodes, a third of them labelled, with weights, and three overlapping groups."""
    rng = np.random.default_rng(seed + 1000)
    posteriors, classes = draw_posteriors(size, np.ones(n_classes) / n_classes, 1, seed)
    labels = np.where(rng.random(size) < 1 / 3, classes, -1)
    weights = rng.exponential(1, size) + 0.1
    nodes = dataclasses.replace(make_nodes(posteriors, labels), weights=weights)
    cuts = np.array([0, size // 4, size // 2, size])
    groups = [
        np.arange(size),
        np.sort(rng.choice(size, size // 2, replace=False)),
        np.arange(cuts[1], cuts[2]),
    ]
    return nodes, groups, classes


def true_targets(nodes, groups, classes):
    """Benchmarks that are consistent, as sums over the unlabelled nodes."""
    n_classes = nodes.posteriors.shape[1]
    free = np.where(nodes.labels < 0, nodes.weights, 0.0)
    sums = [np.bincount(classes[own], free[own], minlength=n_classes) for own in groups]
    return np.array(sums), np.array([nodes.weights[own].sum() for own in groups])


def slow_rake(nodes, groups, targets, rounds: int = 3000):
    """Rake to one benchmark after the other, by bisection, repeatedly."""
    f = nodes.posteriors.astype(np.float64)
    f /= f.sum(axis=1, keepdims=True)
    free = nodes.labels < 0
    for _ in range(rounds):
        before = f.copy()
        for own, target in zip(groups, targets, strict=True):
            rows = own[free[own]]
            u = nodes.weights[rows]
            for c in np.flatnonzero(~np.isnan(target)):

                def gap(log, rows=rows, u=u, c=c, target=target):
                    odds = f[rows, c] * np.exp(log)
                    return (u * odds / (odds + 1 - f[rows, c])).sum() - target[c]

                factor = np.exp(brentq(gap, -40, 40, xtol=1e-14))
                f[rows, c] *= factor
                f[rows] /= f[rows].sum(axis=1, keepdims=True)
        if np.abs(f - before).max() < 1e-12:
            return f
    raise AssertionError("the slow way did not end")


def raked(nodes, groups, targets, sizes):
    """Posteriors of all nodes after raking."""
    n_classes = nodes.posteriors.shape[1]
    prior = np.ones(n_classes) / n_classes
    cells = Cells.of(make_communities(*groups), len(nodes.labels))
    factors, left = rake(nodes, prior, cells, targets, sizes)
    assert np.abs(left).max() <= 1e-9
    f = nodes.posteriors.astype(np.float64)
    f /= f.sum(axis=1, keepdims=True)
    inside = cells.cell >= 0
    f[inside] *= factors[cells.cell[inside]]
    return f / f.sum(axis=1, keepdims=True), CellTilt(cells.cell, factors), prior


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("which", ["all classes", "one class"])
def test_all_benchmarks_hold_and_posteriors_are_those_of_the_obvious_loop(
    n_classes, which
):
    nodes, groups, classes = made(n_classes)
    targets, sizes = true_targets(nodes, groups, classes)
    if which == "one class":
        targets[:, 1:] = np.nan
    f, tilt, prior = raked(nodes, groups, targets, sizes)
    free = nodes.labels < 0
    for own, target, size in zip(groups, targets, sizes, strict=True):
        rows = own[free[own]]
        sums = (nodes.weights[rows, None] * f[rows]).sum(axis=0)
        known = ~np.isnan(target)
        np.testing.assert_allclose(sums[known], target[known], atol=1e-9 * size)
    slow = slow_rake(nodes, groups, targets)
    np.testing.assert_allclose(f[free], slow[free], atol=1e-7)
    # The sums of communities see the same posteriors.
    batch = make_communities(np.arange(0, N, 3), np.flatnonzero(free)[:1])
    none = np.zeros((1, 1 if n_classes == 2 else n_classes))
    alone = np.zeros(N, np.int32)
    moved = dataclasses.replace(nodes, tilt=tilt)
    found = node_sums(batch, moved, prior, alone, none, none, 1e-9).mean
    rows = np.arange(0, N, 3)
    rows = rows[free[rows]]
    u = nodes.weights[rows, None]
    np.testing.assert_allclose(found[0], (u * f[rows]).sum(axis=0) / u.sum())
    np.testing.assert_allclose(found[1], f[np.flatnonzero(free)[0]])


def test_raked_posteriors_are_the_nearest_in_relative_entropy():
    nodes, groups, classes = made(2, size=12)
    nodes = dataclasses.replace(nodes, labels=np.full(12, -1, np.int32))
    targets, sizes = true_targets(nodes, groups[1:], classes)
    f, _, _ = raked(nodes, groups[1:], targets, sizes)
    before = nodes.posteriors[:, 1] / nodes.posteriors.sum(axis=1)

    def divergence(p):
        own = p * np.log(p / before) + (1 - p) * np.log((1 - p) / (1 - before))
        return (nodes.weights * own).sum()

    held = [
        {
            "type": "eq",
            "fun": lambda p, own=own, t=t: (nodes.weights[own] * p[own]).sum() - t[1],
        }
        for own, t in zip(groups[1:], targets, strict=True)
    ]
    found = minimize(
        divergence,
        before,
        bounds=[(1e-9, 1 - 1e-9)] * 12,
        constraints=held,
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 500},
    )
    assert found.success
    np.testing.assert_allclose(f[:, 1], found.x, atol=1e-5)


@given(st.integers(0, 10**6), st.permutations(range(3)), st.sampled_from([2, 3]))
@settings(max_examples=25)
def test_posteriors_are_the_same_in_any_order_of_groups_and_members(
    seed, order, n_classes
):
    nodes, groups, classes = made(n_classes, seed % 50)
    targets, sizes = true_targets(nodes, groups, classes)
    one, *_ = raked(nodes, groups, targets, sizes)
    shuffled = [np.random.default_rng(seed).permutation(groups[g]) for g in order]
    two, *_ = raked(nodes, shuffled, targets[list(order)], sizes[list(order)])
    np.testing.assert_allclose(one, two, atol=1e-8)


def test_shares_of_zero_and_of_all_can_be_met():
    nodes, groups, classes = made(3)
    targets, sizes = true_targets(nodes, groups, classes)
    total = targets[2].sum()
    for target in ([0.0, total, 0.0], [0.0, np.nan, np.nan]):
        f, *_ = raked(nodes, groups[2:], np.array([target]), sizes[2:])
        rows = groups[2][nodes.labels[groups[2]] < 0]
        assert (nodes.weights[rows] * f[rows, 0]).sum() < 1e-9 * sizes[2]


def test_benchmarks_that_follow_from_others_keep_the_posteriors():
    """The parts of a partition and the whole."""
    nodes, _, classes = made(3)
    parts = [np.arange(k, N, 4) for k in range(4)]
    targets, sizes = true_targets(nodes, [*parts, np.arange(N)], classes)
    one, *_ = raked(nodes, parts, targets[:4], sizes[:4])
    two, *_ = raked(nodes, [*parts, np.arange(N)], targets, sizes)
    np.testing.assert_allclose(one, two, atol=1e-8)


def test_contradictory_groups_are_identified_among_others():
    nodes, groups, classes = made(2)
    targets, sizes = true_targets(nodes, groups, classes)
    cells = Cells.of(make_communities(*groups), N)
    free = np.where(nodes.labels < 0, nodes.weights, 0.0)
    of_cell = cells.sums(free)
    assert contradiction(of_cell, cells.incidence, targets, sizes) is None
    # More of class 0 in a part than in all nodes.
    total = targets[0].sum()
    targets[0] = [0.05 * total, 0.95 * total]
    targets[1] = np.nan
    targets[2] = [targets[2].sum(), 0]
    assert targets[2, 0] > targets[0, 0]
    assert contradiction(of_cell, cells.incidence, targets, sizes) == (0, 2, False)
    with pytest.raises(AssertionError):
        raked(nodes, groups, targets, sizes)


def test_cells_are_the_sets_of_groups_that_nodes_are_in():
    groups = [np.array([0, 1, 2]), np.array([2, 3]), np.array([2, 1])]
    cells = Cells.of(make_communities(*groups), 6)
    dense = cells.incidence.toarray()
    for v in range(6):
        inside = [float(v in own) for own in groups]
        if cells.cell[v] < 0:
            assert not any(inside)
        else:
            assert dense[cells.cell[v]].tolist() == inside
    assert len(dense) == 4


def test_three_groups_that_contradict_each_other_only_together_are_found():
    n = 90
    groups = [np.arange(n), np.arange(40), np.arange(40, 80)]
    targets = np.array([[30.0, 60.0], [20.0, 20.0], [20.0, 20.0]])
    sizes = np.array([90.0, 40.0, 40.0])
    cells = Cells.of(make_communities(*groups), n)
    of_cell = cells.sums(np.ones(n))
    found = contradiction(of_cell, cells.incidence, targets, sizes)
    assert found is not None
    assert found[2]
    targets[2] = [10.0, 30.0]
    assert contradiction(of_cell, cells.incidence, targets, sizes) is None
