"""Section on what the user's own labels say of the intervals and the posteriors."""

from __future__ import annotations

from xnq_dist.report.page_data import Page
from xnq_dist.report.wording import difference

__all__ = ["body"]


def body(facts: Page) -> str:
    """Coverage of held-out groups, and how much the posteriors know."""
    held = facts.of("quantify").get("own_coverage")
    skill = facts.of("readout").get("skill")
    if skill:
        skill = {**skill, "ends": difference(skill["lower"], skill["upper"])}
    return facts.render("fit", held=held, skill=skill, level=facts.level)
