"""Turns pydantic's errors about settings into a message for users."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from pydantic import ValidationError

__all__ = ["explain", "renamed"]

RENAMED = {"quality.suppressed_below": "disclosure.min_size"}
"""Settings of earlier versions, and their present names."""


def renamed(values: Mapping[str, Any]) -> dict[str, Any]:
    """Recorded settings with their present names, as nested mappings."""
    new: dict[str, Any] = {**values}
    for old, present in RENAMED.items():
        (section, name), (to, key) = old.split("."), present.split(".")
        if name in (new.get(section) or {}):
            new[section] = dict(new[section])
            new[to] = {key: max(new[section].pop(name), 1), **(new.get(to) or {})}
    return new


def explain(error: ValidationError, keys: Collection[str]) -> str:
    """One message with each invalid key, its value and what is allowed.

    Parameters
    ----------
    keys
        All settings with their section, such as ``intervals.level``.
    """
    import difflib

    faults: dict[str, list[str]] = {}
    values: dict[str, Any] = {}
    for item in error.errors(include_url=False):
        path = ""
        # Pydantic adds the branch of a union to the location: keep the setting's key.
        for part in item["loc"]:
            longer = f"{path}.{part}" if path else str(part)
            known = any(k == longer or k.startswith(longer + ".") for k in keys)
            if path in keys or (not known and item["type"] != "extra_forbidden"):
                break
            path = longer
        if item["type"] == "extra_forbidden":
            near = difflib.get_close_matches(path, keys, n=1, cutoff=0.6)
            hint = f" (did you mean {near[0]}?)" if near else ""
            text = f"unknown setting{hint}"
            if path in RENAMED:
                text = f"this setting is now {RENAMED[path]}"
        else:
            text = item["msg"].removeprefix("Value error, ")
            text = text[:1].lower() + text[1:]
        faults.setdefault(path, []).append(text)
        if item["type"] not in ("extra_forbidden", "value_error"):
            values[path] = item["input"]
    sentences = []
    for path, texts in faults.items():
        shown = f" = {values[path]!r}" if path in values else ""
        where = f"{path}{shown}: " if path else ""
        sentences.append(where + ", or ".join(dict.fromkeys(texts)))
    return "settings: " + "; ".join(sentences)
