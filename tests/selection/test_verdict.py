"""Tests of how labels were chosen on simulated labels, and sentences on them."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from scipy.stats import chi2

from tests.selection.simulated import draw_world, label, rows_of, sizes
from xnq_dist.selection.model import fit_model, plain_terms
from xnq_dist.selection.verdict import _pvalue, _single_pvalues, judge, sentences


def verdicts(count: int, odds_of, n: int = 2000, n_classes: int = 2, rate: float = 0.2):
    found = []
    for seed in range(count):
        world = draw_world(seed, n, n_classes)
        rows = rows_of(world, label(world, odds_of(world), rate))
        found.append(judge(rows, sizes(rows)))
    return found


def share(found, names) -> float:
    return float(np.mean([one.verdict in names for one in found]))


@pytest.mark.parametrize("n_classes", [2, 3])
def test_random_labels_keep_the_verdict_none(n_classes):
    found = verdicts(40, lambda world: np.ones(2000), n_classes=n_classes)
    assert share(found, ["none"]) >= 0.95
    pvalues = np.array([one.pvalue for one in found])
    assert 0.3 < pvalues.mean() < 0.8
    assert np.median([one.probability for one in found]) < 0.2


def test_bias_by_class_is_detected_and_measured():
    def odds(world):
        return np.where(world.classes == 2, 5.0, 1.0)

    found = verdicts(10, odds, n_classes=3)
    assert share(found, ["class"]) >= 0.9
    ratio = [one.bias[-1] - one.bias[:-1].mean() for one in found]
    assert np.mean(ratio) == pytest.approx(np.log(5), abs=0.35)
    assert np.mean([one.probability for one in found]) > 0.9


def test_labels_in_half_of_the_groups_are_selection_by_place():
    found = verdicts(10, lambda world: np.where(world.groups % 2, 1.0, 1e-3))
    assert share(found, ["place"]) >= 0.95


def test_labels_of_high_degree_are_selection_by_place():
    found = verdicts(
        10, lambda world: np.where(world.degree > np.median(world.degree), 1.0, 1e-3)
    )
    assert share(found, ["place"]) == 1


def test_power_follows_the_detectable_factor():
    """A bias of that factor is found in some 86 of 100 cases, half of it seldom."""
    world = draw_world(0, 2000)
    rows = rows_of(world, label(world, np.ones(2000)))
    factor = float(judge(rows, sizes(rows)).factors[1])
    for power, low, high in ((1.0, 0.7, 1.0), (0.4, 0.0, 0.45)):
        strong = factor**power
        found = verdicts(20, lambda w, s=strong: np.where(w.classes == 1, s, 1.0))
        hit = np.mean([one.pvalue < 0.01 for one in found])
        assert low <= hit <= high


def test_score_tests_agree_with_likelihood_ratios():
    world = draw_world(5, 3000)
    odds = np.where(world.classes == 1, 1.5, 1.0)
    rows = rows_of(world, label(world, odds))
    terms = plain_terms(rows.folds)
    null = fit_model(rows, terms, None)
    ratio = _pvalue(rows, terms, null)
    single = _single_pvalues(rows, terms, null)
    assert single[0] == pytest.approx(single[1], rel=1e-2)
    values = chi2.isf([ratio, single[0]], 1)
    assert values[0] == pytest.approx(values[1], rel=0.15)


def test_renaming_classes_keeps_the_verdict():
    world = draw_world(6, 2000, 3)
    odds = np.where(world.classes == 2, 3.0, 1.0)
    rows = rows_of(world, label(world, odds))
    order = np.array([2, 0, 1])
    labels = np.where(rows.labels >= 0, np.argsort(order)[rows.labels], -1)
    renamed = dataclasses.replace(
        rows, posteriors=rows.posteriors[:, order], labels=labels.astype(np.int32)
    )
    one, two = judge(rows, sizes(rows)), judge(renamed, sizes(rows))
    assert two.verdict == one.verdict
    assert two.pvalue == pytest.approx(one.pvalue, rel=1e-3)
    assert two.probability == pytest.approx(one.probability, rel=1e-3)
    np.testing.assert_allclose(two.bias, one.bias[order], atol=1e-5)
    np.testing.assert_allclose(two.factors, one.factors[order])


@pytest.mark.parametrize("strong", [1.0, 3.0])
def test_equal_counts_are_evidence_where_classes_are_unequal(strong):
    """As many labels of each class, where one class is rarer or where it is not."""
    rng = np.random.default_rng(7)
    world = draw_world(7, 4000, 2, sharp=0.9)
    p = world.posteriors[:, 1]
    if strong == 1.0:
        p = 1 / (1 + np.exp(-rng.normal(0, 0.8, 4000)))
    classes = (rng.random(4000) < p).astype(np.int32)
    world = dataclasses.replace(
        world, posteriors=np.stack([1 - p, p], axis=1), classes=classes
    )
    labels = np.full(4000, -1, np.int32)
    for code in (0, 1):
        chosen = rng.choice(np.flatnonzero(classes == code), 60, replace=False)
        labels[chosen] = code
    rows = rows_of(world, labels)
    found = judge(rows, sizes(rows))
    assert found.by_class == (strong > 1)


def test_verdicts_need_two_classes_and_unlabelled_nodes():
    world = draw_world(8, 200)
    rows = rows_of(world, label(world, np.ones(200)))
    assert judge(dataclasses.replace(rows, labels=world.classes), (200, 0)) is None
    one = np.where(rows.labels == 1, 1, -1).astype(np.int32)
    assert judge(dataclasses.replace(rows, labels=one), sizes(rows)) is None


def test_labels_that_follow_degree_weakly_are_rarely_counted_as_bias_by_class():
    """Degree goes with the class here, so a model without degree sees a bias."""
    found = []
    for seed in range(12):
        world = draw_world(seed, n=4000)
        scores = np.log(world.posteriors[:, 1] / world.posteriors[:, 0])
        degree = np.ceil(
            np.exp(2 + scores / scores.std() + world.rng.normal(0, 1, 4000))
        )
        world = dataclasses.replace(world, degree=degree)
        odds = np.exp(0.3 * np.log(degree) / np.log(degree).std())
        rows = rows_of(world, label(world, odds))
        found.append(judge(rows, sizes(rows)))
    doubted = [each for each in found if each.pvalue < 0.01]
    assert len(doubted) >= 4
    assert share(doubted, ("none", "place")) >= 0.9
    assert np.mean([each.probability for each in doubted]) < 0.3


def labels(**changes):
    answer = {
        "class": "bot",
        "bias": 0.4,
        "factor": 2.2,
        "detectable": 2.345,
        "answer": [0.153, 0.09, 0.31],
        "if_random": [0.148, 0.13, 0.17],
        "if_by_class": [0.17, 0.09, 0.31],
    }
    other = {**answer, "class": "person", "bias": -0.4, "factor": 0.45}
    return {
        "drawn": "unknown",
        "prior": False,
        "verdict": "none",
        "pvalue": 0.3111,
        "exchangeable": True,
        "tilted": 0.2,
        "alone": False,
        "answers": [other, answer],
    } | changes


def test_verdict_none_reports_what_may_be_undetected_and_what_to_do():
    text = " ".join(sentences(labels(), 0.95))
    assert text.startswith("Nothing shows that the labelled nodes were chosen by class")
    assert "p = 0.31" in text
    assert "less than 2.3 times as high in class bot" in text
    assert "14.8 % (13.0-17.0 %) if the labels are a random sample" in text
    assert "17.0 % (9.0-31.0 %) if they were chosen by class (95 % intervals)" in text
    assert "weights 0.8 and 0.2, 15.3 % (9.0-31.0 %)" in text
    assert "labels.drawn = random: the interval for all nodes narrows" in text
    assert "from 22.0 to 4.0 points" in text


@pytest.mark.parametrize(
    ("changes", "said", "unsaid"),
    [
        (
            {"verdict": "class", "alone": True, "pvalue": 1e-9},
            [
                "chosen by class (p = less than 0.0001)",
                "2.2 times as high in class bot",
                "labels.prior",
            ],
            ["unnoticed", "narrows"],
        ),
        (
            {"verdict": "place", "tilted": 0.0},
            ["place in the graph", "the first is reported, and every", "by_place"],
            ["narrows", "weights"],
        ),
        (
            {"verdict": "both", "tilted": 0.5},
            ["place", "class: the odds", "weights 0.5 and 0.5", "from few places"],
            ["narrows", "corrected for it"],
        ),
        (
            {"drawn": "random", "verdict": "class"},
            ["contradicts labels.drawn = random"],
            ["narrows"],
        ),
        ({"drawn": "random"}, ["Nothing shows"], ["narrows", "contradicts"]),
        ({"drawn": "by_place", "verdict": "both"}, ["contradicts"], ["narrows"]),
        ({"exchangeable": False}, ["tests are approximate"], []),
    ],
)
def test_each_verdict_has_its_advice(changes, said, unsaid):
    text = " ".join(sentences(labels(**changes), 0.95))
    for part in said:
        assert part in text
    for part in unsaid:
        assert part not in text


def test_weak_labels_are_named():
    found = labels()
    found["answers"][-1]["detectable"] = None
    assert "too weak to show even a strong choice" in " ".join(sentences(found, 0.95))


def test_a_factor_of_very_many_labels_stays_above_one():
    found = labels()
    for factor, said in ((1.0127, "1.013"), (1.00002, "1.001"), (1.1, "1.1")):
        found["answers"][-1]["detectable"] = factor
        assert f"are less than {said} times" in " ".join(sentences(found, 0.95))


def test_known_shares_are_named_as_the_source():
    found = labels(prior=True, alone=True)
    del found["verdict"]
    text = " ".join(sentences(found, 0.9))
    assert "labels.prior sets 17.0 %, and all estimates add up to it" in text


def test_too_few_nodes_are_named():
    assert "too few" in sentences({"drawn": "unknown", "answers": []}, 0.95)[0]
