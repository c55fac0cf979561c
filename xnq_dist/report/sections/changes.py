"""Section on changes since earlier results."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from xnq_dist.report.page_data import Page
from xnq_dist.steps.history import is_named

__all__ = ["SHOWN", "body"]


SHOWN = 15
"""Number of communities in the table."""
NAMED = 12
"""Maximum number of new or gone communities named in a sentence."""


def body(facts: Page) -> str:
    """Changes of the last class since the earlier results."""
    earlier, table = facts.earlier, facts.tables.get("changes")
    if table is None or earlier is None:
        why = facts.facts.get("not_compared", "")
        return why and facts.render("changes.html.j2", changes=None, not_compared=why)
    rows = table.filter(is_named(table["class"], facts.view.classes[-1]))
    moved = rows.filter(pc.fill_null(rows["changed"], False))
    new, gone = (
        rows.filter(pc.equal(rows["status"], status)) for status in ("new", "gone")
    )
    shown = {
        "created": earlier.manifest.facts["created"],
        "count": len(moved),
        "up": pc.sum(pc.greater(moved["effect"], 0)).as_py() or 0,
        "both": len(rows) - len(new) - len(gone),
        "compared": len(rows) - rows["qvalue"].null_count,
        "new": len(new),
        "new_names": _named(new, "n_nodes"),
        "gone": len(gone),
        "gone_names": _named(gone, "n_nodes_before"),
        "rows": moved.slice(0, SHOWN).to_pylist(),
    }
    return facts.render("changes.html.j2", changes=shown)


def _named(rows: pa.Table, size: str) -> list[Any]:
    """Names of the largest of some communities."""
    order = pc.sort_indices(rows, [(size, "descending")])
    return list(rows["community"].take(order[:NAMED]).to_pylist())
