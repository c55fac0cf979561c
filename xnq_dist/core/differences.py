"""What differs between the inputs of a stage then and now, in words."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from xnq_dist.core.redaction import redacted

__all__ = ["differences", "is_table"]

ROWS = {
    "nodes": "nodes",
    "features": "features",
    "edges": "edges",
    "labels": "labels",
    "roles": "roles",
    "label_weights": "label weights",
    "memberships": "memberships",
    "node_weights": "node weights",
    "benchmark": "benchmarks",
}
"""Tables by the name that an input has, and what messages call their rows."""
STAGES_BEFORE = ("graph", "select", "embeddings", "labels", "readout", "posteriors")
FORMAT = "format"


def differences(
    old: Mapping[str, Any], new: Mapping[str, Any], prefix: str = ""
) -> list[str]:
    """What differs, one phrase each, in key order.

    A setting reads ``key: old -> new``, a table ``edges: 10,214 instead of 10,000``,
    an earlier stage ``the stage graph is another``; digests are not shown.
    """
    new = json.loads(json.dumps(new, default=str))
    found: list[str] = []
    for key in sorted({*old, *new}):
        before, after = old.get(key), new.get(key)
        if before == after:
            continue
        if is_table(before) or is_table(after):
            found.append(_table(key, before, after))
        elif isinstance(before, dict) and isinstance(after, dict):
            within = "" if key == "settings" else f"{key}."
            found += differences(before, after, prefix + within)
        elif key in STAGES_BEFORE and not prefix:
            found.append(f"the stage {key} is another")
        elif key == FORMAT and not prefix:
            found.append("this version of the program writes other files")
        else:
            found.append(f"{prefix}{key}: {_short(before)} -> {_short(after)}")
    return found


def is_table(value: Any) -> bool:
    """Whether an input is what a table says, by its digest."""
    return isinstance(value, dict) and "digest" in value


def _table(key: str, before: Any, after: Any) -> str:
    what = ROWS.get(key, key)
    if not is_table(after):
        return f"{what}: from no table any more"
    now = f"{after['rows']:,}"
    if not is_table(before):
        return f"{what}: {now} from a table"
    if before["rows"] == after["rows"]:
        return f"{what}: {now} as before, but not the same"
    return f"{what}: {now} instead of {before['rows']:,}"


def _short(value: Any) -> str:
    text = json.dumps(redacted(value), default=str)
    return text if len(text) <= 60 else text[:57] + "..."
