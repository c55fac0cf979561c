"""Section on communities that differ beyond chance."""

from __future__ import annotations

import numpy as np

from xnq_dist.report.page_data import Page

__all__ = ["body"]


def body(facts: Page) -> str:
    """The number of communities that differ in the last class; filters show them."""
    if not facts.view.has_intervals:
        return ""
    differ = facts.beyond[:, -1]
    return facts.render(
        "beyond.html.j2",
        count=int(differ.sum()),
        above=int(np.count_nonzero(differ & (facts.compared["effect"][:, -1] > 0))),
        compared=int(np.count_nonzero(~np.isnan(facts.compared["qvalue"][:, -1]))),
    )
