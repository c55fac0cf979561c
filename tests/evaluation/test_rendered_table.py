"""Renderings of one table, and the paper's tables with our results."""

from __future__ import annotations

import html
import re
from html.parser import HTMLParser

import pytest

from tests.evaluation.fake_results import evaluation, results, row
from xnq_dist.core.errors import XnqError
from xnq_dist.evaluation.paper import paper_tables
from xnq_dist.evaluation.render import page
from xnq_dist.evaluation.rendered_table import (
    Cell,
    RenderedTable,
    RowGroup,
    to_markdown,
    to_text,
)
from xnq_dist.evaluation.summary import summarise

NASTY = r"a&b_<c> $x^2$ 100% #1 {~} \d |e| *f* [g] `h`"


def tables(found) -> dict[str, RenderedTable]:
    return {made.name: made for made in paper_tables(found, summarise(found))}


def rows(made: RenderedTable) -> dict[str, tuple[Cell, ...]]:
    return {cells[0].text: cells for group in made.groups for cells in group.rows}


class Cells(HTMLParser):
    """Text of every cell, row by row."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.append(tag)
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_data(self, data: str) -> None:
        if self.rows and self.rows[-1]:
            self.rows[-1][-1] += data.strip("\n")


def on_page(made: RenderedTable) -> str:
    """The table in the HTML page."""
    html = page("", "", (), (("a", "A", ""),), [made], {}).decode()
    return html[html.index("<table") : html.index("</table>")]


def test_renderings_agree() -> None:
    made = RenderedTable(
        "t",
        "Title",
        ("Method", "A", "B"),
        (
            RowGroup(((Cell("x"), Cell("1.5", "2.5", "best"), Cell()),)),
            RowGroup(
                ((Cell("y"), Cell("3.5", mark="second"), Cell("4.5", "5.5")),), "G"
            ),
        ),
        ("Note.",),
    )
    assert to_markdown(made) == (
        "**Title**\n\n| Method | A | B |\n| :--- | ---: | ---: |\n"
        "| x | **1.5** (2.5) | - |\n| *G* |  |  |\n"
        "| y | <ins>3.5</ins> | 4.5 (5.5) |\n\nNote.\n"
    )
    reader = Cells()
    reader.feed(on_page(made))
    assert reader.rows == [
        ["Method", "A", "B"],
        ["x", "1.5 (2.5)", "-"],
        ["G"],
        ["y", "3.5", "4.5 (5.5)"],
    ]
    assert "<strong>1.5</strong>" in on_page(made)
    assert "<u>3.5</u>" in on_page(made)
    assert to_text(made).splitlines() == [
        *("Title", "Method    A    B", "x       1.5    -", "G"),
        "y       3.5  4.5",
    ]


def test_names_are_escaped_in_every_format() -> None:
    made = RenderedTable(
        "t", NASTY, (NASTY, "A"), (RowGroup(((Cell(NASTY), Cell()),), NASTY),)
    )
    reader = Cells()
    reader.feed(on_page(made))
    assert {*reader.tags} <= {"table", "caption", "thead", "tbody", "tr", "th", "td"}
    assert [cells[0] for cells in reader.rows] == [NASTY] * 3
    markdown = to_markdown(made)
    for line in markdown.split("\n")[2:]:
        if line:
            assert len(re.findall(r"(?<!\\)\|", line)) == 3
    shown = re.sub(r"\\(.)", r"\1", html.unescape(markdown.split("\n")[2]))
    assert shown == f"| {NASTY} | A |"


def test_rows_with_line_breaks_and_control_characters_stay_one_line() -> None:
    made = RenderedTable(
        "t", "t", ("a", "b"), (RowGroup(((Cell("x\n| y\x00"), Cell("1")),)),)
    )
    assert "| x \\| y\ufffd | 1 |" in to_markdown(made)


def test_ragged_tables_are_refused() -> None:
    with pytest.raises(XnqError, match="same number"):
        RenderedTable("t", "t", ("a", "b"), (RowGroup(((Cell("x"),),)),))


MEANS = {
    "wvrn": {"cora-2": 0.040, "mine": 0.2},
    "enq": {"cora-2": 0.030},
    "xnq": {"cora-2": 0.015, "mine": 0.1},
    "xnq+": {"cora-2": 0.010, "mine": 0.1},
    "lbq": {"cora-2": 0.001},
}


def exact(means) -> list[dict]:
    """The same error in two folds."""
    return [
        row(value, dataset=dataset, method=method, fold=fold, split=split)
        for method, of in means.items()
        for dataset, value in of.items()
        for fold in (0, 1)
        for split in ("validation", "test")
    ]


def test_best_and_second_best_are_marked() -> None:
    found = rows(tables(results(exact(MEANS)))["ae-binary"])
    # A method that estimates complete graphs is not ranked.
    assert found["LBQ (graph level)"][1] == Cell("0.0010 ± 0.0000")
    marks = {name: [cell.mark for cell in found[name][1:3]] for name in found}
    assert marks["XNQ+"] == ["best", "best"]
    assert marks["XNQ"] == ["second", "best"]
    assert marks["wvRN"] == ["", "second"]
    assert marks["ENQ"] == ["", ""]


def test_published_figures_are_next_to_ours() -> None:
    found = rows(tables(results(exact(MEANS)))["ae-binary"])
    assert found["XNQ"][1].bracketed == "0.015 ± 0.011"
    assert found["XNQ"][2].bracketed == ""
    # Not evaluated here: an empty cell with the published value.
    assert found["CDQ"][1] == Cell("-", "0.100 ± 0.045")
    assert found["ENQ"][2] == Cell()


def test_changes_are_against_the_best_baseline_and_xnq() -> None:
    found = rows(tables(results(exact(MEANS)))["ae-binary"])
    own = found["Change, XNQ against best baseline"]
    assert own[1:3] == (Cell("−50.0 %"), Cell("−50.0 %"))
    assert found["Change, XNQ+ against best baseline"][1] == Cell("−66.7 %")
    assert found["Change, XNQ+ against XNQ"][1] == Cell("−33.3 %")


def test_trained_networks_and_lr_are_baselines() -> None:
    means = {
        "xnq": {"cora-2": 0.02},
        "lr": {"cora-2": 0.016},
        "gcn": {"cora-2": 0.05},
        "wvrn": {"cora-2": 0.04},
    }
    table = tables(results(exact(means)))["ae-binary"]
    found = rows(table)
    assert "LR" not in found
    assert found["Change, XNQ against best baseline"][1].text == "+25.0 %"
    assert any("LR and the trained networks" in note for note in table.notes)


def test_variants_keep_their_published_figure() -> None:
    means = {
        "xnq-dense": {"cora-2": 0.02},
        "xnq-sparse": {"cora-2": 0.01},
        "gcn-deep": {"cora-2": 0.05},
        "enq": {"cora-2": 0.04},
    }
    every = tables(results(exact(means)))
    found = rows(every["ae-binary"])
    assert [*found] == [
        *("wvRN", "CDQ", "ENQ", "XNQ dense", "XNQ sparse"),
        "Change, XNQ dense against best baseline",
        "Change, XNQ sparse against best baseline",
        "Change, XNQ sparse against XNQ dense",
    ]
    assert found["XNQ sparse"][1].bracketed == "0.015 ± 0.011"
    assert found["Change, XNQ sparse against best baseline"][1] == Cell("−75.0 %")
    assert found["Change, XNQ sparse against XNQ dense"][1] == Cell("−50.0 %")
    ablation = rows(every["ablation-binary"])
    assert [*ablation][:4] == ["LR", "GCN deep", "GAT", "GIN"]
    assert ablation["XNQ dense"][1].text == "0.0200 ± 0.0000"


def test_number_of_configurations_and_winner_are_listed() -> None:
    soft = ("cc", "acc", "pcc", "pacc", "sld")
    made = evaluation(
        {"xnq": {"cora-2": 0.02}, "lr": {"cora-2": 0.03}}, {"lr": soft}, draws=4
    )
    every = tables(made[0])
    assert [c.text for c in rows(every["ae-binary"])["XNQ"][-2:]] == ["sld", "4"]
    assert float(rows(every["cost"])["XNQ"][1].text) > 0


def test_ablation_has_every_row() -> None:
    made = evaluation(
        {"xnq": {"cora-2": 0.02}, "lr": {"cora-2": 0.03}}, {"xnq": ("sld", "kdey_ml")}
    )[0]
    found = rows(tables(made)["ablation-binary"])
    assert [*found] == [
        *("LR", "GCN", "GAT", "GIN"),
        *("CC", "ACC", "PCC", "PACC", "HDy", "DyS", "KDEy-ML", "XNQ"),
    ]
    assert found["LR"][1].text != "-"
    assert found["KDEy-ML"][1].text != "-"
    assert found["GCN"][1] == Cell("-", "0.071 ± 0.034")
    assert found["XNQ"][1].mark == "best"


def test_few_labels_have_a_table() -> None:
    several = results([*exact({"xnq": {"cora-2": 0.1}}), row(0.3, share=0.02)])
    found = rows(tables(several)["label-shares"])
    assert found["100 %"][1].text == "0.1000 ± 0.0000"
    assert found["2 %"][1].text == "0.3000"
    assert "label-shares" not in tables(results(exact(MEANS)))


def test_folds_and_quantifiers_that_differ_are_noted() -> None:
    odd = [
        *exact({"xnq": {"cora-2": 0.1}, "wvrn": {"cora-2": 0.1}}),
        row(0.1, method="enq", quantifier="kdey_ml"),
    ]
    notes = " ".join(tables(results(odd))["ae-binary"].notes)
    assert "Folds: 0, 1." in notes
    assert "Only folds 0: ENQ on Cora-2." in notes
    assert "ENQ: none of the paper's quantifiers" in notes
    half = tables(results([row(0.1, share=0.5)]))["ae-binary"]
    assert "Cora-2: 50 % of the labels." in half.notes
