"""The page in a headless Chromium: what a reader does, sees, hears and prints."""

from __future__ import annotations

import csv
import io
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pyarrow as pa
import pytest

from tests.report.fake_run import prevalence_table, results_of, totals_table
from xnq_dist.core.config import load_settings
from xnq_dist.report.page import page
from xnq_dist.report.page_data import Page
from xnq_dist.steps.view import QUALITIES

pytestmark = pytest.mark.browser

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
PICTURES = Path(__file__).with_name("pictures")
FIVE = ("arts", "games", "health", "politics", "travel")
WORDS = ["report.community=page", "report.node=user"]
PLOTS = ("funnel", "intervals", "histogram", "reliability")
RATED = np.array(["publishable", "caution", "not publishable"], np.object_)


def table_of(names: list[str], classes: tuple[str, ...]) -> pa.Table:
    """Prevalences with intervals, in which those below 12 members are suppressed."""
    table = prevalence_table(names, classes, True)
    rows, size = np.arange(table.num_rows), table["n_nodes"].to_numpy()
    quality = RATED[rows % 7 % 3]
    quality[size < 23] = "suppressed"
    at = table.column_names.index("quality")
    return table.set_column(at, "quality", pa.array(quality))


def page_of(
    names: list[str], classes: tuple[str, ...], overrides: list[str], **counts: int
) -> Page:
    settings = load_settings(overrides=[*WORDS, *overrides])
    table = table_of(names, classes)
    bins = np.linspace(0.05, 0.95, 10)
    skill = {"value": 0.42, "lower": 0.36, "upper": 0.48}
    curve = {"predicted": bins, "observed": bins**1.2, "count": np.full(10, 60)}
    facts = {
        "graph": {
            "n_nodes": 4000,
            "n_edges": 39938,
            "counts": {"edges_read": 19969, **counts},
        },
        "labels": {"n_labelled": 630, "classes": list(classes)},
        "readout": {
            "skill": skill,
            "reliability": [{name: one.tolist() for name, one in curve.items()}]
            * len(classes),
        },
    }
    totals = totals_table(classes)
    return Page(results_of(table, settings, totals, **facts))


SMALL_NAMES = [f"page {k:02d} of bakers" for k in range(57)]
SMALL_NAMES += ["<img src=x onerror=alert(1)>", "=1+1", "Ünïted, “ones”"]


def small(**counts: int) -> Page:
    """Sixty communities, two classes."""
    names = ["report.class_names={person: people, bot: bots}"]
    return page_of(SMALL_NAMES, ("person", "bot"), names, **counts)


def large() -> Page:
    """As many communities and classes as the page must answer for at once."""
    return page_of([f"group {k} of {k % 37}" for k in range(40_000)], FIVE, [])


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    api = pytest.importorskip("playwright.sync_api")
    if CHROMIUM is None:
        pytest.skip("there is no Chromium")
    with api.sync_playwright() as running:
        # Without its sandbox Chromium also starts as root, and it opens our file only.
        opened = running.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox"]
        )
        # Chromium refuses some first pictures after its start: MarketSquare/
        # robotframework-browser#5237.
        with suppress(api.Error):
            opened.new_page().screenshot()
        yield opened
        opened.close()


Open = Callable[..., Any]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Any], str]:
    """Pages as files, each made once."""
    folder, known = tmp_path_factory.mktemp("pages"), {}

    def file(make: Callable[[], Page]) -> str:
        if make not in known:
            known[make] = folder / f"{make.__name__}.html"
            known[make].write_text(page(make()), encoding="utf-8")
        return known[make].as_uri()

    return file


@pytest.fixture
def open_page(browser: Any, files: Callable[[Any], str]) -> Iterator[Open]:
    """Opens a page; at the end the browser's console must be empty."""
    contexts, messages = [], []

    def opened(
        make: Callable[[], Page] = small,
        width: int = 1400,
        height: int = 900,
        anchor: str = "",
        **options: Any,
    ) -> Any:
        size = {"width": width, "height": height}
        context = browser.new_context(viewport=size, **options)
        contexts.append(context)
        tab = context.new_page()
        tab.set_default_timeout(60_000)
        tab.on("console", lambda message: messages.append(message.text))
        tab.on("pageerror", lambda error: messages.append(str(error)))
        tab.goto(files(make) + anchor)
        tab.wait_for_selector("html[data-ready]")
        return tab

    yield opened
    for context in contexts:
        context.close()
    assert messages == []


