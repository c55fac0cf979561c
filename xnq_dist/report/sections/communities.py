"""Section with the table of communities, by prevalence and by difference."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from xnq_dist.core.pictures import plain
from xnq_dist.core.records import PartRecord
from xnq_dist.report.compared import ordered
from xnq_dist.report.page_facts import PageFacts
from xnq_dist.report.plots import shown_classes
from xnq_dist.report.view import PrevalenceView
from xnq_dist.report.wording import points, share, span

__all__ = ["RECORDS", "body"]

RECORDS = (PartRecord(name="communities", title="Communities", rank=60),)

TOP, BOTTOM = 100, 20
"""Rows from the top and the bottom of the table if there are more communities."""
CLASSES_SHOWN = 8
"""Maximum number of classes in the table."""


def body(facts: PageFacts) -> str:
    """The communities of the highest and lowest prevalence, or all communities."""
    view, settings = facts.view, facts.settings
    total = len(view.names)
    shortened = total > TOP + BOTTOM
    # The share of one of two classes determines that of the other.
    limit = 1 if len(view.classes) == 2 else CLASSES_SHOWN
    columns = shown_classes(view.prevalence, limit) if view.classes else []
    anomalies, by_effect = facts.anomalies, None
    effects = np.full(total, np.nan) if anomalies is None else anomalies.effect[:, -1]
    place, effect_place = np.empty((2, total), np.int64)
    order = ordered(np.abs(effects), view.n_nodes)
    for row, places in (place, view.ranked), (effect_place, order):
        row[places] = np.arange(1, total + 1)

    def rows(chosen: NDArray[np.int64]) -> list[dict[str, Any]]:
        """Table rows of the chosen communities."""
        return [line(k) for k in chosen.tolist()]

    def line(k: int) -> dict[str, Any]:
        has, effect = bool(view.classes), float(effects[k])
        value, *ends = view.benchmarked[k].tolist()
        return {
            "rank": int(place[k]),
            "name": view.name(k),
            "n_nodes": int(view.n_nodes[k]),
            "n_labelled": int(view.n_labelled[k]),
            "n_estimated": int(view.n_estimated[k]),
            "values": [float(view.prevalence[k, c]) for c in columns],
            "interval": span(view.lower[k, -1], view.upper[k, -1]) if has else "",
            "benchmarked": f"{share(value)} {span(*ends)}".strip() if has else "",
            "remarks": "; ".join(_remarks(view, k)),
            "effect": points(effect),
            "effect_rank": 0 if np.isnan(effect) else int(effect_place[k]),
            "beyond": anomalies is not None
            and anomalies.qvalue[k, -1] <= settings.anomalies.rate,
        }

    if anomalies is not None:
        by_effect = rows(order[: TOP + BOTTOM])
    return facts.render(
        "communities",
        columns=[f"class {plain(view.classes[c], 40)}" for c in columns],
        hidden_classes=len(view.classes) - len(columns) if limit > 1 else 0,
        rows=rows(view.ranked[:TOP] if shortened else view.ranked),
        tail=rows(view.ranked[-BOTTOM:]) if shortened else [],
        by_effect=by_effect,
        communities=total,
        left_out=total - TOP - BOTTOM,
        intervals=view.has_intervals,
        benchmarked=view.has_benchmarks,
    )


def _remarks(view: PrevalenceView, k: int) -> list[str]:
    remarks = []
    if not view.converged[k]:
        remarks.append("not converged")
    if view.flagged[k]:
        remarks.append("large expected error")
    note = view.notes[k].as_py()
    if note:
        remarks.append(plain(note, 160))
    return remarks
