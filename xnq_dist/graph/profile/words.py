"""The profile of the tables as lines of text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from xnq_dist.graph.profile.columns import LEVELS, ColumnProfile, TableProfile
from xnq_dist.graph.profile.inputs import InputProfile

__all__ = ["lines"]

FEW = 10
"""Labelled nodes below which the number of a class is not shown."""


def lines(profile: InputProfile) -> Iterator[str]:
    """Yield the lines that ``xnq-dist profile`` prints."""
    for table in (profile.nodes, profile.edges, profile.memberships):
        if table is not None:
            yield from _table(table)
    counts = [
        f"{value} {f'fewer than {FEW}' if rows < FEW else f'{rows:,}'}"
        for value, rows in profile.classes
    ]
    yield f"labels: {', '.join(counts[:20])}{', ...' if len(counts) > 20 else ''}"
    facts = profile.edges.facts
    if not facts["mismatch"]:
        yield f"isolated nodes: {facts['isolated']:,} of {facts['nodes']:,}"
    for each in profile.findings:
        yield f"{each.level}: {each.text} ({each.code})"


def _table(table: TableProfile) -> Iterator[str]:
    matched = table.facts.get("matched")
    share = "" if matched is None else f", {100 * matched / table.rows:.1f} % match"
    yield f"{table.what} {table.path}: {table.rows:,} rows{share}"
    width = max(len(column.name) for column in table.columns)
    for column in table.columns:
        yield f"  {column.name:<{width}}  {_column(column)}"


def _column(column: ColumnProfile) -> str:
    parts = [column.kind, f"{column.nulls:,} nulls" if column.nulls else "no nulls"]
    if column.low is not None:
        parts.append(f"{_short(column.low)} to {_short(column.high)}")
    if column.distinct is not None:
        parts.append(f"{column.distinct:,} distinct")
    elif column.kind in ("text", "integers", "numbers") and column.levels:
        parts.append(f"more than {LEVELS:,} distinct")
    return ", ".join(parts)


def _short(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