def names_shown(tab: Any) -> list[str]:
    return tab.locator("#rows th a").all_inner_texts()


def saved(tab: Any, button: str = "#download") -> str:
    """Text of the file that a button saves."""
    with tab.expect_download() as started:
        tab.click(button)
    name = started.value.suggested_filename
    assert name.endswith((".csv", f"{button[1:].removesuffix('-save')}.svg"))
    return Path(started.value.path()).read_text(encoding="utf-8-sig")


def rows_saved(tab: Any) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(saved(tab))))


def violations(tab: Any) -> list[str]:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    found = axe.Axe().run(tab).response["violations"]
    return [f"{one['id']}: {one['nodes'][0]['html'][:200]}" for one in found]


def test_a_reader_finds_sorts_filters_switches_and_downloads(open_page: Open) -> None:
    tab = open_page()
    assert len(names_shown(tab)) == 25
    assert "Share of bots in 60 pages" in tab.inner_text("h1")
    tab.fill("#search", "united")
    assert names_shown(tab) == ["Ünïted, “ones”"]
    tab.fill("#search", "")
    tab.click("#sort-name")
    assert names_shown(tab)[0] == "<img src=x onerror=alert(1)>"
    view = small().view
    for column, key in (("members", view.n_nodes), ("effect", None)):
        tab.click(f"#sort-{column}")
        falling = names_shown(tab)
        if key is not None:
            largest = np.lexsort((np.argsort(view.ranked), -key))[:25]
            assert falling == [view.name(k) for k in largest.tolist()]
        tab.click(f"#sort-{column}")
        assert names_shown(tab)[0] not in falling
    tab.click("#sort-lower")
    tab.click("#facet-caution")
    left = int(tab.inner_text("#facet-caution b"))
    assert tab.inner_text("#status").startswith(f"{left} pages of 60")
    rows = rows_saved(tab)
    assert len(rows) == left
    assert {row["quality"] for row in rows} == {"caution"}
    assert [row["page"] for row in rows][: min(left, 25)] == names_shown(tab)
    tab.click("#facet-caution")
    # A formula is text in the download.
    tab.fill("#search", "=1+1")
    assert "'=1+1," in saved(tab)
    tab.fill("#search", "")
    tab.select_option("#class", label="people")
    tab.locator("#sort-share", has_text="people").wait_for(timeout=5000)
    assert violations(tab) == []


def test_an_anchor_opens_a_community(open_page: Open) -> None:
    facts = small()
    name = "page 07 of bakers"
    tab = open_page(anchor=f"#community={name.replace(' ', '%20')}")
    assert tab.inner_text("#detail-name") == name
    k = facts.view.names.to_pylist().index(name)
    share = facts.view.prevalence[k, -1]
    body = tab.inner_text("#detail-body")
    assert (f"{100 * share:.1f} %" in body) == (not np.isnan(share))
    assert tab.inner_text("#rows .marked th a") == name
    assert tab.evaluate("document.activeElement.id") == "detail"
    tab.evaluate(
        "location.hash = '#community=%3Cimg%20src%3Dx%20onerror%3Dalert(1)%3E'"
    )
    tab.wait_for_function("document.querySelector('#detail-name').innerText[0] === '<'")
    tab.evaluate("location.hash = '#community=nobody'")
    tab.wait_for_function(
        "document.querySelector('#detail-body').innerText.startsWith('There is no')"
    )
    tab.click("#close")
    assert tab.locator("#detail").is_hidden()


def test_values_of_suppressed_communities_are_hidden(open_page: Open) -> None:
    tab = open_page()
    tab.click("#facet-suppressed")
    cells = tab.locator("#rows tr").all_inner_texts()
    assert cells
    for text in cells:
        assert "suppressed" in text
        assert "%" not in text
    for row in rows_saved(tab):
        assert {row[name] for name in ("prevalence", "lower", "labelled")} == {""}


