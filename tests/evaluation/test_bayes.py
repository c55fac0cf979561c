"""The Bayesian comparison: the paper's values, repeatable, a note without baycomp."""

from __future__ import annotations

import pytest

from tests.evaluation.fake_results import results, row
from xnq_dist.core.errors import SettingsError
from xnq_dist.evaluation import bayes
from xnq_dist.evaluation.paper_figures import (
    BINARY,
    COMPARISON,
    ERRORS,
    MULTICLASS,
    QUANTIFIERS,
)
from xnq_dist.evaluation.summary import summarise

DRAWS = 500


def means(metric: str, datasets: tuple[str, ...]) -> dict[str, dict[str, float]]:
    """The paper's own, by method."""
    return {
        method: {name: row[name].mean for name in datasets if name in row}
        for method, row in ERRORS[metric].items()
    }


@pytest.mark.parametrize("place", COMPARISON, ids=" ".join)
def test_paper_is_reproduced_from_its_means(place: tuple[str, str]) -> None:
    kind, metric = place
    datasets = MULTICLASS if kind == "multi-class" else BINARY
    # The paper's values for RAE were computed with the rope of AE.
    rope = means("ae", datasets)["xnq"]
    errors = means(metric, datasets)
    if kind == "quantifier":
        errors |= {
            name: {d: row[d].mean for d in BINARY} for name, row in QUANTIFIERS.items()
        }
    for name, printed in COMPARISON[place].items():
        if (kind, metric, name) == ("multi-class", "rae", "cdq"):
            continue  # the only row that no rope reproduces
        found = bayes.compare(errors["xnq"], errors[name], rope, DRAWS)
        assert found[:3] == pytest.approx(printed, abs=0.04), name


def test_sides_keep_their_places() -> None:
    low = {"a": 0.1, "b": 0.11, "c": 0.12}
    high = {name: value + 1 for name, value in low.items()}
    assert bayes.compare(low, high, nsamples=200).better > 0.9
    assert bayes.compare(high, low, nsamples=200).worse > 0.9
    # With equal means the region of equivalence has width 0.
    flat = dict.fromkeys("abc", 0.25)
    assert bayes.compare(flat, high, nsamples=200).equal == 0


def test_a_comparison_needs_two_data_sets() -> None:
    with pytest.raises(SettingsError, match="needs two data sets"):
        bayes.compare({"a": 0.1, "b": 0.2}, {"a": 0.1}, nsamples=10)
    table = results([row(0.1), row(0.2, method="lr")])
    ours = bayes.comparison_table(table, summarise(table), 10)
    assert not ours.groups
    assert ours.notes[-1] == (
        "Binary data sets: XNQ has results on 1; a comparison needs two."
    )


def test_our_comparison_has_every_block() -> None:
    rows = [
        row(value * factor, method=m, dataset=d, quantifier=q, metric=metric)
        for d, value in (("cora-2", 0.1), ("tolokers", 0.2), ("flickr", 0.3))
        for m, q, factor in (("xnq", "sld", 1), ("xnq", "cc", 2), ("wvrn", "sld", 3))
        for metric in ("ae", "rae")
    ]
    table = results(rows)
    made = bayes.comparison_table(table, summarise(table), 50)
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
    assert first[-1].bracketed == "0.990"
    assert made.groups[-1].rows[0][1].text == "3"


def test_without_baycomp_the_table_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bayes, "find_spec", lambda name: None)
    table = results([row(0.1)])
    only = bayes.comparison_table(table, summarise(table))
    assert not only.groups
    assert "pip install 'xnq-dist[evaluation]'" in only.notes[0]
    with pytest.raises(SettingsError, match="baycomp"):
        bayes.compare({"a": 1.0, "b": 2.0}, {"a": 1.0, "b": 2.0})
