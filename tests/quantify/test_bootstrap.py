"""Bootstrap intervals: twins that draw the same members, coverage, edge cases."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from scipy.special import expit
from scipy.stats import chi2

from tests.conftest import small_settings
from tests.quantify.samples import (
    draw_posteriors,
    field_library,
    labelled_reference,
    make_communities,
    make_nodes,
    reference_of,
    their_quantifier,
)
from xnq_dist.quantify import bootstrap
from xnq_dist.quantify.bootstrap import Bootstrap
from xnq_dist.quantify.density import log_densities
from xnq_dist.quantify.interface import QUANTIFIERS, combine
from xnq_dist.quantify.neighbourhood import joint_rates
from xnq_dist.quantify.recalibrations import (
    Recalibrations,
    _covariance,
    draw_recalibrations,
)
from xnq_dist.quantify.relabelled import draw_again
from xnq_dist.quantify.replicates import make_replicates, what_is_said
from xnq_dist.quantify.resampling import draw_kernel, draw_rows, odds_kernel
from xnq_dist.quantify.sld import sld_exact

CLASSIC = [name for name in QUANTIFIERS if name != "auto"]
MASK = (1 << 64) - 1


def mixed(value: int) -> int:
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & MASK
    return value ^ (value >> 31)


def slow_places(seed: int, community: int, resample: int, size: int, count: int):
    """The stream as its definition says it, in Python's own integers."""
    gamma = 0x9E3779B97F4A7C15
    word = mixed((seed + gamma) & MASK)
    for key in (community, resample):
        word = mixed(((word ^ key) + gamma) & MASK)
    found = []
    while len(found) < count:
        word = (word + gamma) & MASK
        value = mixed(word)
        found += [((value & 0xFFFFFFFF) * size) >> 32, ((value >> 32) * size) >> 32]
    return np.array(found[:count])


@pytest.mark.parametrize("size", [1, 2, 7, 100])
def test_draws_differ_from_their_definition(size):
    for seed, community, resample in ((0, 0, 0), (2**62 + 5, 10**9, 499), (3, 1, 2)):
        expected = slow_places(seed, community, resample, size, size)
        found = draw_rows(seed, community, resample, size, size)
        np.testing.assert_array_equal(found, expected)


def test_draws_are_not_even_or_not_independent():
    """Counts of 10 places, and of pairs of them next to each other in four ways."""
    drawn = np.array([draw_rows(1, s, r, 10, 20) for s in range(50) for r in range(50)])

    def deviation(counts):
        expected = counts.sum() / len(counts)
        return float(((counts - expected) ** 2 / expected).sum())

    assert deviation(np.bincount(drawn.ravel())) < chi2.isf(1e-4, 9)
    by_two = drawn.reshape(50, 50, 20)
    pairs = [
        (drawn[:, :-1], drawn[:, 1:]),
        (drawn[:, :-2], drawn[:, 2:]),
        (by_two[1:], by_two[:-1]),
        (by_two[:, 1:], by_two[:, :-1]),
    ]
    for left, right in pairs:
        joint = (10 * left + right).ravel()
        assert deviation(np.bincount(joint, minlength=100)) < chi2.isf(1e-4, 99)


def world(n_classes: int, seed: int = 0, labels: int = 150):
    """Two dozen communities, some labelled members, and a reference."""
    prior = np.array([0.6, 0.4] if n_classes == 2 else [0.5, 0.3, 0.2])
    posteriors, truth = draw_posteriors(1500, prior, 1.2, seed)
    rng = np.random.default_rng(seed)
    shown = np.where(rng.random(1500) < 0.1, truth, -1)
    nodes = make_nodes(posteriors, shown)
    held, codes = draw_posteriors(labels, prior, 1.2, seed + 1)
    sets = [
        rng.choice(1500, int(size), replace=False) for size in rng.integers(1, 90, 24)
    ]
    return nodes, make_communities(*sets), labelled_reference(held, codes)


def settings_of(resamples=40, *more):
    """Fewer resamples than a user may ask for, too: figures are held, not chances."""
    settings = small_settings(*more)
    intervals = settings.intervals.model_copy(update={"resamples": resamples})
    return settings.model_copy(update={"intervals": intervals})


