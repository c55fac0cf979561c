"""Communities that differ beyond chance: simulated rates and power, exact tails."""

from __future__ import annotations

import dataclasses

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from scipy.special import expit, logit
from scipy.stats import binom, false_discovery_control, norm

from tests.quantify.samples import make_communities, make_nodes
from tests.quantify.samples import reference_of as class_shares
from tests.report.fake_run import prevalence_table, results_of
from xnq_dist.quantify.checks.evidence import EvidenceMoments, gather_evidence
from xnq_dist.quantify.default.estimator_fit import Learnt
from xnq_dist.steps.anomalies import (
    Observations,
    find_anomalies,
    pvalues_of_class,
    qvalues,
)
from xnq_dist.steps.view import ranks


def binomial_pvalues(known, labelled, r):
    """The exact test on the labels alone, both tails doubled."""
    tails = binom.cdf(known, labelled, r), binom.sf(known - 1, labelled, r)
    return np.minimum(2 * np.minimum(*tails), 1.0)


def world(rng, share, size, known, sharpness=1.2, spread=0.0, overall=0.3):
    """Communities of members drawn at their shares, and their statistics.

    Posteriors are calibrated at the overall share, but for a logit shift of each
    community with the given spread, which its classes do not share.
    """
    members = int(size.sum())
    community = np.repeat(np.arange(len(size)), size)
    classes = rng.random(members) < share[community]
    score = rng.normal(sharpness * (classes - 0.5), 1.0)
    shift = rng.normal(0, spread, len(size)) if spread else np.zeros(len(size))
    f = expit(sharpness * score + logit(overall) + shift[community])
    place = np.arange(members) - np.repeat(np.cumsum(size) - size, size)
    labels = np.where(place < known[community], classes, -1)
    posteriors = np.stack([1 - f, f], axis=1)
    # The rest of the graph: the same for nodes, each as a community.
    other = rng.random(50_000) < overall
    own = rng.normal(0, spread, len(other)) + logit(overall)
    rest = expit(sharpness * rng.normal(sharpness * (other - 0.5), 1) + own)
    rows = np.concatenate([posteriors, np.stack([1 - rest, rest], axis=1)])
    nodes = make_nodes(rows, np.concatenate([labels, np.full(len(rest), -1)]))
    groups = np.concatenate([community, np.zeros(len(rest))]).astype(np.int32)
    nothing = Learnt.nothing(nodes)
    learnt = dataclasses.replace(
        nothing,
        groups=groups,
        least=1e-3,
        variances=np.full((len(size), 1), spread**2),
        labelled=np.zeros((len(size), 1)),
    )
    moments = EvidenceMoments.of(make_nodes(rows[members:]), np.array([0.7, 0.3]))
    reference = class_shares([0.7, 0.3])
    batch = make_communities(*np.split(np.arange(members), np.cumsum(size)[:-1]))
    evidence = gather_evidence(batch, nodes, reference, learnt, moments)
    counted = np.bincount(community[labels == 1], minlength=len(size))
    expected = np.bincount(community[labels < 0], f[labels < 0], len(size))
    prevalence = (counted + expected) / size
    both = np.stack([1 - prevalence, prevalence], axis=1)
    seen = Observations(
        known,
        np.stack([known - counted, counted], axis=1),
        size - known,
        np.concatenate([1 - evidence.scores, evidence.scores], axis=1),
        np.repeat(evidence.error, 2, axis=1),
        np.concatenate([-evidence.skew, evidence.skew], axis=1),
    )
    return both, size, seen


NULLS = 10_000


@pytest.mark.parametrize(
    ("overall", "known", "spread"),
    [
        (0.3, 0.0, 0.5),
        (0.3, 0.06, 0.0),
        (0.03, 0.0, 0.5),
        (0.03, 0.5, 0.5),
    ],
)
def test_pvalues_of_nulls_are_uniform_and_false_discoveries_rare(
    overall, known, spread
):
    rng = np.random.default_rng(int(100 * (spread + known + overall)))
    size = rng.integers(10, 200, NULLS)
    labelled = np.floor(known * size).astype(np.int64)
    share = np.full(NULLS, overall)
    options = {"spread": spread, "overall": overall}
    found = find_anomalies(*world(rng, share, size, labelled, **options))
    p = found.pvalue[:, 1]
    assert (p < 0.05).mean() < 0.056  # 2.8 standard errors
    assert (p < 0.001).mean() < 0.0025
    assert (found.qvalue <= 0.05).sum() <= 2
    if overall == 0.3:
        assert (p < 0.05).mean() > 0.03
    _, _, seen = world(rng, share, size, labelled, **options)
    assert (against(overall, seen) < 0.05).mean() < 0.056


