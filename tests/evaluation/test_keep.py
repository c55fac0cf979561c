"""A table in Markdown."""

from __future__ import annotations

from xnq_dist.evaluation.keep import RenderedTable, to_markdown


def test_groups_and_columns_are_aligned() -> None:
    rows = {("", "x"): ["**1.5** (2.5)", "-"], ("G", "y|z\n"): ["3.5", "4.5"]}
    made = RenderedTable("t", "Title", ("method", "A", "B"), rows, "Note.")
    assert to_markdown(made).splitlines() == [
        *("**Title**", ""),
        "| method |             A |   B |",
        "| ------ | ------------: | --: |",
        "| x      | **1.5** (2.5) |   - |",
        "| *G*    |               |     |",
        "| y\\|z   |           3.5 | 4.5 |",
        *("", "Note."),
    ]