def slow_sums(made, settings, block, rows, shifted, answer, first, solve):
    """Every resample of every community by itself, answered by `solve`."""
    total, squares = np.zeros((2, *answer.shape))
    resamples = settings.intervals.resamples
    replicate = np.repeat(
        np.arange(made.count),
        np.diff(np.arange(made.count + 1) * resamples // made.count),
    )
    for s in range(len(block)):
        own = slice(block.offsets[s], block.offsets[s + 1])
        size = own.stop - own.start
        for r in range(resamples):
            if not size:
                continue
            places = slow_places(settings.seed, first + s, r, size, size)
            drawn = rows[block.members[own][places]]
            off = solve(replicate[r], drawn) - shifted[own][places].mean(axis=0)
            total[s] += off
            squares[s] += off**2
    return total, squares


def sums_of(name, n_classes, settings, solve=None):
    """Sums over resamples, ours and the slow twin's."""
    nodes, batch, reference = world(n_classes)
    batch = make_communities(
        *(batch.members[batch.offsets[s] : batch.offsets[s + 1]] for s in range(6))
    )
    found = QUANTIFIERS[name](settings).estimate(batch, nodes, reference, "exclude")
    ours = Bootstrap.of(name, settings, reference, nodes.classes)
    rng = np.random.default_rng(1)
    rows = what_is_said(
        ours.replicates,
        nodes,
        np.arange(len(nodes.posteriors)),
        nodes.posteriors.astype(np.float64),
    )
    shifted = rng.dirichlet(np.ones(n_classes), len(batch.members))
    answer = np.nan_to_num(found.prevalence, nan=0.5)
    mine = ours._sums(batch, rows, shifted, answer, 7)
    made = ours.replicates
    if solve is None:

        def solve(g, drawn):
            one = make_communities(np.arange(len(drawn)))
            return made.solve(g, one, made.table(g, drawn))[0]

    theirs = slow_sums(
        made, settings, batch, rows, shifted, answer, 7, lambda *a: solve(*a)
    )
    return mine, theirs, made, reference


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize(
    "name", ["cc", "pcc", "acc", "pacc", "nacc", "npacc", "dmy", "kdey_ml", "sld"]
)
def test_sums_differ_from_those_of_each_resample_alone(name, n_classes):
    mine, theirs, _, _ = sums_of(name, n_classes, settings_of(12))
    atol = 2e-3 if name in ("sld", "kdey_ml") else 1e-9
    np.testing.assert_allclose(mine, theirs, atol=atol)


@pytest.mark.parametrize("name", ["sld", "sld_exact"])
def test_resample_is_not_answered_by_the_most_likely_mixture(name):
    """By sequential quadratic programming, from the recalibrated posteriors."""

    def solve(g, drawn):
        log = made.recalibrations.slopes[g] * np.log(drawn)
        log += made.recalibrations.offsets[g]
        again = np.exp(log) / np.exp(log).sum(axis=1, keepdims=True)
        return sld_exact(again, made.prior)[0]

    settings = settings_of(10)
    nodes, _, reference = world(2)
    made = make_replicates(name, settings, reference, nodes.classes)
    mine, theirs, _, _ = sums_of(name, 2, settings, solve)
    np.testing.assert_allclose(mine, theirs, atol=1e-3)


@pytest.mark.oracle
@pytest.mark.parametrize("name", ["pacc", "dmy", "dys"])
def test_resample_is_not_answered_as_by_the_field_library(name):
    """QuaPy's estimator, fitted to the drawn labelled rows, on the drawn members."""
    library = field_library()
    settings = settings_of(6)
    _, _, reference = world(2)
    rows = np.asarray(reference.posteriors, np.float64)
    of = {"pacc": "PACC", "dmy": "DMy", "dys": "DyS"}[name]
    options = {
        "pacc": {"solver": "minimize"},
        "dmy": {"nbins": 8, "divergence": "topsoe"},
        "dys": {"n_bins": 8, "divergence": "topsoe"},
    }[name]
    fitted = {}

    def solve(g, drawn):
        if g not in fitted:
            own, codes = draw_again(rows, reference.labels, g, settings.seed)
            made = getattr(library, of)
            fitted[g] = their_quantifier(made, own, codes, **options)
        found = fitted[g].aggregate(drawn)
        return np.array([1 - found[1], found[1]])

    mine, theirs, _, _ = sums_of(name, 2, settings, solve)
    np.testing.assert_allclose(mine[0], theirs[0], atol=6 * 6e-3)


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("name", ["nacc", "npacc"])
def test_rates_of_pairs_are_not_those_of_the_rows_drawn(name, n_classes):
    nodes, _, reference = world(n_classes)
    settings, hard = settings_of(5), name == "nacc"
    made = make_replicates(name, settings, reference, nodes.classes)
    around = reference.neighbours
    near = around.votes if hard else around.posterior_sum
    numbers = np.arange(len(reference.labels), dtype=np.float64)[:, None]
    for g in range(5):
        drawn, codes = draw_again(numbers, reference.labels, g, settings.seed)
        rows = drawn[:, 0].astype(int)
        own = joint_rates(reference.posteriors[rows], near[rows], codes, hard)
        np.testing.assert_allclose(made.matrices[g], own, atol=1e-7)


def test_densities_on_a_line_are_not_those_of_all_pairs():
    nodes, _, reference = world(2)
    settings = settings_of(2)
    made = make_replicates("kdey_ml", settings, reference, nodes.classes)
    at = nodes.posteriors.astype(np.float64)
    held = np.asarray(reference.posteriors, np.float64)
    for g in range(2):
        logs = log_densities(
            at, *draw_again(held, reference.labels, g, settings.seed), 0.1
        )
        found = np.log(made.table(g, at))
        np.testing.assert_allclose(
            found[:, 1] - found[:, 0], logs[:, 1] - logs[:, 0], atol=5e-3
        )


def test_newton_leaves_the_bracket_or_a_corner():
    """Two classes that are apart, alike, and certain."""
    cases = [[0.0, 0.0], [1.0, 1.0, -1.0], [1.0], [-1.0, -1.0], [0.9, 0.9, 0.9, -0.1]]
    wanted = [0.3, 2 / 3, 1.0, 0.0, None]
    for values, expected in zip(cases, wanted, strict=True):
        batch = make_communities(np.arange(len(values)))
        shifted = np.zeros((len(values), 2))
        sums = np.zeros((1, 2))
        odds_kernel(
            batch.offsets,
            batch.members,
            np.array(values),
            shifted,
            np.array([0.3]),
            4,
            0,
            0,
            1,
            sums,
        )
        drawn = np.array(values)[slow_places(4, 0, 0, len(values), len(values))]
        if expected is None or len(set(drawn.tolist())) > 1:
            grid = np.linspace(0, 1, 10_001)
            with np.errstate(divide="ignore"):
                logs = np.log1p(np.outer(drawn, 2 * grid - 1)).sum(axis=0)
            expected = grid[np.argmax(logs)]
        elif drawn[0] == 1.0:
            expected = 1.0
        assert sums[0, 0] == pytest.approx(expected, abs=2e-4)
        assert np.isfinite(sums).all()


def test_members_drawn_are_not_those_counted():
    batch = make_communities([3, 1, 4], [], [5, 9, 2, 6])
    shifted = np.random.default_rng(0).random((7, 2))
    drawn, means = np.empty(7, np.int64), np.empty((3, 2))
    draw_kernel(batch.offsets, batch.members, shifted, 1, 10, 2, drawn, means)
    for s in (0, 2):
        begin, end = batch.offsets[s], batch.offsets[s + 1]
        places = slow_places(1, 10 + s, 2, end - begin, end - begin)
        np.testing.assert_array_equal(
            drawn[begin:end], batch.members[begin:end][places]
        )
        np.testing.assert_allclose(means[s], shifted[begin:end][places].mean(axis=0))
    np.testing.assert_array_equal(means[1], 0)


def ends_of(name, nodes, batch, reference, settings, first=0):
    found = QUANTIFIERS[name](settings).estimate(batch, nodes, reference, "count")
    ours = Bootstrap.of(name, settings, reference, nodes.classes)
    return ours.with_ends(batch, nodes, reference, found, first)


@pytest.mark.parametrize("name", CLASSIC)
def test_batches_or_blocks_change_a_bit(name, monkeypatch):
    nodes, batch, reference = world(2)
    settings = settings_of(4)
    whole = ends_of(name, nodes, batch, reference, settings)
    monkeypatch.setattr(bootstrap, "BLOCK", 100)
    in_blocks = ends_of(name, nodes, batch, reference, settings)
    np.testing.assert_array_equal(in_blocks.lower, whole.lower)
    cut = int(batch.offsets[9])
    tail = dataclasses.replace(
        batch, offsets=batch.offsets[9:] - cut, members=batch.members[cut:]
    )
    alone = ends_of(name, nodes, tail, reference, settings, 9)
    np.testing.assert_array_equal(alone.lower, whole.lower[9:])
    np.testing.assert_array_equal(alone.upper, whole.upper[9:])
    other = ends_of(name, nodes, tail, reference, settings, 0)
    assert name == "pcc" or not np.array_equal(other.upper, alone.upper)


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("name", CLASSIC)
def test_labelled_empty_or_lone_members_get_senseless_ends(name, n_classes):
    if n_classes > 2 and name in ("hdy", "dys"):
        pytest.skip("defined for two classes")
    nodes, _, reference = world(n_classes)
    known = np.flatnonzero(nodes.labels >= 0)
    free = np.flatnonzero(nodes.labels < 0)
    rows = nodes.posteriors.copy()
    sure, unsure = free[:2]
    rows[sure], rows[unsure] = 0.0, 1 / n_classes
    rows[sure, 0] = 1.0
    rows[free[2]] = 0.0
    nodes = dataclasses.replace(nodes, posteriors=rows)
    batch = make_communities(known[:5], [], [unsure], [free[2]], [*known[:8], unsure])
    settings = settings_of(20)
    found = ends_of(name, nodes, batch, reference, settings)
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


def test_members_that_are_certain_leave_width():
    rng = np.random.default_rng(0)
    truth = (rng.random(4000) < 0.3).astype(int)
    rows = np.eye(2)[truth]
    nodes = make_nodes(rows)
    reference = labelled_reference(rows[:3000], truth[:3000])
    batch = make_communities(*np.arange(3000, 4000).reshape(10, 100))
    for name in ("sld", "pacc", "acc", "pcc"):
        found = ends_of(name, nodes, batch, reference, settings_of(20))
        share = truth[3000:].reshape(10, 100).mean(axis=1)
        assert (found.lower[:, 1] <= share + 1e-9).all()
        assert (found.upper[:, 1] >= share - 1e-9).all()
        assert (found.upper - found.lower).max() < 0.03


def test_calibration_is_moved_by_other_than_a_refit_is():
    """Covariance of the fit to labels drawn again from the posteriors themselves."""
    from xnq_dist.readout.calibration import fit_calibration

    prior = np.array([0.6, 0.4])
    held, codes = draw_posteriors(800, prior, 1.0, 3)
    rows = held.astype(np.float64) / held.sum(axis=1, keepdims=True, dtype=np.float64)
    rng = np.random.default_rng(0)
    moved = []
    for _ in range(80):
        chosen = rng.integers(0, 800, 800)
        again = (rng.random(800) < rows[chosen, 1]).astype(np.int32)
        fit = fit_calibration("bcts", np.log(rows[chosen]), again)
        slope = 1 / fit.parameters["temperature"][0]
        share = again.mean()
        bias = fit.parameters["bias"][1]
        odds = np.log(share / (1 - share)) - np.log(
            rows[:, 1].mean() / rows[:, 0].mean()
        )
        moved.append([slope, bias, bias - odds])
    seen = np.cov(np.array(moved).T)
    few = 2.0 * (1 + 20.0 / np.bincount(codes).min())
    alone = _covariance(rows, codes, False) / few
    joint = _covariance(rows, codes, True) / few
    np.testing.assert_allclose(np.diag(alone), np.diag(seen)[:2], rtol=0.6)
    # Four standard errors of a covariance from so many refits.
    scale = np.sqrt(seen[0, 0] * seen[1, 1] / len(moved))
    np.testing.assert_allclose(alone[0, 1], seen[0, 1], atol=4 * scale)
    np.testing.assert_allclose(joint[1, 1], seen[2, 2], rtol=0.6)
    # The prior moves along: it leaves much less open than the offset alone does.
    drawn = draw_recalibrations(rows, codes, 2, 50, 0, True)
    logs = np.stack([np.log(drawn.slopes), drawn.offsets[:, 1]])
    np.testing.assert_allclose(np.cov(logs, bias=True), joint * few, atol=1e-9)


def test_blocks_change_the_covariance_of_a_recalibration(monkeypatch):
    random = np.random.default_rng(3)
    rows = random.dirichlet(np.ones(3), 500)
    codes = np.array([random.choice(3, p=row) for row in rows])
    whole = _covariance(rows, codes, True)
    monkeypatch.setattr("xnq_dist.quantify.recalibrations.CELLS", 27 * 7)
    np.testing.assert_allclose(_covariance(rows, codes, True), whole, rtol=1e-9)


def test_recalibration_is_not_a_map_of_logits():
    made = Recalibrations(np.array([1.0, 0.5]), np.array([[0, 0, 0], [0, 1.0, -1.0]]))
    rows = np.random.default_rng(0).dirichlet(np.ones(3), 5)
    np.testing.assert_allclose(made.apply(0, rows), rows)
    logs = 0.5 * np.log(rows) + [0, 1, -1]
    expected = np.exp(logs) / np.exp(logs).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(made.apply(1, rows), expected)
    none = draw_recalibrations(None, None, 3, 4, 0, True)
    np.testing.assert_array_equal(none.slopes, 1)


def test_quantifier_without_labelled_nodes_has_no_interval():
    nodes, batch, _ = world(2)
    reference = reference_of([0.6, 0.4])
    for name in ("sld", "pcc"):
        found = ends_of(name, nodes, batch, reference, settings_of(20))
        some = ~np.isnan(found.prevalence[:, 0])
        assert (found.upper > found.lower)[some].all()
    assert Bootstrap.of("auto", settings_of(20), reference, nodes.classes) is None
    assert Bootstrap.of("sld", settings_of(0), reference, nodes.classes) is None


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
    nodes = make_nodes(scores(truth.ravel()))
    batch = make_communities(*np.arange(sets * size).reshape(sets, size))
    return nodes, batch, labelled_reference(scores(labels), labels), counts / size


@pytest.mark.parametrize(
    ("name", "least"),
    [
        ("sld", 0.95),
        ("pacc", 0.93),
        ("acc", 0.93),
        ("nacc", 0.93),
        ("npacc", 0.93),
        ("dmy", 0.92),
        ("kdey_ml", 0.93),
    ],
)
def test_samples_by_class_are_not_covered(name, least):
    """Also not covered by far too wide ones: eight worlds, 21 prevalences twice."""
    held, width, error = [], [], []
    for seed in range(8):
        nodes, batch, reference, share = draw_world(seed, 1000, 42, 80)
        found = ends_of(name, nodes, batch, reference, settings_of(50))
        inside = (share >= found.lower[:, 1] - 1e-9) & (
            share <= found.upper[:, 1] + 1e-9
        )
        held.append(inside.mean())
        width.append((found.upper - found.lower)[:, 1].mean())
        error.append(np.abs(found.prevalence[:, 1] - share).mean())
    assert least <= np.mean(held) <= 0.995
    # Of a normal error the interval of 95 % is 4.9 times the mean size of it wide.
    assert np.mean(width) < 7 * np.mean(error)


def test_mean_posterior_is_not_covered_where_it_is_right():
    """Classes drawn by the posteriors themselves: what PCC and CC assume."""
    rng = np.random.default_rng(4)
    p = rng.beta(2, 3, (300, 60))
    truth = rng.random((300, 60)) < p
    rows = np.stack([1 - p.ravel(), p.ravel()], axis=1)
    nodes = make_nodes(rows)
    own = rng.beta(2, 3, 5000)
    labels = (rng.random(5000) < own).astype(np.int32)
    reference = labelled_reference(np.stack([1 - own, own], axis=1), labels)
    batch = make_communities(*np.arange(18000).reshape(300, 60))
    found = ends_of("pcc", nodes, batch, reference, settings_of(50))
    share = truth.mean(axis=1)
    held = (share >= found.lower[:, 1] - 1e-9) & (share <= found.upper[:, 1] + 1e-9)
    assert 0.92 <= held.mean() <= 0.985
