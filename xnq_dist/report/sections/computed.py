"""Section on the method, its assumptions and where the estimates can be wrong."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from xnq_dist.core.method_records import method_of
from xnq_dist.core.plain_text import plain
from xnq_dist.core.quantifiers import record_of
from xnq_dist.report.page_data import Page
from xnq_dist.report.wording import difference

__all__ = ["body"]


def body(facts: Page) -> str:
    """The method, the quantifier and the meaning of the numbers."""
    readout = facts.of("readout")
    scores = readout.get("scores")
    return facts.render(
        "computed.html.j2",
        method=method_of(facts.settings.method),
        quantifier_text=record_of(facts.settings.quantifier).text,
        source=plain(str(facts.of("quantify").get("source", "")), 120),
        pooled=facts.of("quantify").get("pooled"),
        skill=_with_ends(readout.get("skill")),
        scores=scores and plain(", ".join(scores["columns"]), 120),
        gain=_with_ends(scores and scores["gain"]),
    )


def _with_ends(gain: Mapping[str, float] | None) -> dict[str, Any] | None:
    """A relative reduction of the log-loss, with its interval as text."""
    if not gain:
        return None
    return {**gain, "ends": difference(gain["lower"], gain["upper"])}
