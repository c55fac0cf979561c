"""The settings as text: name, allowed values, default, meaning."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Collection
from typing import Any

import yaml

from xnq_dist.core.config import known_settings, meaning_of, values_of
from xnq_dist.core.settings import Settings

__all__ = [
    "COMMON",
    "GROUPS",
    "group_of",
    "settings_help",
    "settings_rows",
    "typed",
]

GROUPS = {
    "Tables": ("columns", "input", "features", "checks"),
    "Labels": ("labels", "labelled"),
    "Communities": ("communities", "memberships", "leiden"),
    "Method": ("method", "quantifier", "auto", "seed", "reservoir", "readout"),
    "Machine": (
        *("cluster", "backend", "partitions", "partitioner", "scratch"),
        *("input.memory", "readout.memory", "exchange", "checkpoint"),
    ),
    "Results": (
        *("intervals", "quality", "disclosure", "anomalies", "report"),
        *("embeddings", "retention", "watch"),
    ),
}
"""What settings are about: names and sections; a name counts before its section."""
INDENT = " " * 6
COMMON = (
    *("columns.node_id", "columns.label", "columns.features"),
    *("input.directed", "input.unknown_nodes"),
    *("labels.missing", "labels.drawn", "labelled", "communities"),
    *("method", "quantifier", "reservoir.dim"),
    *("cluster.kind", "cluster.workers", "report.class", "disclosure.min_size"),
)
"""Settings that most users change."""


def group_of(name: str) -> str:
    """What a setting is about."""
    groups = {part: title for title, parts in GROUPS.items() for part in parts}
    return groups.get(name) or groups[name.partition(".")[0]]


def settings_rows() -> list[tuple[str, str, str, str]]:
    """Name, allowed values, default and meaning of every setting, by group."""
    rows: list[tuple[str, str, str, str]] = []
    for name, field in known_settings(Settings):
        schema: dict[str, Any] = {"description": meaning_of(field)}
        if callable(field.json_schema_extra):
            field.json_schema_extra(schema)
        known = ", ".join(schema.get("enum", ())) or values_of(field.annotation)
        rows.append((name, known, typed(field.default), schema["description"]))
    titles = list(GROUPS)
    return sorted(rows, key=lambda row: titles.index(group_of(row[0])))


def typed(value: Any) -> str:
    """A setting's value as the user types it: YAML on one line."""
    listed = list(value) if isinstance(value, tuple) else value
    text = yaml.safe_dump(listed, default_flow_style=True, width=1000)
    return text.removesuffix("...\n").strip()


def settings_help(
    names: Collection[str] | None = None, lines: int | None = None
) -> str:
    """Help text of these settings, with `lines` of their meaning; None: all."""
    columns = shutil.get_terminal_size().columns - len(INDENT)
    text = ["Settings (--set KEY=VALUE, or the same names in a YAML file):"]
    group = ""
    for name, values, default, meaning in settings_rows():
        if names is not None and name not in names:
            continue
        if group != (group := group_of(name)):
            text.append(f"\n{group}")
        text.append(f"  {name} = {default}  [{values}]")
        shown = textwrap.fill(meaning, columns, max_lines=lines, placeholder=" ...")
        text.append(textwrap.indent(shown, INDENT))
    return "\n".join(text)
