"""The settings as text: name, allowed values, default, meaning."""

from __future__ import annotations

import typing
from typing import Any

import yaml
from pydantic import BaseModel

from xnq_dist.core.config import Settings

__all__ = ["settings_help", "settings_rows", "typed"]

WORDS = {"str": "text", "bool": "true, false", "int": "integer", "float": "number"}
"""Names of types in the help text."""


def settings_rows(
    model: type[BaseModel] = Settings, prefix: str = ""
) -> list[tuple[str, str, str, str]]:
    """Name, allowed values, default and meaning of every setting."""
    rows: list[tuple[str, str, str, str]] = []
    for name, field in model.model_fields.items():
        kind: Any = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            rows += settings_rows(kind, f"{prefix}{name}.")
            continue
        default = typed(field.default)
        schema: dict[str, Any] = {"description": field.description or ""}
        if callable(field.json_schema_extra):
            field.json_schema_extra(schema)
        values = ", ".join(schema["enum"]) if "enum" in schema else _values(kind)
        rows.append((prefix + name, values, default, schema["description"]))
    return rows


def typed(value: Any) -> str:
    """A setting's value as the user types it: YAML on one line."""
    listed = list(value) if isinstance(value, tuple) else value
    text = yaml.safe_dump(listed, default_flow_style=True, width=1000)
    return text.removesuffix("...\n").strip()


def _values(kind: Any) -> str:
    origin = typing.get_origin(kind)
    if origin is typing.Literal:
        return ", ".join(str(value) for value in typing.get_args(kind))
    if origin is typing.Annotated:
        return _values(typing.get_args(kind)[0])
    if kind is type(None):
        return "null"
    arguments = typing.get_args(kind)
    if origin is list:
        return "list"
    if origin is dict:
        return "mapping"
    if origin is tuple:
        return f"list of: {_values(arguments[0])}"
    if arguments:
        return ", ".join(
            dict.fromkeys(_values(part) for part in arguments if part is not Ellipsis)
        )
    name = str(kind.__name__)
    return WORDS.get(name, name)


def settings_help() -> str:
    """Help text of all settings, two lines per setting."""
    lines = ["", "Settings (--set KEY=VALUE, or the same names in a YAML file):", ""]
    for name, values, default, meaning in settings_rows():
        lines.append(f"  {name} = {default}  [{values}]")
        lines.append(f"      {meaning}")
    return "\n".join(lines)
