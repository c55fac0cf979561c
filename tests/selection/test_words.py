"""Sentences on how the labels were chosen."""

from __future__ import annotations

import pytest

from xnq_dist.selection.verdict import sentences


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
    assert "less than 2.3 times as likely to be labelled" in text
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
                "bot has 2.2 times",
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
            ["place", "class: class bot", "weights 0.5 and 0.5", "from few places"],
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
        assert f"is less than {said} times" in " ".join(sentences(found, 0.95))


def test_known_shares_are_named_as_the_source():
    found = labels(prior=True, alone=True)
    del found["verdict"]
    text = " ".join(sentences(found, 0.9))
    assert "labels.prior sets 17.0 %, and all estimates add up to it" in text


def test_too_few_nodes_are_named():
    assert "too few" in sentences({"drawn": "unknown", "answers": []}, 0.95)[0]
