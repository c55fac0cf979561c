"""Communities that differ beyond chance: simulated rates and power, exact tails."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from scipy.special import expit, logit
from scipy.stats import binom, false_discovery_control

from tests.quantify.samples import make_communities, make_nodes
from tests.report.fake_run import prevalence_table, results_of
from xnq_dist.core.settings import Settings
from xnq_dist.quantify.default.auto import Auto
from xnq_dist.quantify.default.estimator_fit import Learnt
from xnq_dist.quantify.default.pooling import fit_weights, label_evidence
from xnq_dist.quantify.interface import Reference, combine
from xnq_dist.steps.against_rest import compare, find_anomalies, qvalues


def binomial_pvalues(known, labelled, r):
    """The exact test on the labels alone, both tails doubled."""
    tails = binom.cdf(known, labelled, r), binom.sf(known - 1, labelled, r)
    return np.minimum(2 * np.minimum(*tails), 1.0)


def world(rng, share, size, known, sharpness=1.2, spread=0.0, overall=0.3):
    """Estimates of communities drawn at their shares, sizes and standard errors.

    Posteriors are calibrated at the overall share, but for a logit shift of each
    community with the given spread, which its classes do not share.
    """
    community = np.repeat(np.arange(len(size)), size)
    classes = rng.random(len(community)) < share[community]
    score = rng.normal(sharpness * (classes - 0.5), 1.0)
    shift = rng.normal(0, spread, len(size))
    f = expit(sharpness * score + logit(overall) + shift[community])
    place = np.arange(len(f)) - np.repeat(np.cumsum(size) - size, size)
    labelled = place < known[community]
    w = np.where(labelled, 0.0, f * (1 - f))
    total, weight = (
        np.bincount(community, values, len(size))
        for values in (np.where(labelled, classes, f), w)
    )
    q, se = total / size, np.sqrt(weight + (spread * weight) ** 2) / size
    return np.stack([1 - q, q], axis=1), size, np.stack([se, se], axis=1)


NULLS = 10_000


@pytest.mark.parametrize(
    ("overall", "known", "spread"),
    [
        (0.3, 0.0, 0.5),
        (0.3, 0.06, 0.0),
        (0.03, 0.0, 0.5),
        (0.03, 0.5, 0.5),
        (0.03, 1.0, 0.0),
    ],
)
def test_nulls_have_few_small_pvalues_and_false_discoveries_are_rare(
    overall, known, spread
):
    rng = np.random.default_rng(int(100 * (spread + known + overall)))
    size = rng.integers(3, 200, NULLS)
    labelled = np.floor(known * size).astype(np.int64)
    options = {"spread": spread, "overall": overall}
    estimates = world(rng, np.full(NULLS, overall), size, labelled, **options)
    *_, p = find_anomalies(*estimates)
    assert (p[:, 1] < 0.05).mean() < 0.056  # 2.8 standard errors
    assert (p[:, 1] < 0.001).mean() < 0.0025
    assert (qvalues(p)[:, 1] <= 0.05).sum() <= 2


@pytest.mark.parametrize("sharpness", [0.6, 2.0])
def test_communities_with_twice_the_share_are_found(sharpness):
    """By the default estimator: labels of half of the members move the estimates."""
    rng = np.random.default_rng(5)
    own, each = np.arange(1000) < 100, 80
    classes = rng.random(80_000) < np.where(own, 0.6, 0.3).repeat(each)
    score = rng.normal(sharpness * (classes - 0.5), 1.0)
    f = expit(sharpness * score + logit(0.3))
    shown = np.arange(80_000) % 2 == 0
    nodes = make_nodes(
        np.stack([1 - f, f], axis=1), np.where(shown, classes, -1), [0.7, 0.3]
    )
    rows = np.flatnonzero(shown)
    reference = Reference(nodes.posteriors[rows], nodes.labels[rows], rows)
    nodes = replace(nodes, reference=reference)
    batch = make_communities(*np.arange(80_000).reshape(1000, each))
    groups = np.arange(80_000, dtype=np.int32) // 800
    auto = Auto(
        learnt=Learnt.of(nodes, groups),
        parts=fit_weights(label_evidence(batch, nodes)),
    )
    estimates = auto.estimate(batch, nodes)
    found = combine(batch, nodes, estimates, "count")
    *_, p = find_anomalies(found.prevalence, found.n_nodes, found.sd)
    flagged = qvalues(p)[:, 1] <= 0.05
    assert (flagged & ~own).sum() <= 0.08 * flagged.sum()
    # The binomial test of the labels alone finds 85.
    assert (flagged & own).sum() > 70


def test_pvalues_of_complete_labels_are_close_to_the_binomial_test():
    labelled = np.repeat([3, 10, 40, 400], 401)
    known = np.minimum(np.tile(np.arange(401), 4), labelled)
    for r in (0.02, 0.3, 0.5):
        # One community so large that the others have the share r.
        q = np.append(known / labelled, r)
        size = np.append(labelled, 10**9)
        *_, p = find_anomalies(
            np.stack([1 - q, q], axis=1), size, np.zeros((len(q), 2))
        )
        exact = binomial_pvalues(known, labelled, r)
        some = exact > 1e-4
        np.testing.assert_array_less(p[:-1, 1][some], 2.2 * exact[some] + 0.03)
        np.testing.assert_array_less(exact[some], 2.2 * p[:-1, 1][some] + 0.03)


def test_effects_are_of_the_mean_of_the_others():
    share = np.array([0.2, 0.5, 0.6, np.nan])
    n = np.array([10, 30, 60, 5])
    prevalence = np.stack([1 - share, share], axis=1)
    reference, _, pvalue = find_anomalies(prevalence, n, np.zeros((4, 2)))
    rest = (30 * 0.5 + 60 * 0.6) / 90
    assert reference[0] == pytest.approx([1 - rest, rest])
    assert np.isnan(pvalue[3]).all()
    np.testing.assert_allclose(pvalue[:3, 0], pvalue[:3, 1])


def test_intervals_of_effects_allow_for_the_reference():
    q = np.array([[0.34], [0.28]])
    view = SimpleNamespace(prevalence=q, lower=q - 0.04, upper=q + 0.04)
    view.se, view.about = np.full((2, 1), 0.0204), np.full(2, 2000)
    found = compare(view, 0.95)
    assert found["pvalue"].min() > 0.05
    # Each other's end would be .02 away from 0 if the reference were exact.
    assert (found["lower"] * found["upper"] < 0).all()


def test_effects_need_a_second_community():
    reference, _, pvalue = find_anomalies(
        np.array([[0.5, 0.5]]), np.array([9]), np.zeros((1, 2))
    )
    assert np.isnan(reference).all()
    assert np.isnan(pvalue).all()


def test_qvalues_are_over_all_classes_or_the_second_of_two():
    p = np.random.default_rng(7).random((200, 3)) ** 3
    p[:20] = np.nan
    expected = false_discovery_control(p[20:], axis=None).reshape(180, 3)
    np.testing.assert_array_equal(qvalues(p)[20:], expected)
    assert np.isnan(qvalues(p)[:20]).all()
    for column in qvalues(p[:, [1, 1]])[20:].T:
        np.testing.assert_array_equal(column, false_discovery_control(p[20:, 1]))


def test_unlabelled_members_alone_are_compared_where_labels_are_excluded():
    table = prevalence_table(np.arange(9), intervals=True)
    place = table.schema.get_field_index("n_nodes")
    half = table.set_column(place, "n_nodes", table["n_estimated"])
    found, alone = (
        results_of(rows, Settings(labelled="exclude")).tables["anomalies"]
        for rows in (table, half)
    )
    for name in ("community", "reference", "pvalue"):
        assert found[name].equals(alone[name])


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
        assert (row["prevalence"] is None) == nothing
        for name in ("effect", "pvalue", "qvalue", "anomalous"):
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
