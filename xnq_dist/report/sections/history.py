"""Section on the history: sparklines of communities that changed, and of the top."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from xnq_dist.core.arrays import Floats
from xnq_dist.core.plain_text import plain
from xnq_dist.report.page_data import Page
from xnq_dist.report.sections.changes import SHOWN
from xnq_dist.report.wording import difference, points, share
from xnq_dist.steps.history import History
from xnq_dist.steps.view import NAME_LIMIT

__all__ = ["body"]


TOP = 10
"""Number of communities with the highest shares in the table."""
RUNS = 30
"""Maximum number of runs, the newest ones."""
WIDTH, HEIGHT, EDGE = 160.0, 34.0, 3.0
"""Size of a sparkline and its margin, in pixels."""
COLUMNS = ("prevalence", "lower", "upper", "effect", "effect_lower", "effect_upper")


def body(facts: Page) -> str:
    """Communities by run, from two runs on."""
    every, view = facts.table("history"), facts.view
    if every is None or not view.classes:
        return ""
    history = History.of(every)
    runs = history.runs()[-RUNS:]
    if len(runs) < 2:
        return ""
    of_class = view.classes[-1]
    changed = history.changed(of_class)["community"].slice(0, SHOWN).to_pylist()
    top = view.texts(view.ranked[~view.suppressed[view.ranked]][:TOP]).to_pylist()
    values = _by_run(
        history.select(of_class=of_class),
        [*dict.fromkeys(map(str, [*changed, *top]))],
        [run.run for run in runs],
    )
    shares = [each[:3] for each in values.values()]
    highest = float(np.nanmax(shares, initial=0.01)) if shares else 0.01
    places = _places([run.created for run in runs])
    flagged = set(map(str, changed))
    rows = []
    for name, (p, lower, upper, *effect) in values.items():
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


def _by_run(table: pa.Table, names: list[str], runs: list[str]) -> dict[str, Floats]:
    """Values of `COLUMNS` by run for each community, shape (6, R); NaN: none."""
    values = {name: np.full((len(COLUMNS), len(runs)), np.nan) for name in names}
    text = pc.cast(table["community"], pa.string())
    some = table.filter(pc.is_in(text, value_set=pa.array(names, pa.string())))
    for row in some.to_pylist():
        if row["run"] in runs:
            found = np.array([row[name] for name in COLUMNS], np.float64)
            values[str(row["community"])][:, runs.index(row["run"])] = found
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
