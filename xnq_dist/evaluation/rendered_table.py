"""A table of an evaluation, as Markdown and as text for a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from xnq_dist.core.errors import XnqError
from xnq_dist.core.plain_text import plain

__all__ = [
    "EMPTY",
    "Cell",
    "Mark",
    "RenderedTable",
    "RowGroup",
    "table_files",
    "to_markdown",
    "to_text",
]

Mark = Literal["", "best", "second"]

EMPTY = "-"
"""Text of a cell without a measurement."""


@dataclass(frozen=True)
class Cell:
    """One cell."""

    text: str = EMPTY
    bracketed: str = ""
    """A second value in brackets, such as the published one."""
    mark: Mark = ""


@dataclass(frozen=True)
class RowGroup:
    """A group of rows, with an optional heading."""

    rows: tuple[tuple[Cell, ...], ...]
    title: str = ""


@dataclass(frozen=True)
class RenderedTable:
    """A table with a heading for each column; the first column names the rows."""

    name: str
    """Name of its file."""
    title: str
    header: tuple[str, ...]
    groups: tuple[RowGroup, ...]
    notes: tuple[str, ...] = ()
    """Sentences below the table."""
    align: str = ""
    """``l`` or ``r`` for each column; by default only the first is left-aligned."""

    def __post_init__(self) -> None:
        width = len(self.header)
        if not self.align:
            object.__setattr__(self, "align", "l" + "r" * (width - 1))
        lengths = {len(row) for group in self.groups for row in group.rows}
        if len(self.align) != width or lengths - {width}:
            raise XnqError(
                f"table {self.name}: {width} headings, {len(self.align)} alignments, "
                f"rows of {sorted(lengths)} cells: all must have the same number"
            )


def table_files(tables: Sequence[RenderedTable]) -> dict[str, bytes]:
    """Every table as Markdown, by file name."""
    return {f"tables/{one.name}.md": to_markdown(one).encode() for one in tables}


def to_markdown(table: RenderedTable) -> str:
    """The table in Markdown: best bold, second underlined, `bracketed` in brackets."""

    def cell(entry: Cell) -> str:
        text = _escaped(entry.text)
        if entry.mark == "best":
            text = f"**{text}**"
        elif entry.mark == "second":
            text = f"<ins>{text}</ins>"
        return f"{text} ({_escaped(entry.bracketed)})" if entry.bracketed else text

    lines = [
        f"**{_escaped(table.title)}**",
        "",
        _pipes([_escaped(name) for name in table.header]),
        _pipes(["---:" if side == "r" else ":---" for side in table.align]),
    ]
    for group in table.groups:
        if group.title:
            blanks = [""] * (len(table.header) - 1)
            lines.append(_pipes([f"*{_escaped(group.title)}*", *blanks]))
        lines += [_pipes([cell(entry) for entry in row]) for row in group.rows]
    for note in table.notes:
        lines += ["", _escaped(note)]
    return "\n".join(lines) + "\n"


def to_text(table: RenderedTable) -> str:
    """The table as text for a terminal, without notes."""
    rows = [tuple(map(plain, table.header))]
    for group in table.groups:
        if group.title:
            rows.append((plain(group.title), *[""] * (len(table.header) - 1)))
        rows += [tuple(plain(cell.text) for cell in row) for row in group.rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(
            text.rjust(width) if side == "r" else text.ljust(width)
            for text, width, side in zip(row, widths, table.align, strict=True)
        ).rstrip()
        for row in rows
    ]
    return "\n".join([plain(table.title), *lines, ""])


_ESCAPES = {
    **{character: "\\" + character for character in "\\`*_[]|~$#"},
    **{"<": "&lt;", ">": "&gt;", "&": "&amp;"},
}


def _escaped(text: str) -> str:
    return "".join(_ESCAPES.get(character, character) for character in plain(text))


def _pipes(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
