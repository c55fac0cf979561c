"""Section on the method, its assumptions and where the estimates can be wrong."""

from __future__ import annotations

from xnq_dist.core.method_records import method_of
from xnq_dist.core.plain_text import plain
from xnq_dist.core.quantifiers import record_of
from xnq_dist.report.page_data import Page
from xnq_dist.report.wording import difference

__all__ = ["body"]


def body(facts: Page) -> str:
    """The method, the quantifier and the meaning of the numbers."""
    name, skill = facts.settings.quantifier, facts.of("readout").get("skill")
    if skill:
        skill = {**skill, "ends": difference(skill["lower"], skill["upper"])}
    return facts.render(
        "computed",
        method=method_of(facts.settings.method),
        quantifier=name,
        quantifier_text=record_of(name).text,
        source=plain(str(facts.of("quantify").get("source", "")), 120),
        intervals=facts.view.has_intervals,
        pooled=facts.of("quantify").get("pooled"),
        skill=skill,
    )
