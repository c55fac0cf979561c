"""The settings by name, their allowed values in words, and messages about errors."""

from __future__ import annotations

import typing
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

__all__ = ["explain", "known_settings", "renamed", "values_of"]

WORDS = {"str": "text", "bool": "true, false", "int": "integer", "float": "number"}
"""Names of types."""
CHECKED = ("value_error", "character", "choice", "codec")
"""Types of errors whose message was written for users."""

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
    if (new.get("cluster") or {}).get("kind") == "single":
        new["cluster"] = {**new["cluster"], "kind": "auto", "workers": 1}
    return new


def known_settings(
    model: type[BaseModel], prefix: str = ""
) -> Iterator[tuple[str, FieldInfo]]:
    """Name, such as ``intervals.level``, and definition of every setting."""
    for name, field in model.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield from known_settings(kind, f"{prefix}{name}.")
        else:
            yield prefix + name, field


def values_of(kind: Any) -> str:
    """The values that a type allows, in words."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Literal:
        return ", ".join(map(str, arguments))
    if origin is typing.Annotated:
        return values_of(arguments[0])
    if kind is type(None):
        return "null"
    if origin is tuple and Ellipsis not in arguments:
        return f"[{', '.join(map(values_of, arguments))}]"
    if origin in (list, tuple):
        return f"list of: {values_of(arguments[0])}"
    if origin is dict:
        return "mapping"
    if arguments:
        return ", ".join(dict.fromkeys(map(values_of, arguments)))
    name = str(kind.__name__)
    return WORDS.get(name, name)


def explain(error: ValidationError, model: type[BaseModel]) -> str:
    """One message with each invalid key of a model, its value and what is allowed."""
    import difflib

    keys = dict(known_settings(model))
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
            if path in keys and item["type"] not in CHECKED:
                text = _plain(item["type"], text, keys[path])
        faults.setdefault(path, []).append(text)
        if item["type"] not in ("extra_forbidden", "value_error"):
            values[path] = item["input"]
    sentences = []
    for path, texts in faults.items():
        shown = f" = {values[path]!r}" if path in values else ""
        where = f"{path}{shown}: " if path else ""
        named = dict.fromkeys(filter(None, texts))
        if not named:
            named = {f"allowed: {values_of(keys[path].annotation)}": None}
        sentences.append(where + ", or ".join(named))
    return "settings: " + "; ".join(sentences)


def _plain(kind: str, text: str, field: FieldInfo) -> str:
    """Pydantic's message in plain words; empty if the allowed values say it."""
    if kind.startswith(("greater_than", "less_than")):
        return text.replace("input should", "must")
    if kind.endswith("too_short"):
        return "must not be empty"
    return str(field.description) if kind == "string_pattern_mismatch" else ""
