"""What pydantic finds wrong with settings, in a sentence for their user."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from pydantic import ValidationError

__all__ = ["explain"]


def explain(error: ValidationError, keys: Collection[str]) -> str:
    """One sentence that names each key at fault, its value and what it takes.

    Parameters
    ----------
    keys
        Every setting there is, with its section: ``intervals.level``.
    """
    import difflib

    complaints: dict[str, list[str]] = {}
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
        else:
            text = item["msg"].removeprefix("Value error, ")
            text = text[:1].lower() + text[1:]
        complaints.setdefault(path, []).append(text)
        if item["type"] not in ("extra_forbidden", "value_error"):
            values[path] = item["input"]
    sentences = []
    for path, texts in complaints.items():
        shown = f" = {values[path]!r}" if path in values else ""
        where = f"{path}{shown}: " if path else ""
        sentences.append(where + ", or ".join(dict.fromkeys(texts)))
    return "settings: " + "; ".join(sentences)
