"""Section on the history: sparklines of communities that changed, and of the top."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from xnq_dist.core.arrays import Floats
from xnq_dist.core.plain_text import plain
from xnq_dist.report.compared import SHOWN
from xnq_dist.report.page_facts import PageFacts
from xnq_dist.report.view import NAME_LIMIT
from xnq_dist.report.wording import difference, points, share

__all__ = ["body"]


TOP = 10
"""Number of communities with the highest shares in the table."""
RUNS = 30
"""Maximum number of runs, the newest ones."""
WIDTH, HEIGHT, EDGE = 160.0, 34.0, 3.0
"""Size of a sparkline and its margin, in pixels."""


def body(facts: PageFacts) -> str:
    """Communities by run, from two runs on."""
    history, view = facts.history, facts.view
    if history is None or not view.classes or not len(view.names):
        return ""
    runs = history.runs()[-RUNS:]
    if len(runs) < 2:
        return ""
    of_class = view.classes[-1]
    table = history.select(of_class=of_class)
    changed = history.changed(of_class)["community"].slice(0, SHOWN)
    top = view.texts(view.ranked[~view.suppressed[view.ranked]][:TOP])
    chosen = pc.unique(
        pa.concat_arrays(
            [pc.cast(names, pa.string()) for names in (changed.combine_chunks(), top)]
        )
    )
    values = _by_run(table, chosen, [run.run for run in runs])
    highest = float(np.nanmax(values[:3], initial=0.01))
    places = _places([run.created for run in runs])
    flagged = set(pc.cast(changed, pa.string()).to_pylist())
    rows = []
    for k, name in enumerate(chosen.to_pylist()):
        p, lower, upper, *effect = values[:, k]
        known = p[~np.isnan(p)]
        rows.append(
            {
                "name": plain(name, NAME_LIMIT),
                "first": share(known[0]) if len(known) else "",
                "last": share(p[-1]),
                "effect": points(effect[0][-1]),
                "interval": difference(effect[1][-1], effect[2][-1]),
                "changed": name in flagged,
                "lines": _segments(places, p, p, highest),
                "bands": _segments(places, lower, upper, highest),
                "values": [share(value) for value in p],
            }
        )
    return facts.render(
        "history",
        rows=rows,
        dates=[run.created[:16].replace("T", " ") for run in runs],
        runs=runs,
        others=history.others,
        highest=share(highest),
        level=facts.level,
        width=WIDTH,
        height=HEIGHT,
    )


def _by_run(table: pa.Table, names: pa.Array, runs: list[str]) -> Floats:
    """Values and effects by community and run, shape (6, K, R); NaN: none."""
    columns = ["prevalence", "lower", "upper", "effect", "effect_lower", "effect_upper"]
    row = pc.index_in(pc.cast(table["community"], pa.string()), value_set=names)
    column = pc.index_in(table["run"], value_set=pa.array(runs))
    known = pc.and_(pc.is_valid(row), pc.is_valid(column)).to_numpy()
    at = tuple(pc.fill_null(place, 0).to_numpy()[known] for place in (row, column))
    values = np.full((len(columns), len(names), len(runs)), np.nan)
    for k, name in enumerate(columns):
        found = pc.fill_null(pc.cast(table[name], pa.float64()), float("nan"))
        values[(k, *at)] = found.to_numpy()[known]
    return values


def _places(dates: list[str]) -> Floats:
    """Horizontal places of the runs by date."""
    seconds = np.array([datetime.fromisoformat(date).timestamp() for date in dates])
    if np.any(np.diff(seconds) <= 0):
        seconds = np.arange(len(dates), dtype=np.float64)
    span = (seconds - seconds[0]) / (seconds[-1] - seconds[0])
    return np.asarray(EDGE + span * (WIDTH - 2 * EDGE))


def _segments(x: Floats, lower: Floats, upper: Floats, highest: float) -> list[Any]:
    """Points of a line, or of a band, for each stretch of runs without a gap."""
    known = ~np.isnan(lower + upper)
    height = HEIGHT - EDGE - np.stack([lower, upper]) / highest * (HEIGHT - 2 * EDGE)
    edges = np.flatnonzero(np.diff(np.concatenate([[0], known, [0]])))
    found = []
    for first, last in edges.reshape(-1, 2).tolist():
        part = slice(first, last)
        points_of = list(zip(x[part], height[0, part], strict=True))
        if lower is not upper:
            points_of += list(zip(x[part], height[1, part], strict=True))[::-1]
        elif len(points_of) == 1:
            points_of = [(points_of[0][0] - 1, points_of[0][1]), points_of[0]]
        found.append(" ".join(f"{a:.1f},{b:.1f}" for a, b in points_of))
    return found
