"""The paper's tables with our results: choice by validation, means, comparison."""

from __future__ import annotations

import pytest

from tests.evaluation.fake_results import both, estimates, results, row, table
from xnq_dist.evaluation import paper
from xnq_dist.evaluation.keep import RenderedTable, to_markdown
from xnq_dist.evaluation.paper import (
    COMPARISON,
    DATASETS,
    FIGURES,
    compare,
    fold_errors,
    paper_tables,
)


@pytest.fixture(autouse=True)
def few_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few draws of the Bayesian comparison."""
    monkeypatch.setattr(paper, "NSAMPLES", 20)


def tables(found, guesses=()) -> dict[str, RenderedTable]:
    return {made.name: made for made in paper_tables(found, estimates(guesses))}


def rows(made: RenderedTable) -> dict[str, list[str]]:
    return {name: list(texts) for (_, name), texts in made.rows.items()}


def exact(means, **other):
    """The same error in two folds."""
    return results(
        one
        for method, of in means.items()
        for dataset, value in of.items()
        for fold in (0, 1)
        for one in both(value, dataset=dataset, method=method, fold=fold, **other)
    )


def lr(quantifier: str, validation: float, test: float, fold: int = 0) -> list[dict]:
    """A quantifier of LR whose chosen draw is 1; draw 0 is worse."""
    common = {"method": "lr", "quantifier": quantifier, "fold": fold}
    return [
        row(9.0, split="validation", draw=0, selected=False, **common),
        row(validation, split="validation", draw=1, **common),
        row(test, draw=1, **common),
        row(7 * test, metric="rae", draw=1, **common),
    ]


def test_quantifier_is_chosen_by_the_validation_error() -> None:
    found = results(
        [
            *lr("pacc", 0.02, 0.30),
            *lr("acc", 0.03, 0.10),
            *lr("pacc", 0.05, 0.50, fold=1),
            *lr("acc", 0.04, 0.20, fold=1),
        ]
    )
    first, second = fold_errors(found)
    assert (first.quantifier, first.errors["ae"]) == ("pacc", 0.30)
    assert (second.quantifier, second.errors["ae"]) == ("acc", 0.20)
    cells = rows(tables(found)["ae-binary"])["lr"]
    # The mean, and the standard deviation with ddof 1: .0707 for .3 and .2.
    assert cells[0] == "**0.2500 ± 0.0707** (0.032 ± 0.023)"
    assert cells[1:] == ["pacc 1, acc 1", "2"]


def test_methods_take_the_quantifiers_of_the_paper() -> None:
    found = [*both(0.001, method="xnq+", quantifier="kdey_ml")]
    (choice,) = fold_errors(results([*found, *both(0.02, method="xnq+")]))
    assert choice.quantifier == "sld"
    # No allowed quantifier was evaluated: it is used instead.
    (other,) = fold_errors(results(found))
    assert other.quantifier == "kdey_ml"
    allowed = [
        *both(0.4, method="wvrn", quantifier="cc"),
        *both(0.3, method="wvrn", quantifier="kdey_ml"),
    ]
    (choice,) = fold_errors(results(allowed))
    assert choice.quantifier == "cc"


def test_ties_are_independent_of_the_order_of_rows() -> None:
    found = [*lr("sld", 0.1, 0.2), *lr("cc", 0.1, 0.3)]
    for order in (found, found[::-1]):
        (choice,) = fold_errors(results(order))
        assert choice.quantifier == "sld"


@pytest.fixture(scope="module")
def errors():
    means = {
        "wvrn": {"cora-2": 0.040, "mine": 0.2},
        "enq": {"cora-2": 0.030},
        "xnq": {"cora-2": 0.015, "mine": 0.1},
        "xnq+": {"cora-2": 0.010, "mine": 0.1},
    }
    return rows(tables(exact(means))["ae-binary"])


def test_best_of_each_data_set_is_marked_and_published_figures_are_in_brackets(errors):
    assert errors["xnq+"][:2] == ["**0.0100 ± 0.0000**", "**0.1000 ± 0.0000**"]
    assert errors["xnq"][0] == "0.0150 ± 0.0000 (0.015 ± 0.011)"
    assert errors["xnq"][1] == "**0.1000 ± 0.0000**"
    # Not evaluated here: an empty cell with the published value.
    assert errors["cdq"] == ["- (0.100 ± 0.045)", "-", "-", "-"]
    assert errors["enq"][1] == "-"
    assert [*errors][:4] == ["wvrn", "cdq", "enq", "xnq"]


def test_other_quantifiers_of_xnq_have_rows_after_the_methods() -> None:
    found = results([*both(0.2), *both(0.3, quantifier="kdey_ml")])
    made = tables(found)["ae-binary"].rows
    group = "xnq with another quantifier"
    assert made[group, "kdey_ml"][0] == "0.3000"
    assert made[group, "cc"][0] == "- (0.048 ± 0.011)"
    assert made["", "xnq"][0] == "**0.2000** (0.015 ± 0.011)"
    assert [name for of, name in made if of == group] == [
        *("cc", "acc", "pcc", "pacc", "hdy", "dys", "kdey_ml"),
    ]


def test_folds_and_shares_of_labels_are_listed() -> None:
    every = tables(results([*both(0.1), *both(0.3, share=0.02)]))
    assert list(every["ae-binary"].header[1:3]) == [
        *("cora-2", "cora-2, 2 % of the labels")
    ]
    assert rows(every["ae-binary"])["xnq"][:2] == [
        *("**0.1000** (0.015 ± 0.011)", "**0.3000**")
    ]
    odd = exact({"xnq": {"cora-2": 0.1}}).to_pylist()
    folds = rows(tables(results([*odd, *both(0.1, method="enq")]))["ae-binary"])
    assert [folds[name][-1] for name in ("xnq", "enq", "cdq")] == ["2", "1", "-"]


def test_kind_of_a_data_set_comes_from_its_number_of_classes() -> None:
    found = exact({"xnq": {"flickr": 0.1, "mine": 0.1}})
    many = [{"dataset": "flickr", "estimate": 0.5, "class": name} for name in "abc"]
    common = {"method": "xnq", "quantifier": "sld", "fold": 0, "label_share": 1.0}
    guesses = table(
        "estimates", [common | {"sample": 0, "true": 0.3} | m for m in many]
    )
    made = {one.name: one for one in paper_tables(found, guesses)}
    assert made["ae-multi-class"].header[1] == "flickr"
    assert made["ae-binary"].header[1] == "mine"


def test_the_same_tables_give_the_same_text() -> None:
    found = exact({"xnq": {"cora-2": 0.1, "a|b": 0.1}, "lr": {"cora-2": 0.2, "a|b": 1}})

    def text():
        return [to_markdown(one) for one in tables(found).values()]

    assert text() == text()
    empty = paper_tables(*(table(name, []) for name in ("results", "estimates")))
    assert [one.name for one in empty] == ["comparison"]


def test_published_figures_are_transcribed() -> None:
    assert len(DATASETS) == 8
    for metric in ("ae", "rae"):
        for method in ("wvrn", "cdq", "enq", "xnq"):
            assert all((metric, method, dataset) in FIGURES for dataset in DATASETS)
    assert FIGURES["ae", "dys", "tolokers"][0] == 0.032
    assert FIGURES["rae", "cdq", "amazon-ratings"] == (1.576, 0.360)
    wrong = {key for key, each in COMPARISON.items() if abs(sum(each) - 1) > 0.0015}
    # A misprint in the paper.
    assert wrong == {("binary", "acc")}


@pytest.mark.parametrize(("kind", "method"), COMPARISON)
def test_paper_is_reproduced_from_its_means(kind: str, method: str) -> None:
    datasets = DATASETS[5:] if kind == "multi-class" else DATASETS[:5]
    ours, theirs = (
        [FIGURES["ae", name, dataset][0] for dataset in datasets]
        for name in ("xnq", method)
    )
    _, found = compare(ours, theirs, 500)
    assert found == pytest.approx(COMPARISON[kind, method], abs=0.04)


def test_sides_keep_their_places() -> None:
    low, high = [0.1, 0.11, 0.12], [1.1, 1.11, 1.12]
    assert compare(low, high, 200)[1][2] > 0.9
    assert compare(high, low, 200)[1][0] > 0.9
    # With equal means the region of equivalence has width 0.
    assert compare([0.25] * 3, high, 200)[1][1] == 0


def test_our_comparison_has_every_kind_and_metric() -> None:
    found = results(
        [
            row(
                value * factor,
                method=m,
                dataset=d,
                quantifier=q,
                metric=metric,
                split=s,
            )
            for d, value in (("cora-2", 0.1), ("tolokers", 0.2), ("flickr", 0.3))
            for m, q, factor in (
                ("xnq", "sld", 1),
                ("xnq", "cc", 2),
                ("wvrn", "sld", 3),
            )
            for metric in ("ae", "rae")
            for s in ("validation", "test")
        ]
    )
    made = tables(found)["comparison"].rows
    assert {group for group, _ in made} == {
        "binary data sets, AE",
        "binary data sets, RAE",
    }
    first = made["binary data sets, AE", "wvrn"]
    assert first[:2] == ["3", "0.1000"]
    assert first[-1].endswith("(0.990)")
    assert ("binary data sets, AE", "cc") in made
    one_data_set = exact({"xnq": {"cora-2": 0.1}, "lr": {"cora-2": 0.2}})
    assert not tables(one_data_set)["comparison"].rows


def test_without_baycomp_the_table_says_what_to_install(monkeypatch) -> None:
    monkeypatch.setattr(paper, "find_spec", lambda name: None)
    only = tables(exact({"xnq": {"a": 0.1, "b": 0.2}, "lr": {"a": 0.1, "b": 0.2}}))
    assert not only["comparison"].rows
    assert "pip install 'xnq-dist[evaluation]'" in only["comparison"].note
