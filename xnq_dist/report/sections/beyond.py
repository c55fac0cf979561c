"""Section on communities that differ beyond chance."""

from __future__ import annotations

import numpy as np

from xnq_dist.report.page_facts import PageFacts

__all__ = ["body"]


def body(facts: PageFacts) -> str:
    """The number of communities that differ in the last class; filters show them."""
    if facts.anomalies is None:
        return ""
    effect, qvalue = facts.anomalies.effect[:, -1], facts.anomalies.qvalue[:, -1]
    differ = qvalue <= facts.settings.anomalies.rate
    return facts.render(
        "beyond",
        count=int(differ.sum()),
        above=int(np.count_nonzero(differ & (effect > 0))),
        compared=int(np.count_nonzero(~np.isnan(qvalue))),
    )