@pytest.mark.parametrize("name", PLOTS)
def test_pointer_and_keyboard_name_the_marks(open_page: Open, name: str) -> None:
    tab = open_page()
    plot = tab.locator(f"#{name}")
    plot.focus()
    tab.keyboard.press("ArrowRight")
    said = tab.inner_text("#live")
    assert "%" in said
    assert tab.inner_text(f"#{name} .tip") == said
    tab.keyboard.press("ArrowRight")
    assert tab.inner_text("#live") != said
    tab.keyboard.press("Home")
    assert tab.inner_text("#live") == said
    ring = tab.locator(f"#{name} .ring")
    x, y = (float(ring.get_attribute(axis) or 0) for axis in ("cx", "cy"))
    tab.keyboard.press("Escape")
    assert tab.locator(f"#{name} .tip").is_hidden()
    plot.hover(position={"x": x + 2, "y": y + 1})
    assert tab.locator(f"#{name} .tip").is_visible()


def test_enter_on_a_dot_opens_its_community(open_page: Open) -> None:
    tab = open_page()
    tab.locator("#funnel").focus()
    tab.keyboard.press("End")
    name = tab.inner_text("#live").partition(":")[0]
    tab.keyboard.press("Enter")
    tab.wait_for_selector("#detail:not([hidden])")
    assert tab.inner_text("#detail-name") == name


def test_everything_is_reached_by_keyboard(open_page: Open) -> None:
    tab = open_page()
    reached = set()
    for _ in range(90):
        tab.keyboard.press("Tab")
        reached.add(tab.evaluate("document.activeElement.id || 'other'"))
    assert {"theme", "search", "class", "sort-share", "facet-caution", "later"} <= (
        reached
    )
    assert {"download", "funnel", "histogram"} <= reached


@pytest.mark.parametrize("name", PLOTS)
def test_every_plot_has_its_data_and_can_be_saved(open_page: Open, name: str) -> None:
    tab = open_page()
    tab.click(f"#{name}-data summary")
    # The table is made when its element opens.
    tab.locator(f"#{name}-data tbody tr").nth(3).wait_for(timeout=5000)
    root = ElementTree.fromstring(saved(tab, f"#{name}-save"))  # noqa: S314 - our page's
    assert root.get("viewBox")
    kinds = {each.tag.rpartition("}")[2] for each in root.iter()}
    assert {"title", "style", "text", "line"} <= kinds
    assert "image" not in kinds


def test_a_script_in_a_name_or_added_later_is_blocked(
    browser: Any, files: Callable[[Any], str]
) -> None:
    tab = browser.new_page()
    tab.goto(files(small))
    tab.wait_for_selector("html[data-ready]")
    tab.evaluate(
        """() => {
            const script = document.createElement("script");
            script.textContent = "window.ran = true";
            document.body.append(script);
        }"""
    )
    assert tab.evaluate("window.ran === undefined")
    assert tab.locator("img").count() == 0
    tab.close()


@pytest.mark.parametrize(("width", "scheme"), [(1400, "dark"), (390, "light")])
def test_no_rule_of_accessibility_is_broken(
    open_page: Open, width: int, scheme: str
) -> None:
    tab = open_page(width=width, color_scheme=scheme)
    tab.evaluate("document.querySelectorAll('details').forEach((d) => d.open = true)")
    assert violations(tab) == []


def test_a_narrow_screen_scrolls_down_only_with_legible_plots_and_quality(
    open_page: Open,
) -> None:
    tab = open_page(width=390)
    assert tab.evaluate("document.documentElement.scrollWidth") == 390
    sizes = tab.evaluate(
        """() => [...document.querySelectorAll(".plot svg")].map((svg) =>
            12 * svg.getBoundingClientRect().width / svg.viewBox.baseVal.width)"""
    )
    assert len(sizes) == 4
    assert min(sizes) >= 11
    cells = tab.locator("#rows tr").first.locator("td:visible")
    assert cells.last.inner_text() in QUALITIES[1:]
    box = tab.locator(".scroll").first
    assert box.evaluate("node => node.scrollWidth <= node.clientWidth")


