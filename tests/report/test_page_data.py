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
from xnq_dist.steps.view import QUALITIES

BASE = (("n", "<u4"), ("labelled", "<u4"), ("note", "<i4"))
CLASS = (("p", "<u2"), ("lower", "<u2"), ("upper", "<u2"), ("effect", "<i2"))


def unpacked(text: str) -> bytes:
    return gzip.decompress(base64.b64decode(text))


def columns(data: bytes, kinds: Any, count: int) -> dict[str, np.ndarray]:
    found, at = {}, 0
    for name, kind in kinds:
        found[name] = np.frombuffer(data, kind, count, at)
        at += found[name].nbytes
    assert at == len(data)
    return found


def decoded(text: str) -> dict[str, Any]:
    """The page's data as its script reads them."""
    whole = json.loads(text)
    count = whole["n"]
    whole |= json.loads(unpacked(whole["texts"]))
    whole |= columns(unpacked(whole["base"]), [*BASE, ("flags", "u1")], count)
    for one in whole["classes"]:
        one |= columns(unpacked(one["data"]), [*CLASS, ("rating", "<u2")], count)
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
    view, data = shown.view, decoded(shown.encoded.text)
    order = view.ranked
    assert data["names"] == [view.name(k) for k in order.tolist()]
    assert np.array_equal(data["n"], view.n_nodes[order])
    assert np.array_equal(data["labelled"], view.n_labelled[order])
    assert {one["name"] for one in data["classes"]} == set(view.classes)
    assert data["classes"][0]["name"] == view.classes[-1]
    for one in data["classes"]:
        c = view.classes.index(one["name"])
        for name, values in zip(("p", "lower", "upper"), view.estimates(), strict=True):
            known = one[name] != 65535
            expected = values[order, c]
            assert np.array_equal(known, ~np.isnan(expected))
            assert np.allclose(one[name][known] / 1e4, expected[known], atol=1.01e-4)
            # As printed with one decimal.
            assert np.array_equal(
                np.rint(one[name][known] / 10), np.rint(1e3 * expected[known])
            )
        ratings = one["rating"] >> 12 & 7
        assert np.array_equal(ratings, view.quality[order, c])
        q = shown.qvalue[order, c]
        assert np.array_equal(one["rating"] >> 15 == 1, q <= 0.05)
        code = (one["rating"] & 4095).astype(float)
        known = ~np.isnan(q)
        assert np.isnan(q).all() != intervals or count == 1
        expected = np.maximum(q[known], 1e-4)
        assert np.allclose(10 ** (-code[known] / 1000), expected, rtol=2e-3)


def test_texts_stay_inside_the_script_element() -> None:
    table = prevalence_table(["</script><script>alert(1)</script>"], ("<!--", "b"))
    assert "<" not in Page(results_of(table)).encoded.text


def test_the_data_leave_out_suppressed_values() -> None:
    table = with_warnings(prevalence_table(["secret", "b", "c"]))
    table = changed_columns(table, quality=[*["suppressed"] * 2, *["caution"] * 4])
    data = decoded(Page(results_of(table)).encoded.text)
    k = data["names"].index("secret")
    assert data["flags"][k] == 4
    assert data["labelled"][k] == 0
    assert data["note"][k] == -1
    for one in data["classes"]:
        assert [int(one[name][k]) for name, _ in CLASS] == [*[65535] * 3, -32768]
        assert one["rating"][k] == QUALITIES.index("suppressed") << 12 | 4095


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


def test_classes_that_do_not_fit_are_named() -> None:
    table = prevalence_table([f"c{k}" for k in range(50)], tuple("abcdef"))
    settings = load_settings(overrides=["report.class=f"])
    one = Page(results_of(table, settings), limit=1).encoded
    assert [c["name"] for c in json.loads(one.text)["classes"]] == ["f"]
    assert sorted(one.classes_left_out) == list("abcde")
    assert Page(results_of(table, settings)).encoded.classes_left_out == ()


def test_the_communities_with_the_lowest_shares_are_left_out_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("xnq_dist.report.page_data.MAX_COMMUNITIES", 10)
    shown = Page(results_of(prevalence_table(np.arange(30))))
    view = shown.view
    assert shown.encoded.communities_left_out == 20
    names = decoded(shown.encoded.text)["names"]
    assert names == [view.name(k) for k in view.ranked[:10]]
