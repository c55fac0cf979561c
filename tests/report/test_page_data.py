"""The page's data: what the script decodes is the view, and sizes stay bounded."""

from __future__ import annotations

import base64
import gzip
import json
from typing import Any

import hypothesis
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.report.fake_run import NASTY, prevalence_table, results_of
from tests.report.test_page import changed_columns, with_warnings
from xnq_dist.core.config import load_settings
from xnq_dist.report.page import page
from xnq_dist.report.page_data import Page
from xnq_dist.report.wording import probability
from xnq_dist.steps.view import QUALITIES


def unpacked(text: str) -> dict[str, Any]:
    columns: dict[str, Any] = json.loads(gzip.decompress(base64.b64decode(text)))
    return columns


def decoded(text: str) -> dict[str, Any]:
    """The page's data as its script reads them."""
    whole: dict[str, Any] = json.loads(text)
    whole |= unpacked(whole["rows"])
    for one in whole["classes"]:
        one |= unpacked(one["data"])
    return whole


@hypothesis.settings(max_examples=30)
@given(
    seed=st.integers(0, 1000),
    count=st.integers(1, 40),
    width=st.integers(1, 4),
    intervals=st.booleans(),
)
def test_decoded_data_are_the_view(
    seed: int, count: int, width: int, intervals: bool
) -> None:
    names = [NASTY[k % len(NASTY)] + str(k) for k in range(count)]
    table = prevalence_table(names, tuple("abcd"[:width]), intervals, seed)
    shown = Page(results_of(table))
    view, data = shown.view, decoded(shown.data())
    order = view.ranked
    assert data["names"] == [view.name(k) for k in order.tolist()]
    assert np.array_equal(data["members"], view.n_nodes[order])
    assert np.array_equal(data["labelled"], view.n_labelled[order])
    assert {one["name"] for one in data["classes"]} == set(view.classes)
    assert data["classes"][0]["name"] == view.classes[-1]
    for one in data["classes"]:
        c = view.classes.index(one["name"])
        ends = {"p": view.prevalence, "lower": view.lower, "upper": view.upper}
        for name, values in ends.items():
            steps, expected = np.array(one[name], float), values[order, c]
            known = ~np.isnan(steps)
            assert np.array_equal(known, ~np.isnan(expected))
            assert np.allclose(steps[known] / 1e4, expected[known], atol=1.01e-4)
            # As printed with one decimal.
            assert np.array_equal(
                np.rint(steps[known] / 10), np.rint(1e3 * expected[known])
            )
        assert np.array_equal(one["quality"], view.quality[order, c])
        q = shown.compared["qvalue"][order, c]
        assert np.array_equal(one["beyond"], q <= 0.05)
        assert np.isnan(q).all() != intervals or count == 1
        assert one["q"] == [probability(value) for value in q]


def test_the_plot_of_share_and_size_counts_the_members_that_shares_are_of() -> None:
    table = prevalence_table("abcdef", intervals=True)
    every = decoded(Page(results_of(table)).data())
    settings = load_settings(overrides=["labelled=exclude"])
    shown = Page(results_of(table, settings=settings))
    data = decoded(shown.data())
    counted = np.array(data["counted"])
    assert np.array_equal(counted, np.subtract(data["members"], data["labelled"]))
    assert every["counted"] == every["members"]
    assert (every["sized"], data["sized"]) == ("members", "unlabelled members")
    assert data["sizes"][0] == pytest.approx(counted.min() / 1.3, abs=1e-3)
    errors = shown.view.se[:, -1] ** 2 * shown.view.about
    r = data["classes"][0]["reference"]
    half = 1.959964 * np.sqrt((r * (1 - r) + np.median(errors)) / data["sizes"][0])
    assert data["classes"][0]["limits"][0][0] == pytest.approx(half, abs=1e-4)


def test_texts_stay_inside_the_script_element() -> None:
    table = prevalence_table(["</script><script>alert(1)</script>"], ("<!--", "b"))
    assert "<" not in Page(results_of(table)).data()


def test_the_data_leave_out_suppressed_values() -> None:
    table = with_warnings(prevalence_table(["secret", "b", "c"]))
    table = changed_columns(table, quality=[*["suppressed"] * 2, *["caution"] * 4])
    data = decoded(Page(results_of(table)).data())
    k = data["names"].index("secret")
    assert data["suppressed"][k]
    assert data["labelled"][k] == 0
    assert data["note"][k] == -1
    for one in data["classes"]:
        assert [one[name][k] for name in ("p", "lower", "upper", "effect")] == [
            None
        ] * 4
        assert (one["q"][k], one["beyond"][k]) == ("", False)
        assert one["quality"][k] == QUALITIES.index("suppressed")


@pytest.mark.parametrize(
    ("count", "width", "limit"),
    [
        (40_000, 5, 5_000_000),
        pytest.param(100_000, 10, 12_000_000, marks=pytest.mark.slow),
    ],
)
def test_a_page_of_all_communities_stays_within_its_limit(
    count: int, width: int, limit: int
) -> None:
    classes = tuple("abcdefghij"[:width])
    names = [f"a community with the number {k}" for k in range(count)]
    table = prevalence_table(names, classes, intervals=True)
    html = page(Page(results_of(table)))
    assert len(html.encode()) < limit
    left_out = "are in <code>prevalence.parquet</code> only" in html
    assert left_out == (width == 10)


def test_classes_that_do_not_fit_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    table = prevalence_table([f"c{k}" for k in range(50)], tuple("abcdef"))
    settings = load_settings(overrides=["report.class=f"])
    results = results_of(table, settings)
    assert len(Page(results).shown_classes) == 6
    assert "6 classes are in" not in page(Page(results))
    monkeypatch.setattr("xnq_dist.report.page_data.MAX_ESTIMATES", 1)
    shown = Page(results)
    assert [c["name"] for c in json.loads(shown.data())["classes"]] == ["f"]
    assert "5 of 6 classes are in" in page(shown)


def test_the_communities_with_the_lowest_shares_are_left_out_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("xnq_dist.report.page_data.MAX_COMMUNITIES", 10)
    shown = Page(results_of(prevalence_table(np.arange(30))))
    view = shown.view
    names = decoded(shown.data())["names"]
    assert names == [view.name(k) for k in view.ranked[:10]]
