"""The report page: escaped names, self-contained, sections for what there is."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.report.fake_run import NASTY, earlier_of, prevalence_table, results_of
from tests.selection.test_verdict import labels
from xnq_dist.core.config import load_settings
from xnq_dist.core.settings import Settings
from xnq_dist.report.page import page
from xnq_dist.report.page_data import Page
from xnq_dist.steps.view import PrevalenceView


class Reader(HTMLParser):
    """Collects tags and text; `open_tags` is empty if every tag was closed."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.open_tags: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in ("meta", "link", "br", "img", "input"):
            self.open_tags.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        assert self.open_tags.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def read(html: str) -> Reader:
    reader = Reader()
    reader.feed(html)
    reader.close()
    assert not reader.open_tags
    return reader


def made(table: pa.Table, settings: Settings | None = None, **facts: Any) -> str:
    return page(Page(results_of(table, settings, **facts)))


def text_of(*args: Any, **facts: Any) -> str:
    """The page's text with single spaces."""
    return " ".join(read(made(*args, **facts)).text.split())


def changed_columns(table: pa.Table, **columns: Any) -> pa.Table:
    for name, values in columns.items():
        at = table.schema.get_field_index(name)
        table = table.set_column(at, name, pa.array(values))
    return table


def test_how_labels_were_chosen_comes_first() -> None:
    quantify = {"labels": labels(verdict="class", alone=True)}
    html = made(prevalence_table(["a", "b"]), quantify=quantify)
    text = read(html).text
    said = text.index("The labelled nodes were chosen by class")
    assert text.index("How the labels were chosen") < said
    assert said < text.index("An untrained graph reservoir")
    other = load_settings(overrides=["quantifier=sld"])
    html = made(prevalence_table(["a", "b"]), other, quantify=quantify)
    assert "How the labels were chosen" not in html


def test_names_are_escaped() -> None:
    html = made(prevalence_table(NASTY, classes=("<i>person</i>", '"bot" & $co_2$')))
    reader = read(html)
    # The data and the page's own script.
    assert reader.tags.count("script") == 2
    assert "i" not in reader.tags
    for name in ("<script>alert(1)</script>", "$x_1$ and $\\frac{1}{2}$", "_hidden"):
        assert name in reader.text
    assert '"bot" & $co_2$' in reader.text
    assert "line break and \ufffdbell" in reader.text
    assert "日本語 ページ 🙂" in reader.text


def test_page_is_self_contained() -> None:
    html = made(prevalence_table(["a", "b"]))
    reader = read(html)
    assert not {"link", "img", "iframe", "image"} & {*reader.tags}
    for name, value in reader.attributes:
        if name in ("href", "xlink:href", "src"):
            assert value is not None
            assert value.startswith("#")
        assert name != "style"
        assert not name.startswith("on")
    assert "@import" not in html
    assert "url(" not in html


@pytest.mark.parametrize("intervals", [True, False])
@pytest.mark.parametrize("classes", [("person", "bot"), tuple("abcde")])
def test_the_first_screen_has_fewer_than_eighty_words(
    classes: tuple[str, ...], intervals: bool
) -> None:
    table = prevalence_table([f"a page, number {k}" for k in range(40)], classes)
    if intervals:
        table = with_warnings(table)
    for lower in (-0.1, 0.3):
        readout = {"skill": {"value": 0.4, "lower": lower, "upper": 0.5}}
        html = made(table, readout=readout)
        first = read(html.partition("<body>")[2].partition("<nav")[0]).text
        assert 20 < len(first.split()) < 80


def test_a_page_of_many_communities_shows_the_first_ones_without_scripts() -> None:
    table = prevalence_table(np.arange(3000), tuple("abcdefghij"))
    reader, text = read(made(table)), text_of(table)
    assert "This table shows the first 25 of 3,000 communities" in text
    assert "prevalence.parquet" in text
    assert reader.tags.count("tr") < 200


def test_suppressed_communities_keep_their_name_and_size_alone() -> None:
    table = changed_columns(
        with_warnings(prevalence_table(["small", "large", "third"])),
        quality=[*["suppressed"] * 2, *["caution"] * 4],
        note=[*["a secret"] * 2, *[None] * 4],
    )
    text = text_of(table)
    assert "1 is suppressed" in text
    assert "smallsuppressed" in text
    assert "a secret" not in text
    share = f"{100 * table['prevalence'][1].as_py():.1f}"
    assert f"{share} %" not in text


def with_warnings(table: pa.Table) -> pa.Table:
    """Intervals, and one community in a hundred with a note."""
    rows = np.arange(table.num_rows) // 2
    share = table["prevalence"].to_numpy()
    half = 1 / np.sqrt(table["n_nodes"].to_numpy() + 3)
    return changed_columns(
        table,
        lower=np.clip(share - half, 0, 1),
        upper=np.clip(share + half, 0, 1),
        se=half / 1.96,
        note=np.where(rows % 100 == 7, "a note", None),
    )


def order_of(table: pa.Table) -> list[str]:
    view = PrevalenceView(table)
    return [view.name(k) for k in view.ranked]


def test_larger_communities_lead_without_intervals() -> None:
    table = changed_columns(
        prevalence_table(["single", "large", "none", "low"]),
        prevalence=[0.0, 1.0, 0.2, 0.8, None, None, 0.9, 0.1],
        n_nodes=[1, 1, 400, 400, 5, 5, 400, 400],
    )
    assert order_of(table) == ["large", "single", "low", "none"]


