"""Renderings of one table."""

from __future__ import annotations

import html
import re

import pytest

from xnq_dist.core.errors import XnqError
from xnq_dist.evaluation.rendered_table import (
    Cell,
    RenderedTable,
    RowGroup,
    to_markdown,
    to_text,
)

NASTY = r"a&b_<c> $x^2$ 100% #1 {~} \d |e| *f* [g] `h`"


def test_markdown_and_text_have_the_same_cells() -> None:
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
    assert to_text(made).splitlines() == [
        *("Title", "Method    A    B", "x       1.5    -", "G"),
        "y       3.5  4.5",
    ]


def test_names_are_escaped_and_stay_in_one_line() -> None:
    rows = (Cell(NASTY), Cell()), (Cell("x\n| y\x00"), Cell("1"))
    made = RenderedTable("t", NASTY, (NASTY, "A"), (RowGroup(rows, NASTY),))
    markdown = to_markdown(made)
    for line in markdown.split("\n")[2:]:
        if line:
            assert len(re.findall(r"(?<!\\)\|", line)) == 3
    shown = re.sub(r"\\(.)", r"\1", html.unescape(markdown.split("\n")[2]))
    assert shown == f"| {NASTY} | A |"
    assert "| x \\| y\ufffd | 1 |" in markdown
    assert len(to_text(made).splitlines()) == 5


def test_ragged_tables_are_refused() -> None:
    with pytest.raises(XnqError, match="same number"):
        RenderedTable("t", "t", ("a", "b"), (RowGroup(((Cell("x"),),)),))
