"""Section with the plots, which the page's script draws."""

from __future__ import annotations

import numpy as np

from xnq_dist.core.records import PartRecord
from xnq_dist.report.page_facts import PageFacts

__all__ = ["RECORDS", "body"]

RECORDS = (PartRecord(name="glance", title="Plots", rank=20),)


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
        flagged=bool(np.any(view.flagged)),
    )
