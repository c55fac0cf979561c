"""The Bayesian comparison: the paper's own, repeatable, and absent with a word."""

from __future__ import annotations

import pytest

from tests.evaluation.fake_results import results, row
from xnq_dist.core.errors import SettingsError
from xnq_dist.evaluation import bayes
from xnq_dist.evaluation.paper_figures import BINARY, COMPARISON, ERRORS
from xnq_dist.evaluation.summary import summarise

DRAWS = 500


def test_paper_is_reproduced_from_its_means() -> None:
    made = bayes._check(DRAWS)
    compared = 0
    for group in made.groups:
        for cells in group.rows:
            if not cells[-1].beside:
                continue
            compared += 1
            if (cells[0].text, group.title) == (
                "CDQ",
                "Multi-class data sets, RAE with the rope of AE",
            ):
                continue  # the one row that no rope gives
            for cell in cells[3:]:
                assert float(cell.text) == pytest.approx(float(cell.beside), abs=0.04)
    assert compared == sum(len(rows) for rows in COMPARISON.values())


def test_draws_are_the_same_in_every_call() -> None:
    xnq, lr = ({d: ERRORS["ae"][m][d].mean for d in BINARY} for m in ("xnq", "lr"))
    first, second = (bayes.compare(xnq, lr, nsamples=200) for _ in range(2))
    assert first == second
    assert first.datasets == 5
    assert first.rope == pytest.approx(0.01152, abs=1e-5)
    assert first.worse + first.equal + first.better == pytest.approx(1)


def test_sides_keep_their_places() -> None:
    low = {"a": 0.1, "b": 0.11, "c": 0.12}
    high = {name: value + 1 for name, value in low.items()}
    assert bayes.compare(low, high, nsamples=200).better > 0.9
    assert bayes.compare(high, low, nsamples=200).worse > 0.9
    # Equal means leave no region of equality.
    flat = dict.fromkeys("abc", 0.25)
    assert bayes.compare(flat, high, nsamples=200).equal == 0


def test_a_comparison_needs_two_data_sets() -> None:
    with pytest.raises(SettingsError, match="at least two"):
        bayes.compare({"a": 0.1, "b": 0.2}, {"a": 0.1}, nsamples=10)
    table = results([row(0.1), row(0.2, method="lr")])
    ours, _ = bayes.comparison_tables(table, summarise(table), 10)
    assert not ours.groups
    assert ours.notes[-1] == (
        "Binary data sets: XNQ was measured on 1, a comparison needs two."
    )


def test_our_comparison_has_every_block() -> None:
    rows = [
        row(value * factor, method=m, dataset=d, quantifier=q, metric=metric)
        for d, value in (("cora-2", 0.1), ("tolokers", 0.2), ("flickr", 0.3))
        for m, q, factor in (("xnq", "sld", 1), ("xnq", "cc", 2), ("wvrn", "sld", 3))
        for metric in ("ae", "rae")
    ]
    table = results(rows)
    made = bayes._ours(table, summarise(table), 50)
    assert [group.title for group in made.groups] == [
        "Binary data sets, AE",
        "Binary data sets, RAE",
        "Binary data sets, RAE with the rope of AE",
        "Binary data sets, AE, XNQ with another quantifier",
        "All data sets, AE",
        "All data sets, RAE",
    ]
    first = made.groups[0].rows[0]
    assert [cell.text for cell in first[:3]] == ["wvRN", "2", "0.0707"]
    assert first[-1].beside == "0.990"
    assert made.groups[-1].rows[0][1].text == "3"


def test_without_baycomp_the_table_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bayes, "find_spec", lambda name: None)
    table = results([row(0.1)])
    (only,) = bayes.comparison_tables(table, summarise(table))
    assert not only.groups
    assert "pip install 'xnq-dist[evaluation]'" in only.notes[0]
    with pytest.raises(SettingsError, match="baycomp"):
        bayes.compare({"a": 1.0, "b": 2.0}, {"a": 1.0, "b": 2.0})
