"""Describes differences between the recorded and the current inputs of a stage."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from xnq_dist.core.redaction import redacted

__all__ = ["differences", "shown"]


def differences(
    old: Mapping[str, Any], new: Mapping[str, Any], prefix: str = ""
) -> list[str]:
    """The differences, one phrase each, in key order.

    For example ``key: old -> new`` for a setting, and ``edges: other values, in 10,000
    rows`` for a table.
    """
    new = json.loads(json.dumps(new, default=str))
    phrases: list[str] = []
    for key in sorted({*old, *new}):
        before, after = old.get(key), new.get(key)
        if before == after:
            continue
        if isinstance(after, dict) and "digest" in after:
            phrases.append(f"{key}: other values, in {after['rows']:,} rows")
        elif isinstance(before, dict) and isinstance(after, dict):
            within = "" if key == "settings" else f"{key}."
            phrases += differences(before, after, prefix + within)
        else:
            phrases.append(f"{prefix}{key}: {shown(before)} -> {shown(after)}")
    return phrases


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
