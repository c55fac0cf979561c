"""Section with the communities: notes, search, filters and the table."""

from __future__ import annotations

from typing import Any

from xnq_dist.core.plain_text import plain
from xnq_dist.report.notes import notes
from xnq_dist.report.page_data import Page
from xnq_dist.report.wording import count, points, share, span
from xnq_dist.steps.against_rest import reference_of
from xnq_dist.steps.view import QUALITIES

__all__ = ["body", "row"]


ROWS = 25
"""Rows of the table in the file; the page's script shows all."""


def body(facts: Page) -> str:
    """The first communities by the lower end of the interval; the script has all."""
    view = facts.view
    labels = facts.of("quantify").get("labels") or {}
    chosen = view.ranked[:ROWS].tolist()
    return facts.render(
        "communities.html.j2",
        notes=notes(facts),
        biased=labels.get("verdict") not in (None, "none"),
        rows=[row(facts, k) for k in chosen],
        suppressed=int(view.suppressed.sum()),
        left_out=len(view.names) - len(chosen),
        classes_left_out=[
            name for c, name in enumerate(view.classes) if c not in facts.shown_classes
        ],
        communities_left_out=len(view.names) - len(facts.order),
        reference=share(reference_of(view)) if view.has_intervals else "",
    )


def row(facts: Page, k: int) -> dict[str, Any]:
    """One community in the last class, in words."""
    view = facts.view
    gone = bool(view.suppressed[k])
    effect = points(float(facts.compared["effect"][k, -1]))
    return {
        "name": view.name(k),
        "n_nodes": int(view.n_nodes[k]),
        "labelled": "" if gone else count(view.n_labelled[k]),
        "share": "suppressed" if gone else share(float(view.prevalence[k, -1])),
        "interval": span(view.lower[k, -1], view.upper[k, -1]),
        "remarks": plain(view.notes[k].as_py() or "", 160),
        "effect": effect + (" *" if facts.beyond[k, -1] else ""),
        "quality": QUALITIES[view.quality[k, -1]],
    }
