"""The funnel plot: correct limits, few marks without overlap."""

from __future__ import annotations

from xml.etree import ElementTree

import numpy as np
import pytest

from tests.report.fake_run import compared, prevalence_table
from xnq_dist.core.config import Settings, load_settings
from xnq_dist.report.funnel import CELLS, Funnel, funnel, typical_error
from xnq_dist.report.view import PrevalenceView

USE = "{http://www.w3.org/2000/svg}use"


def shown(count=400, beyond=0, flagged=0, seed=0):
    """Plot data of communities at .3, the first of which are marked."""
    rng = np.random.default_rng(seed)
    sizes = np.maximum(5 * (1 - rng.random(count)) ** -1.0, 1).round()
    place = np.arange(count)
    return Funnel(
        sizes=sizes,
        prevalence=np.clip(0.3 + rng.normal(0, 0.4, count) / np.sqrt(sizes), 0, 1),
        error=0.2 / np.sqrt(sizes),
        reference=0.3,
        higher=place < beyond,
        lower=(place >= beyond) & (place < 2 * beyond),
        flagged=(place >= beyond // 2) & (place < beyond // 2 + flagged),
    )


def marks(svg: bytes) -> dict[str, int]:
    """Number of times each mark is drawn."""
    found: dict[str, int] = {}
    for use in ElementTree.fromstring(svg).iter(USE):  # noqa: S314
        form = use.get("{http://www.w3.org/1999/xlink}href", "")
        found[form] = found.get(form, 0) + 1
    return found


def test_typical_error_is_the_median_at_the_size():
    sizes = np.repeat([10.0, 100.0, 1000.0], 50)
    error = np.repeat([0.3, 0.2, 0.1], 50)
    error[::5] = np.nan
    error[7] = 0.9
    at = np.array([10.0, 100.0, 1000.0, 1.0, 1e6, 10**1.5])
    found = typical_error(sizes, error, at)
    assert found == pytest.approx([0.3, 0.2, 0.1, 0.3, 0.1, 0.25])
    nothing = np.full(3, np.nan)
    assert typical_error(np.ones(3), nothing, at).tolist() == [0.0] * 6
    # Few communities give one value for all sizes.
    few = typical_error(np.arange(1.0, 9), np.linspace(0, 1, 8), at)
    assert few == pytest.approx([0.5] * 6)


def test_anomalies_and_warnings_have_marks_of_their_own():
    plain = sorted(marks(funnel(shown(), "bot")).values())
    svg = funnel(shown(beyond=40, flagged=15), "bot")
    # Each mark is in the legend too.
    found = sorted(marks(svg).values())
    for count in (40 + 1, 40 + 1, 15 + 1):
        assert count in found
        assert count not in plain
    for text in (
        b"more than chance (40)",
        b"less than chance",
        b"large expected error (15",
    ):
        assert text in svg
    assert b"than chance" not in funnel(shown(), "bot")


def test_many_communities_are_drawn_in_hexagons():
    many = shown(count=40_000, beyond=15_000, flagged=3_000)
    svg = funnel(many, "bot")
    found = marks(svg)
    assert len(svg) < 1_500_000
    assert max(found.values()) <= CELLS[0] * CELLS[1]
    # The legend counts all of them, although overlapping marks are drawn once.
    for text in (b"more than chance (15,000)", b"large expected error (3,000)"):
        assert text in svg


def test_reference_of_the_plot_is_that_of_the_anomalies():
    table = prevalence_table(np.arange(40), intervals=True)
    view, found = compared(table, Settings())
    weights, last = view.n_nodes, view.prevalence[:, -1]
    rest = Funnel.of(view, found, Settings())
    assert rest.reference == found.centre[-1]
    mean = (weights * last).sum() / weights.sum()
    assert Funnel.of(view, None, Settings()).reference == pytest.approx(mean)
    assert (rest.higher | rest.lower).sum() > 5
    assert not (rest.higher & rest.lower).any()
    assert (last[rest.higher] > last[rest.lower].max()).all()
    half = (view.upper[:, -1] - view.lower[:, -1]) / 2
    assert rest.error == pytest.approx(half / 1.959964)
    fixed = load_settings(overrides=["anomalies.reference=.25"])
    assert Funnel.of(*compared(table, fixed), fixed).reference == 0.25
    assert not Funnel.of(view, None, Settings()).higher.any()


def test_empty_funnels_are_drawn():
    empty = PrevalenceView.of(prevalence_table(["a"]).slice(0, 0), ["a", "b"])
    none = np.empty(0)
    nothing = np.empty(0, np.bool_)
    assert len(empty.names) == 0
    svg = funnel(Funnel(none, none, none, np.nan, nothing, nothing, nothing), "bot")
    assert b"<svg" in svg
    one = funnel(
        Funnel(
            *(np.array([x]) for x in (1.0, 0.5, np.nan)), 0.5, *[np.array([False])] * 3
        ),
        "$x_1$ & <b>",
    )
    assert b"$x_1$ &amp; &lt;b&gt;" in one
