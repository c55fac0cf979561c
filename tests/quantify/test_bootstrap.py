"""Bootstrap intervals: plain loops with the same draws, coverage, edge cases."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from scipy.special import expit

from tests.conftest import small_settings
from tests.quantify.samples import (
    draw_posteriors,
    make_communities,
    make_nodes,
    members_of,
    with_reference,
)
from xnq_dist.core.records import QUANTIFIERS
from xnq_dist.quantify import bootstrap
from xnq_dist.quantify.bootstrap import (
    FEW,
    THINNING,
    Bootstrap,
    Replicate,
    draw_rows,
    make_replicates,
    resample_labels,
)
from xnq_dist.quantify.interface import combine, make_quantifier
from xnq_dist.readout.calibration import fit_calibration

CLASSIC = [name for name in QUANTIFIERS if name != "auto"]


def world(n_classes: int, seed: int = 0, labels: int = 150):
    """Nodes with a reference, and two dozen communities with labelled members."""
    prior = np.array([0.6, 0.4] if n_classes == 2 else [0.5, 0.3, 0.2])
    posteriors, truth = draw_posteriors(1500, prior, 1.2, seed)
    rng = np.random.default_rng(seed)
    shown = np.where(rng.random(1500) < 0.1, truth, -1)
    held, codes = draw_posteriors(labels, prior, 1.2, seed + 1)
    nodes = with_reference(make_nodes(posteriors, shown), held, codes)
    sets = [
        rng.choice(1500, int(size), replace=False) for size in rng.integers(1, 90, 24)
    ]
    return nodes, make_communities(*sets)


def settings_of(resamples=60, *more):
    """Fewer resamples than a user may ask for, too: figures are held, not chances."""
    settings = small_settings(*more)
    intervals = settings.intervals.model_copy(update={"resamples": resamples})
    return settings.model_copy(update={"intervals": intervals})


def slow_spread(made, block, nodes, shifted, first):
    """One call of the quantifier for each resample of each community."""
    resamples, size = made.resamples, len(made.replicates)
    replicate = np.repeat(
        np.arange(size), np.diff(np.arange(size + 1) * resamples // size)
    )
    spread = np.zeros((len(block), shifted.shape[1]))
    logs = np.log(nodes.posteriors).T
    for s in range(len(block)):
        own = slice(block.offsets[s], block.offsets[s + 1])
        count = own.stop - own.start
        off = []
        for r in range(resamples if count else 0):
            other = made.replicates[replicate[r]]
            places = draw_rows(made.seed, first + s, r, count, count)
            posteriors = nodes.posteriors
            if other.offset is not None:
                posteriors = other.posteriors(logs)
            answer = made.quantifier.estimate(
                make_communities(block.members[own][places]),
                dataclasses.replace(
                    nodes,
                    posteriors=posteriors,
                    prior=other.prior,
                    reference=other.reference,
                ),
            ).prevalence[0]
            off.append(answer - shifted[own][places].mean(axis=0))
        if count:
            spread[s] = np.var(off, axis=0, ddof=1)
    return spread


@pytest.mark.parametrize("name", CLASSIC)
def test_spread_is_that_of_each_resample_alone(name):
    n_classes = 2 if QUANTIFIERS[name].two_classes else 3
    nodes, batch = world(n_classes)
    some = [members_of(batch, s) for s in range(4)]
    block = make_communities(*some, [])
    nodes = dataclasses.replace(nodes, labels=np.full(len(nodes.labels), -1, np.int32))
    settings = settings_of(12)
    made = Bootstrap.of(make_quantifier(name, settings), settings, nodes)
    shifted = np.random.default_rng(1).dirichlet(np.ones(n_classes), len(block.members))
    expected = slow_spread(made, block, nodes, shifted, 7)
    found = made._spread(block, nodes, shifted, 7)
    np.testing.assert_allclose(found, expected, atol=1e-9)


def ends_of(name, nodes, batch, settings, first=0):
    found = make_quantifier(name, settings).estimate(batch, nodes)
    ours = Bootstrap.of(make_quantifier(name, settings), settings, nodes)
    return ours.with_ends(batch, nodes, found, first)


@pytest.mark.parametrize("name", ["sld", "npacc"])
def test_batches_and_blocks_leave_every_bit(name, monkeypatch):
    nodes, batch = world(2)
    settings = settings_of(4)
    whole = ends_of(name, nodes, batch, settings)
    monkeypatch.setattr(bootstrap, "BLOCK", 100)
    in_blocks = ends_of(name, nodes, batch, settings)
    np.testing.assert_array_equal(in_blocks.lower, whole.lower)
    cut = int(batch.offsets[9])
    tail = dataclasses.replace(
        batch, offsets=batch.offsets[9:] - cut, members=batch.members[cut:]
    )
    alone = ends_of(name, nodes, tail, settings, 9)
    np.testing.assert_array_equal(alone.lower, whole.lower[9:])
    np.testing.assert_array_equal(alone.upper, whole.upper[9:])
    other = ends_of(name, nodes, tail, settings, 0)
    assert not np.array_equal(other.upper, alone.upper)


@pytest.mark.parametrize("name", ["sld", "pcc", "npacc"])
def test_labelled_empty_and_lone_members_have_sensible_ends(name):
    nodes, _ = world(3)
    known = np.flatnonzero(nodes.labels >= 0)
    free = np.flatnonzero(nodes.labels < 0)
    rows = nodes.posteriors.copy()
    unsure, unknown = free[:2]
    rows[unsure], rows[unknown] = 1 / 3, 0.0
    nodes = dataclasses.replace(nodes, posteriors=rows)
    batch = make_communities(known[:5], [], [unsure], [unknown], [*known[:8], unsure])
    settings = settings_of(20)
    found = ends_of(name, nodes, batch, settings)
    assert np.isnan(found.lower[:2]).all()
    assert np.isnan(found.upper[:2]).all()
    # One member is of a class or not: its interval is all there is.
    np.testing.assert_array_equal(np.round(found.upper[2] - found.lower[2], 6), 1)
    np.testing.assert_array_equal(found.upper[3] - found.lower[3], 1)
    answer = combine(batch, nodes, found, "count")
    np.testing.assert_array_equal(answer.lower[0], answer.upper[0])
    np.testing.assert_array_equal(answer.lower[0], answer.prevalence[0])
    # Eight of nine are known: a ninth is all that an interval is wide.
    assert (answer.upper[4] - answer.lower[4] <= 1 / 9 + 1e-9).all()
    assert (answer.upper[4] > answer.lower[4]).all()
    assert np.isnan(answer.lower[1]).all()
    nobody = ends_of(name, nodes, make_communities(known[:5], []), settings)
    assert np.isnan(nobody.upper).all()


def test_members_that_are_certain_leave_little_width():
    rng = np.random.default_rng(0)
    truth = (rng.random(4000) < 0.3).astype(int)
    rows = np.eye(2)[truth]
    nodes = make_nodes(rows)
    nodes = with_reference(nodes, rows[:3000], truth[:3000])
    batch = make_communities(*np.arange(3000, 4000).reshape(10, 100))
    for name in ("sld", "pacc"):
        found = ends_of(name, nodes, batch, settings_of(20))
        share = truth[3000:].reshape(10, 100).mean(axis=1)
        assert (found.lower[:, 1] <= share + 1e-9).all()
        assert (found.upper[:, 1] >= share - 1e-9).all()
        assert (found.upper - found.lower).max() < 0.03


@pytest.mark.parametrize("known", [60, 2000])
def test_calibration_moves_as_far_as_labels_leave_it_open(known):
    """As far as fits to labels drawn from the posteriors themselves differ."""
    p = np.random.default_rng(3).beta(1, 1.5, known)
    rows = np.stack([1 - p, p], axis=1)
    refits, moved = [], []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        codes = (rng.random(known) < p).astype(np.int32)
        found = fit_calibration("bcts", np.log(rows), codes)
        refits.append([np.log(found.slope[0]), found.offset[1]])
        if seed < 4:
            nodes = with_reference(make_nodes(rows), rows, codes)
            made = make_replicates(nodes, 50, seed)
            moved.append(
                np.var(
                    [[np.log(g.slope), g.offset[1] - g.offset[0]] for g in made], axis=0
                )
            )
    rare = known * 0.4
    expected = np.var(refits, axis=0) * THINNING * (1 + FEW / rare)
    ratio = np.mean(moved, axis=0) / expected
    assert (ratio > 0.6).all()
    assert (ratio < 1.7).all()


def test_prior_of_a_replicate_moves_with_its_offset():
    """So what divides posteriors by the prior hardly notices."""
    rng = np.random.default_rng(0)
    p = rng.beta(2, 3, 400)
    codes = (rng.random(400) < p).astype(np.int32)
    rows = np.stack([1 - p, p], axis=1)
    made = make_replicates(with_reference(make_nodes(rows), rows, codes), 50, 0)
    log_odds = [np.log(g.prior[1] / g.prior[0]) for g in made]
    offsets = [g.offset[1] - g.offset[0] for g in made]
    assert np.corrcoef(log_odds, offsets)[0, 1] > 0.6
    assert np.var(np.subtract(offsets, log_odds)) < 0.7 * np.var(offsets)


def test_replicates_are_of_rows_within_their_class():
    labels = np.repeat([0, 1, 2], [40, 9, 1]).astype(np.int32)
    rows, codes = resample_labels(labels, 3, 0)
    assert np.bincount(codes).tolist() == [20, 4, 1]
    assert (labels[rows] == codes).mean() > 0.8
    np.testing.assert_array_equal(resample_labels(labels, 3, 0)[0], rows)
    assert not np.array_equal(resample_labels(labels, 4, 0)[0], rows)


def test_replicate_calibrates_logarithms_of_posteriors():
    rows = np.random.default_rng(0).dirichlet(np.ones(3), 5)
    logs = np.log(rows).T.astype(np.float32)
    nodes, _ = world(3)
    one = Replicate(nodes.prior, nodes.reference)
    same = one.posteriors(logs)
    np.testing.assert_allclose(same, rows, rtol=1e-5)
    other = dataclasses.replace(one, slope=0.5, offset=np.array([0, 1.0, -1.0]))
    other = other.posteriors(logs)
    expected = np.exp(0.5 * np.log(rows) + [0, 1, -1])
    expected /= expected.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(other, expected, rtol=1e-5)


def test_quantifier_without_labelled_nodes_has_an_interval():
    nodes, batch = world(2)
    nodes = make_nodes(nodes.posteriors, nodes.labels, [0.6, 0.4])
    for name in ("sld", "pcc"):
        found = ends_of(name, nodes, batch, settings_of(20))
        some = ~np.isnan(found.prevalence[:, 0])
        assert (found.upper > found.lower)[some].all()
    auto, sld = (make_quantifier(name, settings_of(20)) for name in ("auto", "sld"))
    assert Bootstrap.of(auto, settings_of(20), nodes) is None
    assert Bootstrap.of(sld, settings_of(0), nodes) is None


def draw_world(seed: int, known: int, sets: int, size: int):
    """Communities drawn by class at shares of 0 to 1; scores of one overlap."""
    rng = np.random.default_rng(seed)
    prior, spread = 0.3, 1.2

    def scores(truth):
        logits = 2 * rng.normal(2.0 * truth - 1, spread) / spread**2
        p = expit(logits + np.log(prior / (1 - prior)))
        return np.stack([1 - p, p], axis=1)

    labels = (rng.random(known) < prior).astype(np.int32)
    counts = np.rint(np.linspace(0, 1, sets) * size).astype(int)
    truth = (np.arange(size) < counts[:, None]).astype(int)
    nodes = with_reference(make_nodes(scores(truth.ravel())), scores(labels), labels)
    batch = make_communities(*np.arange(sets * size).reshape(sets, size))
    return nodes, batch, counts / size


@pytest.mark.parametrize(
    ("name", "least"),
    [
        ("sld", 0.95),
        ("pacc", 0.93),
        ("acc", 0.93),
        ("nacc", 0.93),
        ("npacc", 0.93),
        pytest.param("dmy", 0.92, marks=pytest.mark.slow),
        pytest.param("kdey_ml", 0.93, marks=pytest.mark.slow),
    ],
)
def test_samples_by_class_are_covered(name, least):
    """Intervals are not much too wide: four populations, 21 prevalences twice."""
    held, width, error = [], [], []
    for seed in range(4):
        nodes, batch, share = draw_world(seed, 1000, 42, 80)
        found = ends_of(name, nodes, batch, settings_of(50))
        inside = (share >= found.lower[:, 1] - 1e-9) & (
            share <= found.upper[:, 1] + 1e-9
        )
        held.append(inside.mean())
        width.append((found.upper - found.lower)[:, 1].mean())
        error.append(np.abs(found.prevalence[:, 1] - share).mean())
    assert least <= np.mean(held) <= 0.995
    # Of a normal error the interval of 95 % is 4.9 times the mean size of it wide.
    assert np.mean(width) < 7 * np.mean(error)


def test_mean_posterior_is_covered_where_it_is_right():
    """Classes drawn by the posteriors themselves: what PCC and CC assume."""
    rng = np.random.default_rng(4)
    p = rng.beta(2, 3, (300, 60))
    truth = rng.random((300, 60)) < p
    rows = np.stack([1 - p.ravel(), p.ravel()], axis=1)
    nodes = make_nodes(rows)
    own = rng.beta(2, 3, 5000)
    labels = (rng.random(5000) < own).astype(np.int32)
    nodes = with_reference(nodes, np.stack([1 - own, own], axis=1), labels)
    batch = make_communities(*np.arange(18000).reshape(300, 60))
    found = ends_of("pcc", nodes, batch, settings_of(50))
    share = truth.mean(axis=1)
    held = (share >= found.lower[:, 1] - 1e-9) & (share <= found.upper[:, 1] + 1e-9)
    assert 0.92 <= held.mean() <= 0.985
