"""Section on the history: shares by date of communities that changed, and the top."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from xnq_dist.report.page_data import Page
from xnq_dist.report.sections.changes import SHOWN
from xnq_dist.report.wording import share
from xnq_dist.steps.history import History

__all__ = ["body"]


TOP = 10
"""Number of communities with the highest shares in the table."""
RUNS = 8
"""Maximum number of runs, the newest ones."""


def body(facts: Page) -> str:
    """Communities by run, from two runs on."""
    every, view = facts.tables.get("history"), facts.view
    if every is None:
        return ""
    history, of_class = History(every), view.classes[-1]
    runs = history.runs()
    if len(runs) < 2:
        return ""
    shown = runs[-RUNS:]
    changed = history.changed(of_class)["community"][:SHOWN]
    top = view.names.take(view.ranked[~view.suppressed[view.ranked]][:TOP])
    names = dict.fromkeys(map(str, [*changed.to_pylist(), *top.to_pylist()]))
    rows = history.select(of_class=of_class)
    text = pc.cast(rows["community"], pa.string())
    rows = rows.filter(pc.is_in(text, value_set=pa.array(names, pa.string())))
    shares = {
        (str(row["community"]), row["run"]): share(row["prevalence"])
        for row in rows.filter(pc.is_valid(rows["prevalence"])).to_pylist()
    }
    return facts.render(
        "history.html.j2",
        rows=[
            {
                "name": name,
                "changed": place < len(changed),
                "shares": [shares.get((name, run.run), "") for run in shown],
            }
            for place, name in enumerate(names)
        ],
        dates=[run.created[:16].replace("T", " ") for run in shown],
        runs=len(runs),
        since=runs[0].created[:10],
        others=history.others,
    )