@pytest.mark.parametrize(
    ("sharpness", "known"), [(0.05, 2), (0.05, 40), (0.6, 8), (2.0, 2), (2.0, 40)]
)
def test_power_is_that_of_the_binomial_test_or_more(sharpness, known):
    rng = np.random.default_rng(5)
    share = np.where(np.arange(4000) < 400, 0.6, 0.3)
    size, labelled = np.full(4000, 80), np.full(4000, known)
    args = world(rng, share, size, labelled, sharpness=sharpness, spread=0.2)
    found, own = find_anomalies(*args), np.arange(4000) < 400
    alone = binomial_pvalues(args[2].known[:, 1], labelled, 0.3)
    assert (found.pvalue[~own, 1] < 0.05).mean() < 0.06
    for level in (0.05, 0.001):
        power = (found.pvalue[own, 1] < level).mean()
        assert power >= (alone[own] < level).mean() - 0.02
        if sharpness == 2.0 and known < 40 and level == 0.001:
            assert power > (alone[own] < level).mean() + 0.3
    flagged = found.qvalue[:, 1] <= 0.05
    assert (flagged & ~own).sum() <= 0.08 * flagged.sum() + 2
    discovered = false_discovery_control(alone) <= 0.05
    assert (flagged & own).sum() >= (discovered & own).sum() - 8


def against(share, seen):
    """P-values of the second class against one share."""
    size = len(seen.labelled)
    each = np.full(size, share), np.zeros(size)
    return pvalues_of_class(seen, np.arange(size), 1, *each)


def exact_tails(statistic, trials, r, unlabelled, error):
    """P(A >= a), P(A <= a): sums over both binomials, normal noise."""
    shown = 1 / (r * (1 - r) / unlabelled + error**2)
    k, j = np.arange(trials + 1)[:, None], np.arange(unlabelled + 1)
    weight = binom.pmf(k, trials, r) * binom.pmf(j, unlabelled, r)
    middle = (k - trials * r) / (r * (1 - r)) + (j / unlabelled - r) * shown
    z = (statistic - middle) / (shown * error)
    return (weight * norm.sf(z)).sum(), (weight * norm.cdf(z)).sum()


def test_pvalues_are_those_of_sums_over_all_counts():
    rng = np.random.default_rng(3)
    for r in (0.05, 0.3, 0.5):
        count = 20
        labelled = rng.integers(0, 12, count)
        known = rng.binomial(labelled, np.clip(3 * r, 0, 0.9))
        unlabelled = rng.integers(5, 40, count)
        q = r + rng.normal(0, 0.2, count)
        # The noise of posteriors that explain half of the variance.
        error = rng.uniform(1, 3, count) * np.sqrt(r * (1 - r) / unlabelled)
        seen = Observations(
            labelled,
            np.stack([labelled - known, known], axis=1),
            unlabelled,
            np.stack([1 - q, q], axis=1),
            np.stack([error, error], axis=1),
            np.zeros((count, 2)),
        )
        found = against(r, seen)
        for s in range(count):
            shown = 1 / (r * (1 - r) / unlabelled[s] + error[s] ** 2)
            a = (known[s] - labelled[s] * r) / (r * (1 - r)) + (q[s] - r) * shown
            args = a, int(labelled[s]), r, int(unlabelled[s]), float(error[s])
            exact = min(2 * min(exact_tails(*args)), 1.0)
            near = found[s]
            # Larger on the short side of a skewed sum, and not much smaller.
            assert 0.8 * exact - 1e-4 <= near <= 1.7 * exact + 1e-3, (r, s)


def labels_alone(known, labelled):
    """Statistics with uninformative posteriors."""
    nothing = np.full((len(known), 2), np.nan)
    classes = np.stack([labelled - known, known], axis=1)
    return Observations(
        labelled, classes, np.zeros(len(known), np.int64), *[nothing] * 3
    )


def test_labels_alone_give_the_exact_binomial_test():
    labelled = np.repeat(np.arange(1, 41), 41)
    known = np.minimum(np.tile(np.arange(41), 40), labelled)
    seen = labels_alone(known, labelled)
    for r in (0.02, 0.3, 0.5):
        expected = binomial_pvalues(known, labelled, r)
        np.testing.assert_allclose(against(r, seen), expected, rtol=1e-9)
    # For large counts, only relevant terms are summed.
    many = np.array([1_000_000])
    for k in (500_000, 501_000, 503_000):
        one = against(0.5, labels_alone(np.array([k]), many))
        exact = binomial_pvalues(k, many[0], 0.5)
        assert one[0] == pytest.approx(exact, rel=1e-6, abs=1e-14)