def test_the_button_switches_between_dark_and_light(open_page: Open) -> None:
    tab = open_page(color_scheme="dark")
    colour = "getComputedStyle(document.body).backgroundColor"
    dark = tab.evaluate(colour)
    tab.click("#theme")
    assert tab.evaluate(colour) == "rgb(255, 255, 255)" != dark
    tab.click("#theme")
    assert tab.evaluate(colour) == dark


@pytest.mark.parametrize("make", [small, large])
def test_print_has_at_most_four_pages(
    open_page: Open, make: Callable[[], Page]
) -> None:
    pdf = open_page(make).pdf(format="A4", print_background=True)
    pages = pdf.count(b"/Type /Page") - pdf.count(b"/Type /Pages")
    assert 1 <= pages <= 4


def warned() -> Page:
    """The small page of a run that dropped rows."""
    return small(duplicates_dropped=12)


def test_warnings_are_on_paper(open_page: Open) -> None:
    tab = open_page(warned)
    tab.emulate_media(media="print")
    assert not tab.is_visible("text=12 duplicate edges were dropped.")
    tab.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert tab.is_visible("text=12 duplicate edges were dropped.")


def test_forty_thousand_communities_are_answered_at_once(open_page: Open) -> None:
    tab = open_page(large)

    def answer(act: Callable[[], Any]) -> float:
        act()
        return float(tab.evaluate("document.documentElement.dataset.answer"))

    # The shortest of several, because other processes may use the processor.
    for word in ("7 of 3", "zzz", "group"):
        times = [
            answer(lambda w=word, n=n: tab.fill("#search", w[:n])) for n in (1, 2, 3)
        ]
        assert min(times) < 100
    tab.fill("#search", "")
    for column in ("share", "members", "name"):
        times = [answer(lambda c=column: tab.click(f"#sort-{c}")) for _ in range(4)]
        assert min(times) < 100
    times = [answer(lambda: tab.click("#facet-caution")) for _ in range(4)]
    assert min(times) < 100
    assert "Hexagons" in tab.inner_text("#hexagons")


def looks(picture: bytes | Path) -> tuple[np.ndarray, np.ndarray]:
    """Greys of blocks of 8 x 8 pixels, and the ink in areas of 96 x 96."""
    from PIL import Image

    source = io.BytesIO(picture) if isinstance(picture, bytes) else picture
    grey = np.asarray(Image.open(source).convert("L").reduce(8), np.float64) / 255
    ink = Image.fromarray(np.abs(grey - np.median(grey)).astype(np.float32))
    return grey, np.maximum(np.asarray(ink.reduce(12)), 0.01)


LOOKS = {
    "1400": {"width": 1400, "height": 2500},
    "390": {"width": 390, "height": 2600},
    "dark": {"width": 1400, "height": 2500, "color_scheme": "dark"},
    "print": {"width": 760, "height": 2200},
}


@pytest.mark.parametrize("look", LOOKS)
def test_the_page_looks_as_in_the_stored_picture(open_page: Open, look: str) -> None:
    """XNQ_PICTURES=write stores new pictures, for a person to look at."""
    tab = open_page(**LOOKS[look])
    if look == "print":
        tab.emulate_media(media="print")
    taken = tab.screenshot()
    file = PICTURES / f"{look}.png"
    if os.environ.get("XNQ_PICTURES") == "write":
        from PIL import Image

        PICTURES.mkdir(exist_ok=True)
        Image.open(io.BytesIO(taken)).quantize(32).save(file, optimize=True)
    assert file.stat().st_size < 150_000
    (now, ink), (stored, stored_ink) = looks(taken), looks(file)
    assert now.shape == stored.shape
    assert np.mean(np.abs(now - stored)) < 0.02
    # Another version of a font moves letters; a plot that is missing takes its ink.
    change = np.abs(ink - stored_ink) / np.maximum(ink, stored_ink)
    assert np.count_nonzero(change > 0.6) <= 2
