"""Section on the method, its assumptions and where the estimates can be wrong."""

from __future__ import annotations

from xnq_dist.core.method_records import METHODS
from xnq_dist.core.quantifiers import QUANTIFIERS
from xnq_dist.report.page_data import Page

__all__ = ["body"]


def body(facts: Page) -> str:
    """The method, the quantifier and the meaning of the numbers."""
    readout, quantify = facts.of("readout"), facts.of("quantify")
    return facts.render(
        "computed.html.j2",
        method=METHODS[facts.settings.method],
        quantifier_text=QUANTIFIERS[facts.settings.quantifier].text,
        source=quantify.get("source", ""),
        pooled=quantify.get("pooled"),
        skill=readout.get("skill"),
        scores=readout.get("scores"),
    )
