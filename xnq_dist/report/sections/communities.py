"""Section with the communities: notes, search, filters and the table."""

from __future__ import annotations

from typing import Any

import numpy as np

from xnq_dist.core.plain_text import plain
from xnq_dist.report.funnel import reference_of
from xnq_dist.report.notes import notes
from xnq_dist.report.page_facts import PageFacts
from xnq_dist.report.view import QUALITIES
from xnq_dist.report.wording import count, points, share, span

__all__ = ["body"]


ROWS = 25
"""Rows of the table in the file; the page's script shows all."""


def body(facts: PageFacts) -> str:
    """The first communities by the lower end of the interval; the script has all."""
    view = facts.view
    data = facts.data
    labels = facts.of("quantify").get("labels") or {}
    chosen = view.ranked[:ROWS].tolist() if view.classes else []
    return facts.render(
        "communities",
        notes=notes(facts),
        biased=labels.get("verdict") not in (None, "none"),
        rows=[_row(facts, k) for k in chosen],
        total=_total(facts),
        suppressed=int(view.suppressed.sum()),
        communities=len(view.names),
        left_out=len(view.names) - len(chosen),
        classes=len(view.classes),
        classes_left_out=data.classes_left_out if data else (),
        communities_left_out=data.communities_left_out if data else 0,
        level=facts.level,
        against=(
            "against the rest"
            if facts.settings.anomalies.reference == "rest"
            else "against the share set"
        ),
        intervals=view.has_intervals,
        anomalies=facts.anomalies is not None,
        reference=_reference(facts),
    )


def _reference(facts: PageFacts) -> str:
    """The share that differences are measured from, as it is printed; or empty."""
    if facts.anomalies is None or not facts.view.classes:
        return ""
    return share(reference_of(facts.view, facts.anomalies, facts.settings))


def _row(facts: PageFacts, k: int) -> dict[str, Any]:
    view, anomalies = facts.view, facts.anomalies
    gone = bool(view.suppressed[k])
    effect = ""
    if anomalies is not None:
        effect = points(float(anomalies.effect[k, -1]))
        if anomalies.qvalue[k, -1] <= facts.settings.anomalies.rate:
            effect += " *"
    return {
        "name": view.name(k),
        "n_nodes": int(view.n_nodes[k]),
        "labelled": "" if gone else count(view.n_labelled[k]),
        "share": "suppressed" if gone else share(float(view.prevalence[k, -1])),
        "interval": span(view.lower[k, -1], view.upper[k, -1]),
        "remarks": "; ".join(_remarks(facts, k)),
        "effect": effect,
        "quality": QUALITIES[view.quality[k, -1]],
    }


def _remarks(facts: PageFacts, k: int) -> list[str]:
    note = facts.view.notes[k].as_py()
    return [plain(note, 160)] if note else []


def _total(facts: PageFacts) -> dict[str, Any] | None:
    """The estimate of the last class for all nodes together."""
    rows = [] if facts.totals is None else facts.totals.to_pylist()
    mine = [row for row in rows if str(row["class"]) == facts.view.classes[-1]]
    if not mine or mine[0]["prevalence"] is None:
        return None
    row = {name: np.nan if value is None else value for name, value in mine[0].items()}
    kind = "unlabelled " if facts.settings.labelled == "exclude" else ""
    return {
        "nodes": f"{kind}{facts.naming.nodes()}",
        "share": share(row["prevalence"]),
        "span": span(row["lower"], row["upper"]),
        "members": row["n_nodes"],
        "labelled": row["n_labelled"],
    }
