"""The paper's tables with our results."""

from __future__ import annotations

import pytest

from tests.evaluation.fake_results import both, estimates, results, row, table
from xnq_dist.evaluation.paper import paper_outputs, paper_tables
from xnq_dist.evaluation.rendered_table import Cell, RenderedTable
from xnq_dist.evaluation.summary import summarise


def tables(found) -> dict[str, RenderedTable]:
    return {made.name: made for made in paper_tables(found, summarise(found))}


def rows(made: RenderedTable) -> dict[str, tuple[Cell, ...]]:
    return {cells[0].text: cells for group in made.groups for cells in group.rows}


def exact(means, **other):
    """The same error in two folds."""
    return results(
        one
        for method, of in means.items()
        for dataset, value in of.items()
        for fold in (0, 1)
        for one in both(value, dataset=dataset, method=method, fold=fold, **other)
    )


@pytest.fixture(scope="module")
def errors():
    means = {
        "wvrn": {"cora-2": 0.040, "mine": 0.2},
        "enq": {"cora-2": 0.030},
        "xnq": {"cora-2": 0.015, "mine": 0.1},
        "xnq+": {"cora-2": 0.010, "mine": 0.1},
        "lbq": {"cora-2": 0.001},
    }
    return rows(tables(exact(means))["ae-binary"])


def test_best_and_second_best_are_marked(errors) -> None:
    # A method that estimates complete graphs is not ranked.
    assert errors["LBQ (graph level)"][1] == Cell("0.0010 ± 0.0000")
    marks = {name: [cell.mark for cell in errors[name][1:3]] for name in errors}
    assert marks["XNQ+"] == ["best", "best"]
    assert marks["XNQ"] == ["second", "best"]
    assert marks["wvRN"] == ["", "second"]
    assert marks["ENQ"] == ["", ""]


def test_published_figures_are_next_to_ours(errors) -> None:
    assert errors["XNQ"][1].bracketed == "0.015 ± 0.011"
    assert errors["XNQ"][2].bracketed == ""
    # Not evaluated here: an empty cell with the published value.
    assert errors["CDQ"][1] == Cell("-", "0.100 ± 0.045")
    assert errors["ENQ"][2] == Cell()


def test_changes_are_against_the_best_baseline_and_xnq(errors) -> None:
    own = errors["Change, XNQ against best baseline"]
    assert own[1:3] == (Cell("−50.0 %"), Cell("−50.0 %"))
    assert errors["Change, XNQ+ against best baseline"][1] == Cell("−66.7 %")
    assert errors["Change, XNQ+ against XNQ"][1] == Cell("−33.3 %")


def test_trained_networks_and_lr_are_baselines_listed_in_the_ablation() -> None:
    means = {"xnq": 0.02, "lr": 0.016, "gcn": 0.05, "wvrn-hard": 0.04}
    found = exact({name: {"cora-2": value} for name, value in means.items()})
    every = tables(found)
    table = every["ae-binary"]
    assert "LR" not in rows(table)
    assert rows(table)["Change, XNQ against best baseline"][1].text == "+25.0 %"
    assert any("LR and the trained networks" in note for note in table.notes)
    # Variants have the published figure of their method.
    assert rows(table)["wvRN hard"][1].bracketed == "0.037 ± 0.020"
    assert "wvRN" not in rows(table)
    assert [*rows(every["ablation-binary"])] == [
        *("LR", "GCN", "GAT", "GIN"),
        *("CC", "ACC", "PCC", "PACC", "HDy", "DyS", "XNQ"),
    ]
    assert rows(every["ablation-binary"])["GAT"][1] == Cell("-", "0.059 ± 0.023")


def test_ablation_has_other_quantifiers_of_xnq() -> None:
    found = results([*both(0.2), *both(0.3, quantifier="kdey_ml")])
    ablation = rows(tables(found)["ablation-binary"])
    assert ablation["KDEy-ML"][1] == Cell("0.3000", mark="second")
    assert ablation["XNQ"][1].mark == "best"
    assert ablation["CC"][1].text == "-"


def test_number_of_configurations_seconds_and_labels_are_listed() -> None:
    worse = [
        row(9.0, split="validation", draw=draw, selected=False, seconds=2.0)
        for draw in (1, 2, 3)
    ]
    few = both(0.3, share=0.02, seconds=4.0)
    every = tables(results([*worse, *both(0.1, seconds=6.0), *few]))
    assert [c.text for c in rows(every["ae-binary"])["XNQ"][-2:]] == ["sld", "4"]
    assert rows(every["cost"])["XNQ"][1].text == "3.20"
    shares = rows(every["label-shares"])
    assert [shares[name][1].text for name in ("100 %", "2 %")] == ["0.1000", "0.3000"]
    assert "label-shares" not in tables(results(few))
    assert "Cora-2: 2 % of the labels." in tables(results(few))["ae-binary"].notes


def test_folds_that_differ_are_noted() -> None:
    means = {"xnq": {"cora-2": 0.1}, "wvrn": {"cora-2": 0.1}}
    odd = [*exact(means).to_pylist(), *both(0.1, method="enq")]
    notes = tables(results(odd))["ae-binary"].notes
    assert "Folds: 0, 1." in notes
    assert "Only folds 0: ENQ on Cora-2." in notes


def test_names_are_printed_as_they_are_and_the_same_tables_give_the_same_bytes():
    name = "a&b_<c> $x_1$"
    found = results(both(0.1, dataset=name, method="my_<own>"))
    guesses = estimates([{"dataset": name, "method": "my_<own>", "estimate": 0.4}])
    files, text = paper_outputs(found, guesses, 20)
    assert "my_<own>" in text
    assert paper_outputs(found, guesses, 20) == (files, text)


def test_empty_results_have_tables() -> None:
    empty = (table(name, []) for name in ("results", "estimates"))
    files, _ = paper_outputs(*empty, 10)
    assert b"Seconds of a configuration" in files["tables/cost.md"]
