"""A table of an evaluation in Markdown, aligned so that a terminal can show it too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from xnq_dist.core.plain_text import plain

__all__ = ["EMPTY", "RenderedTable", "to_markdown"]

EMPTY = "-"
"""Text of a cell without a measurement."""


@dataclass(frozen=True)
class RenderedTable:
    """A table with a heading for each column; the first column names the rows."""

    name: str
    """Name of its file."""
    title: str
    header: Sequence[str]
    rows: Mapping[tuple[str, str], Sequence[str]]
    """Texts of the other columns by group and name of the row."""
    note: str
    """Sentences below the table."""


def to_markdown(table: RenderedTable) -> str:
    """The table in Markdown; a group's name is in a row before its rows."""
    lines = [list(table.header)]
    for group, rows in groupby(table.rows.items(), lambda row: row[0][0]):
        if group:
            lines.append([f"*{group}*", *[""] * (len(table.header) - 1)])
        lines += [[name, *texts] for (_, name), texts in rows]
    lines = [[plain(text).replace("|", "\\|") for text in line] for line in lines]
    first, *others = (max(3, *map(len, each)) for each in zip(*lines, strict=True))
    lines.insert(1, ["-" * first, *("-" * (width - 1) + ":" for width in others)])
    made = [f"**{table.title}**", ""]
    for name, *texts in lines:
        padded = [text.rjust(width) for text, width in zip(texts, others, strict=True)]
        made.append(f"| {' | '.join([name.ljust(first), *padded])} |")
    return "\n".join([*made, "", table.note]) + "\n"
