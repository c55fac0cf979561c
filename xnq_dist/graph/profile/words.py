"""The profile of the tables as lines of text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from xnq_dist.graph.profile.columns import LEVELS, ColumnProfile
from xnq_dist.graph.profile.inputs import InputProfile

__all__ = ["lines"]

SHOWN = 20
"""Classes in the line of the labels."""


def lines(profile: InputProfile, few: int, brief: bool = False) -> Iterator[str]:
    """Yield the lines that ``xnq-dist profile`` prints; `brief`: those of a run.

    Numbers of labelled nodes below `few` (`disclosure.min_size`) are not shown.
    """
    for table in (profile.nodes, profile.edges, profile.memberships):
        if table is None:
            continue
        matched = table.facts.get("matched")
        # Rounded down: 100 % has no row that does not match.
        share = "" if matched is None else f", {_percent(matched, table.rows)} % match"
        yield f"{table.what} {table.path}: {table.rows:,} rows{share}"
        width = max(len(column.name) for column in table.columns)
        for column in () if brief else table.columns:
            yield f"  {column.name:<{width}}  {_column(column)}"
    counts = [
        f"{value}: {f'fewer than {few}' if rows < few else f'{rows:,}'}"
        for value, rows in profile.classes[:SHOWN]
    ]
    more = [f"and {n:,} more"] if (n := len(profile.classes) - SHOWN) > 0 else []
    isolated = f"{profile.edges.facts['isolated']:,} nodes have no edge"
    yield f"labels: {'; '.join([*counts, *more, isolated])}"
    for each in () if brief else profile.findings:
        yield f"{each.level}: {each.text} ({each.code})"


def _percent(part: int, rows: int) -> float:
    return part * 1000 // rows / 10


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
