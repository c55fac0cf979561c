"""Section on the method, its assumptions and where the estimates can be wrong."""

from __future__ import annotations

from xnq_dist.core.method_records import method_of
from xnq_dist.core.plain_text import plain
from xnq_dist.core.quantifiers import record_of
from xnq_dist.report.page_data import Page

__all__ = ["body"]


def body(facts: Page) -> str:
    """The method, the quantifier and the meaning of the numbers."""
    name = facts.settings.quantifier
    return facts.render(
        "computed",
        method=method_of(facts.settings.method),
        quantifier=name,
        quantifier_text=record_of(name).text,
        source=plain(str(facts.of("quantify").get("source", "")), 120),
        intervals=facts.view.has_intervals,
    )
