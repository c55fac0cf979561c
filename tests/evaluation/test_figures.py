"""Plots and page: no warnings, escaped texts, the chosen quantifier."""

from __future__ import annotations

from base64 import b64decode
from html.parser import HTMLParser
from xml.etree import ElementTree

import numpy as np
import pytest

from tests.evaluation.fake_results import evaluation, results, row, table
from xnq_dist.evaluation.figures import diagonal_bands
from xnq_dist.evaluation.render import outputs
from xnq_dist.evaluation.summary import summarise

NASTY = "a&b_<c> $x_1$"


@pytest.fixture(scope="module")
def made() -> tuple:
    means = {
        "wvrn": {NASTY: 0.3, "flickr": 0.05},
        "xnq": {NASTY: 0.02, "flickr": 0.03},
        "my_<own>": {NASTY: 0.05},
    }
    return evaluation(means, {"wvrn": ("cc", "acc")}, folds=2, shares=(0.1, 1.0))


@pytest.fixture(scope="module")
def files(made: tuple) -> dict[str, bytes]:
    return outputs(made[0], made[2], nsamples=20)


def words(svg: bytes) -> str:
    root = ElementTree.fromstring(svg)  # noqa: S314 - our own
    return " ".join(part.strip() for part in root.itertext())


def test_every_plot_is_a_picture(files: dict[str, bytes]) -> None:
    drawn = sorted(name for name in files if name.startswith("figures/"))
    assert drawn == ["figures/diagonal-a-b-c-x-1.svg"]
    assert "my_<own>" in words(files[drawn[0]])
    assert "true prevalence of class 2" in words(files[drawn[0]])


def test_same_tables_give_the_same_bytes(made: tuple, files: dict[str, bytes]) -> None:
    assert outputs(made[0], made[2], nsamples=20) == files


def test_band_is_of_the_shown_quantifier_fold_and_class() -> None:
    found = results(
        [
            row(v, quantifier=q, fold=f, split=s, method="lr")
            for q, f, v in [("cc", 0, 0.1), ("acc", 0, 0.2), ("cc", 1, 0.2)]
            for s in ("validation", "test")
        ]
        + [
            row(0.1, quantifier="acc", fold=1, split=s, method="lr")
            for s in ("validation", "test")
        ]
    )
    guesses = {("cc", 0): 0.4, ("acc", 0): 9.0, ("cc", 1): 9.0, ("acc", 1): 0.6}
    estimates = table(
        "estimates",
        [
            {
                "dataset": "cora-2",
                "method": "lr",
                "quantifier": q,
                "fold": f,
                "label_share": 1.0,
                "sample": 0,
                "class": name,
                "true": 0.5,
                "estimate": guess if name == "1" else 1 - guess,
            }
            for (q, f), guess in guesses.items()
            for name in ("0", "1")
        ],
    )
    (band,), positive = diagonal_bands(summarise(found), estimates, "cora-2")
    assert positive == "1"
    assert band.at.tolist() == [0.5]
    assert band.mean == pytest.approx([0.5])
    assert band.sd == pytest.approx([np.std([0.4, 0.6], ddof=1)])
    assert band.remark == "CC 1, ACC 1, AE 0.100"


def test_whole_graph_answers_make_no_curve() -> None:
    found = results([row(0.1, method=m, quantifier="sld") for m in ("lbq", "lr")])
    estimates = table(
        "estimates",
        [
            {
                "dataset": "cora-2",
                "method": method,
                "quantifier": "sld",
                "fold": 0,
                "label_share": 1.0,
                "sample": 0,
                "class": name,
                "true": 0.5,
                "estimate": 0.5,
            }
            for method in ("lbq", "lr")
            for name in ("0", "1")
        ],
    )
    bands, _ = diagonal_bands(summarise(found), estimates, "cora-2")
    assert [band.method for band in bands] == ["lr"]


class Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.open: list[str] = []
        self.ids: list[str] = []
        self.targets: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in ("meta", "img"):
            self.open.append(tag)
        self._look(attrs)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self._look(attrs)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data

    def _look(self, attrs: list[tuple[str, str | None]]) -> None:
        self.ids += [value or "" for name, value in attrs if name == "id"]
        self.targets += [
            value or ""
            for name, value in attrs
            if name in ("href", "src", "xlink:href")
        ]


def test_page_is_well_formed_and_self_contained(files: dict[str, bytes]) -> None:
    page = Page()
    page.feed(files["evaluation.html"].decode())
    page.close()
    assert not page.open
    assert not {"script", "link", "iframe", "image", "c", "own"} & {*page.tags}
    assert len(page.ids) == len({*page.ids})
    (source,) = {*page.targets} - {f"#{name}" for name in page.ids}
    svg = source.removeprefix("data:image/svg+xml;base64,")
    assert b64decode(svg) == files["figures/diagonal-a-b-c-x-1.svg"]
    assert NASTY in page.text
    tables = {name for name in files if name.startswith("tables/")}
    assert page.tags.count("table") == len(tables)


def test_empty_tables_have_a_page() -> None:
    empty = [table(name, []) for name in ("results", "estimates")]
    made = outputs(*empty, nsamples=10)
    assert b"Seconds of a configuration in a fold" in made["evaluation.html"]