def test_the_order_is_by_the_lower_end_of_the_interval() -> None:
    table = changed_columns(
        prevalence_table(["wide", "narrow", "none"], intervals=True),
        prevalence=[0.1, 0.9, 0.3, 0.7, 0.0, 1.0],
        lower=[0.0, 0.2, 0.2, 0.6, None, None],
    )
    assert order_of(table) == ["narrow", "wide", "none"]


def test_settings_are_printed_as_they_are_typed() -> None:
    settings = load_settings(overrides=["report.community=[county, counties]"])
    body = made(prevalence_table(["a"]), settings).partition("Settings (seed 0)")[2]
    assert "  community:\n  - county\n  - counties\n" in body.partition("</pre>")[0]
    assert "numpy:" in body


def test_small_faults_are_reported() -> None:
    table = prevalence_table(["a", "b", "c", "not there"])
    table = changed_columns(table, note=[*["all labelled"] * 2, *[None] * 6])
    quantify = {"unknown_dropped": 3, "not_converged": 1}
    text = text_of(table, quantify=quantify)
    assert "1 of 4 communities did not converge" in text
    assert "17 duplicate edges were dropped" in text
    assert "3 memberships were dropped" in text
    assert "all labelled" in text


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("quantifier=auto", "without labels uses only the features and links"),
        ("memberships.drawn=by_class", "samples drawn by class, and SLD is used"),
        ("quantifier=sld", "mean absolute error was .214, against .060"),
        ("quantifier=pacc", "This correction assumes"),
        ("quantifier=nacc", "how often each pair was seen"),
        ("quantifier=hdy", "nearest to the community"),
        ("quantifier=pcc", "biased towards the class proportions"),
        ("labelled=exclude", "among the unlabelled members only"),
        ("method=xnq+", "a second model combined them with the labels"),
        ("method=xnq", "into scores (xnq) and gave posteriors"),
    ],
)
def test_limits_of_a_method_are_stated(override: str, said: str) -> None:
    settings = load_settings(overrides=[override])
    assert said in text_of(prevalence_table(["a"]), settings)


def test_intervals_are_shown_where_they_were_computed() -> None:
    with_them = read(made(prevalence_table(["a", "b"], intervals=True))).text
    without = read(made(prevalence_table(["a", "b"]))).text
    assert "interval" in with_them
    assert "No intervals were computed" not in with_them
    assert "No intervals were computed" in without


def test_unknown_prevalences_have_a_page() -> None:
    unknown = pa.nulls(2, pa.float64())
    nothing = made(changed_columns(prevalence_table(["a"]), prevalence=unknown))
    assert "1 community without prevalence" in nothing


def clear_cut(difference: float) -> pa.Table:
    """Forty communities of 200, two of which stand out."""
    share = np.full(40, 0.3)
    share[[3, 7]] += difference
    both = np.stack([1 - share, share], axis=1).ravel()
    return changed_columns(
        prevalence_table(np.arange(40), intervals=True),
        n_nodes=np.full(80, 200),
        prevalence=both,
        lower=both - 0.02,
        upper=both + 0.02,
    )


def test_communities_beyond_chance_are_named() -> None:
    some = text_of(clear_cut(0.4))
    assert "2 of 40 communities differ in class" in some
    assert "from the others together" in some
    assert "None of 40 communities differs in class" in text_of(clear_cut(0.0))
    assert "Beyond chance" not in text_of(prevalence_table(["a", "b"]))


@pytest.mark.parametrize("lower", [-0.02, 0.02])
def test_skill_of_the_posteriors_is_reported(lower: float) -> None:
    readout = {"skill": {"value": 0.05, "lower": lower, "upper": 0.12}}
    text = text_of(prevalence_table(["a", "b"]), readout=readout)
    ends = f"{100 * lower:+.1f} to +12.0 %"
    assert f"compared with the class shares alone ({ends})" in text
    warned = "The model is no better than the class shares of the labels" in text
    assert warned == (lower < 0)


@pytest.mark.parametrize("lower", [-0.02, 0.02])
def test_the_page_says_how_much_error_the_scores_removed(lower: float) -> None:
    gain = {"value": 0.05, "lower": lower, "upper": 0.12}
    readout = {"scores": {"columns": ["vendor", "<b>llm</b>"], "gain": gain}}
    text = text_of(prevalence_table(["a", "b"]), readout=readout)
    assert "The scores (vendor, <b>llm</b>)" in text
    ends = f"({100 * lower:+.1f} to +12.0 %)"
    assert "reduce the log-loss by 5.0 %" in text
    assert ends in text
    assert ("do not help measurably" in text) == (lower < 0)
    assert "The scores" not in text_of(prevalence_table(["a", "b"]))


def test_the_page_says_how_much_communities_differ_beyond_their_posteriors() -> None:
    pooled = {"communities": 3, "spread": 1.2, "weights": []}
    text = text_of(prevalence_table(["a", "b", "c"]), quantify={"pooled": pooled})
    assert "By the labels of 3 communities" in text
    assert "by 1.20 (standard deviation)" in text


def test_changes_are_explained() -> None:
    then = clear_cut(0.0).slice(2)
    text = text_of(clear_cut(0.4), earlier=earlier_of(then))
    assert "this run directory, made 2026-01-01: 39 communities are in both" in text
    assert "1 is new" in text
    assert "changed in 2 of 39 compared communities (2 up, 0 down)" in text
    other = earlier_of(then, Settings(columns={"label": "<i>spam</i>"}))
    text = text_of(clear_cut(0.4), earlier=other)
    assert "Not compared: the results before had columns.label = <i>spam</i>" in text
