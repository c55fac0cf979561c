"""Section on the history: shares by date of communities that changed, and the top."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from xnq_dist.core.plain_text import plain
from xnq_dist.report.page_data import Page
from xnq_dist.report.sections.changes import SHOWN
from xnq_dist.report.wording import share
from xnq_dist.steps.history import History
from xnq_dist.steps.view import NAME_LIMIT

__all__ = ["body"]


TOP = 10
"""Number of communities with the highest shares in the table."""
RUNS = 8
"""Maximum number of runs, the newest ones."""


def body(facts: Page) -> str:
    """Communities by run, from two runs on."""
    every, view = facts.table("history"), facts.view
    if every is None or not view.classes:
        return ""
    history = History.of(every)
    runs = history.runs()
    if len(runs) < 2:
        return ""
    of_class = view.classes[-1]
    changed = history.changed(of_class)["community"].slice(0, SHOWN).to_pylist()
    top = view.texts(view.ranked[~view.suppressed[view.ranked]][:TOP]).to_pylist()
    names = [*dict.fromkeys(map(str, [*changed, *top]))]
    rows = history.select(of_class=of_class)
    text = pc.cast(rows["community"], pa.string())
    rows = rows.filter(pc.is_in(text, value_set=pa.array(names, pa.string())))
    columns = (rows[name].to_pylist() for name in ("community", "run", "prevalence"))
    shares = {
        (str(name), run): "" if value is None else share(value)
        for name, run, value in zip(*columns, strict=True)
    }
    return facts.render(
        "history.html.j2",
        rows=[
            {
                "name": plain(name, NAME_LIMIT),
                "changed": name in set(map(str, changed)),
                "shares": [shares.get((name, run.run), "") for run in runs[-RUNS:]],
            }
            for name in names
        ],
        dates=[run.created[:16].replace("T", " ") for run in runs[-RUNS:]],
        runs=len(runs),
        since=runs[0].created[:10],
        others=history.others,
    )