def test_effects_are_of_the_mean_of_the_others():
    share = np.array([0.2, 0.5, 0.6, np.nan])
    n = np.array([10, 30, 60, 5])
    prevalence = np.stack([1 - share, share], axis=1)
    seen = labels_alone(np.array([2, 15, 36, 0]), np.array([10, 30, 60, 0]))
    found = find_anomalies(prevalence, n, seen)
    rest = (30 * 0.5 + 60 * 0.6) / 90
    assert found.reference[0, 1] == pytest.approx(rest)
    assert found.effect[0] == pytest.approx([rest - 0.2, 0.2 - rest])
    assert np.isnan(found.pvalue[3]).all()
    assert np.isnan(found.effect[3]).all()
    np.testing.assert_array_equal(found.pvalue[:3, 0], found.pvalue[:3, 1])


def test_labels_and_estimates_that_disagree_make_the_reference_uncertain():
    labelled = np.full(200, 100)
    known = np.random.default_rng(0).binomial(100, 0.5, 200)
    seen = labels_alone(known, labelled)
    prevalence = np.tile([0.7, 0.3], (200, 1))
    found = find_anomalies(prevalence, np.full(200, 1000), seen)
    assert (found.pvalue[:, 1] < 0.05).mean() < 0.05


def test_effects_need_a_second_community():
    count = np.array([9])
    one = find_anomalies(
        np.array([[0.5, 0.5]]), count, labels_alone(np.array([4]), count)
    )
    assert np.isnan(one.effect).all()
    empty = np.empty(0, np.int64)
    none = find_anomalies(np.empty((0, 2)), empty, labels_alone(empty, empty))
    assert none.effect.size == 0


def test_a_reference_of_zero_is_refuted_by_one_member_of_the_class():
    known, labelled = np.array([0, 1]), np.array([5, 5])
    without, with_one = against(0.0, labels_alone(known, labelled))
    assert without == 1.0
    assert with_one < 1e-7
    nothing = np.zeros(2, np.int64)
    assert np.isnan(against(0.3, labels_alone(nothing, nothing))).all()


def test_qvalues_are_over_all_classes_or_the_second_of_two():
    p = np.random.default_rng(7).random((200, 3)) ** 3
    p[:20] = np.nan
    expected = false_discovery_control(p[20:], axis=None).reshape(180, 3)
    np.testing.assert_array_equal(qvalues(p)[20:], expected)
    assert np.isnan(qvalues(p)[:20]).all()
    for column in qvalues(p[:, :2])[20:].T:
        np.testing.assert_array_equal(column, false_discovery_control(p[20:, 1]))


def rows_with_gaps():
    """Some communities without a prevalence, some without an interval."""
    table = prevalence_table(np.arange(30), ("a", "b", "c"), intervals=True)
    community = table["community"].to_numpy()
    for name, left_out in (("prevalence", 3), ("lower", 5), ("upper", 5)):
        gone = (community % left_out == 1) | (community % 3 == 1)
        values = pa.array(table[name].to_numpy(zero_copy_only=False), mask=gone)
        table = table.set_column(table.schema.get_field_index(name), name, values)
    return results_of(table).tables["anomalies"]


def test_communities_without_an_interval_keep_their_rows():
    rows = rows_with_gaps()
    assert rows.num_rows == 30 * 3
    assert len(pc.unique(rows["community"])) == 30
    for row in rows.to_pylist():
        nothing, no_interval = row["community"] % 3 == 1, row["community"] % 5 == 1
        for name in ("prevalence", "rank_prevalence"):
            assert (row[name] is None) == nothing
        for name in ("effect", "pvalue", "qvalue", "anomalous", "rank_effect"):
            assert (row[name] is None) == (nothing or no_interval), name


def test_rows_add_up_and_the_largest_effects_come_first():
    table = prevalence_table(np.arange(9), intervals=True)
    rows = results_of(table).tables["anomalies"]
    value = {name: rows[name].to_numpy() for name in rows.column_names}
    effect = value["prevalence"] - value["reference"]
    np.testing.assert_allclose(value["effect"], effect)
    assert (value["lower"] <= effect).all()
    assert (effect <= value["upper"]).all()
    assert (value["anomalous"] == (value["qvalue"] <= 0.05)).all()
    assert (np.diff(np.abs(effect)) <= 0).all()


def test_ranks_are_those_of_the_values():
    rows = rows_with_gaps().to_pylist()
    for name in ("a", "b", "c"):
        own = [row for row in rows if row["class"] == name]
        for rank, size in (
            ("rank_effect", lambda row: abs(row["effect"])),
            ("rank_prevalence", lambda row: row["prevalence"]),
        ):
            ranked = sorted((r for r in own if r[rank]), key=lambda r: r[rank])
            assert [r[rank] for r in ranked] == list(range(1, len(ranked) + 1))
            sizes = [size(r) for r in ranked]
            assert sizes == sorted(sizes, reverse=True)


def test_equal_values_are_ranked_by_size_and_place():
    values = np.array([[0.5], [np.nan], [0.5], [0.9], [0.5]])
    sizes = np.array([10, 99, 30, 1, 30])
    assert ranks(values, sizes)[:, 0].tolist() == [4, None, 2, 1, 3]
