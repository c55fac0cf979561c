"""The settings as text: name, allowed values, default, meaning."""

from __future__ import annotations

import textwrap
from collections.abc import Collection
from typing import Any

import yaml

from xnq_dist.core.config import known_settings, values_of
from xnq_dist.core.settings import Settings

__all__ = ["COMMON", "common_settings", "settings_help", "settings_rows", "typed"]

COMMON = {
    "Tables": (
        "columns.node_id",
        "columns.label",
        "columns.features",
        "columns.weight",
        "input.directed",
        "input.unknown_nodes",
    ),
    "Labels and communities": (
        "labels.missing",
        "labels.drawn",
        "communities",
        "labelled",
    ),
    "Method": ("method", "quantifier", "reservoir.dim", "reservoir.supersteps", "seed"),
    "Results": ("report.class", "disclosure.min_size"),
    "Machine": ("cluster.kind", "cluster.workers", "cluster.memory_limit", "backend"),
}
"""Settings that most users change, by what they are about."""


def settings_rows() -> list[tuple[str, str, str, str]]:
    """Name, allowed values, default and meaning of every setting."""
    rows: list[tuple[str, str, str, str]] = []
    for name, field in known_settings(Settings):
        schema: dict[str, Any] = {"description": field.description or ""}
        if callable(field.json_schema_extra):
            field.json_schema_extra(schema)
        known = ", ".join(schema.get("enum", ())) or values_of(field.annotation)
        rows.append((name, known, typed(field.default), schema["description"]))
    return rows


def typed(value: Any) -> str:
    """A setting's value as the user types it: YAML on one line."""
    listed = list(value) if isinstance(value, tuple) else value
    text = yaml.safe_dump(listed, default_flow_style=True, width=1000)
    return text.removesuffix("...\n").strip()


def settings_help(names: Collection[str] | None = None) -> str:
    """Help text of these settings, two lines per setting; None: of all."""
    lines = ["Settings (--set KEY=VALUE, or the same names in a YAML file):", ""]
    for name, values, default, meaning in settings_rows():
        if names is None or name in names:
            lines.append(f"  {name} = {default}  [{values}]")
            lines.append(f"      {meaning}")
    return "\n".join(lines)


def common_settings() -> str:
    """The settings that most users change, by what they are about."""
    rows = {name: (default, meaning) for name, _, default, meaning in settings_rows()}
    lines = ["Common settings (--set KEY=VALUE, or the same names in a YAML file):"]
    for title, names in COMMON.items():
        lines.append(f"\n  {title}")
        for name in names:
            default, meaning = rows[name]
            key = f"{name} = {default}"
            short = textwrap.shorten(
                meaning, 94 - max(34, len(key)), placeholder=" ..."
            )
            lines.append(f"    {key:<34} {short}")
    lines.append(f"\nAll {len(rows)} settings: xnq-dist settings")
    return "\n".join(lines)
