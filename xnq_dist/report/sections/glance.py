"""Section with the plots."""

from __future__ import annotations

import numpy as np

from xnq_dist.core.records import PartRecord
from xnq_dist.report.funnel import MAX_DOTS
from xnq_dist.report.page_facts import PageFacts
from xnq_dist.report.plots import DOTS

__all__ = ["RECORDS", "body"]

RECORDS = (PartRecord(name="glance", title="At a glance", rank=20),)


def body(facts: PageFacts) -> str:
    """Every plot with its caption."""
    if not facts.figures:
        return ""
    total = len(facts.view.names)
    return facts.render(
        "glance",
        figures=facts.figures,
        hexagons=total > MAX_DOTS,
        dots=min(DOTS, total),
        communities=total,
        intervals=facts.view.has_intervals,
        anomalies=facts.anomalies is not None,
        flagged=bool(np.any(facts.view.flagged)),
    )
