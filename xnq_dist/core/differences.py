"""Describes differences between the recorded and the current inputs of a stage."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from xnq_dist.core.redaction import redacted

__all__ = ["differences", "is_table", "shown"]

STAGES_BEFORE = ("graph", "select", "embeddings", "labels", "readout", "posteriors")
FORMAT = "format"


def differences(
    old: Mapping[str, Any], new: Mapping[str, Any], prefix: str = ""
) -> list[str]:
    """The differences, one phrase each, in key order.

    For example ``key: old -> new`` for a setting, ``edges: 10,214 instead of 10,000``
    for a table and ``the stage graph changed`` for an earlier stage; without digests.
    """
    new = json.loads(json.dumps(new, default=str))
    phrases: list[str] = []
    for key in sorted({*old, *new}):
        before, after = old.get(key), new.get(key)
        if before == after:
            continue
        if is_table(before) or is_table(after):
            phrases.append(_table(key, before, after))
        elif isinstance(before, dict) and isinstance(after, dict):
            within = "" if key == "settings" else f"{key}."
            phrases += differences(before, after, prefix + within)
        elif key in STAGES_BEFORE and not prefix:
            phrases.append(f"the stage {key} changed")
        elif key == FORMAT and not prefix:
            phrases.append("this version of xnq-dist writes another file format")
        else:
            phrases.append(f"{prefix}{key}: {_short(before)} -> {_short(after)}")
    return phrases


def is_table(value: Any) -> bool:
    """Whether an input is the digest of a table."""
    return isinstance(value, dict) and "digest" in value


def _table(key: str, before: Any, after: Any) -> str:
    if not is_table(after):
        return f"{key}: no longer from a table"
    now = f"{after['rows']:,}"
    if not is_table(before):
        return f"{key}: {now} from a table"
    if before["rows"] == after["rows"]:
        return f"{key}: {now} as before, but with other values"
    return f"{key}: {now} instead of {before['rows']:,}"


def shown(value: Any) -> str:
    """A value as text for the log: floats with six significant digits.

    Examples
    --------
    >>> shown((0.30000000000000004, 2))
    '[0.3, 2]'
    """
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(shown, value))}]"
    return json.dumps(redacted(value), default=str)


def _short(value: Any) -> str:
    text = shown(value)
    return text if len(text) <= 60 else text[:57] + "..."
