"""Section with the plots, which the page's script draws."""

from __future__ import annotations

from xnq_dist.report.page_facts import PageFacts

__all__ = ["body"]


def body(facts: PageFacts) -> str:
    """A place for every plot, with its caption."""
    view = facts.view
    if not view.classes or not len(view.names):
        return ""
    return facts.render(
        "glance",
        reliability=facts.judged_class,
        level=facts.level,
        intervals=view.has_intervals,
        anomalies=facts.anomalies is not None,
    )
