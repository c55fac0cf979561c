"""One table, three renderings: Markdown, LaTeX (booktabs), HTML.

Every text is escaped in each of them; marks (best, second) and the figure printed
beside ours are part of the table, not of its text.
"""

from __future__ import annotations

import html as html_escapes
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from xnq_dist.core.errors import XnqError
from xnq_dist.core.pictures import plain

__all__ = [
    "EMPTY",
    "Cell",
    "Mark",
    "RenderedTable",
    "RowGroup",
    "to_html",
    "to_latex",
    "to_markdown",
]

Mark = Literal["", "best", "second"]

EMPTY = "-"
"""Text of a cell without a measurement."""


@dataclass(frozen=True)
class Cell:
    """One cell."""

    text: str = EMPTY
    beside: str = ""
    """A second figure, such as the published one."""
    mark: Mark = ""


@dataclass(frozen=True)
class RowGroup:
    """Rows between two rules."""

    rows: tuple[tuple[Cell, ...], ...]
    title: str = ""


@dataclass(frozen=True)
class RenderedTable:
    """A table with a heading for each column; the first column names the rows."""

    name: str
    """Of its file, and its label in LaTeX."""
    title: str
    header: tuple[str, ...]
    groups: tuple[RowGroup, ...]
    notes: tuple[str, ...] = ()
    """Sentences below the table."""
    align: str = ""
    """``l`` or ``r`` for each column; by default the first is left."""

    def __post_init__(self) -> None:
        width = len(self.header)
        if not self.align:
            object.__setattr__(self, "align", "l" + "r" * (width - 1))
        lengths = {len(row) for group in self.groups for row in group.rows}
        if len(self.align) != width or lengths - {width}:
            raise XnqError(
                f"table {self.name}: {width} headings, {len(self.align)} alignments, "
                f"rows of {sorted(lengths)} cells: give all the same number"
            )

    @property
    def n_rows(self) -> int:
        """Rows in all groups."""
        return sum(len(group.rows) for group in self.groups)


def to_markdown(table: RenderedTable) -> str:
    """GitHub's Markdown: best in bold, second underlined, published in brackets."""

    def cell(entry: Cell) -> str:
        text = _markdown(entry.text)
        if entry.mark == "best":
            text = f"**{text}**"
        elif entry.mark == "second":
            text = f"<ins>{text}</ins>"
        return f"{text} ({_markdown(entry.beside)})" if entry.beside else text

    rules = ["---:" if side == "r" else ":---" for side in table.align]
    lines = [
        f"**{_markdown(table.title)}**",
        "",
        _pipes([_markdown(name) for name in table.header]),
        _pipes(rules),
    ]
    for group in table.groups:
        if group.title:
            blanks = [""] * (len(table.header) - 1)
            lines.append(_pipes([f"*{_markdown(group.title)}*", *blanks]))
        lines += [_pipes([cell(entry) for entry in row]) for row in group.rows]
    for note in table.notes:
        lines += ["", _markdown(note)]
    return "\n".join(lines) + "\n"


def to_latex(table: RenderedTable) -> str:
    """LaTeX for the package booktabs; needs no other."""

    def cell(entry: Cell, side: str) -> str:
        text = _latex(entry.text)
        if entry.mark == "best":
            text = rf"\textbf{{{text}}}"
        elif entry.mark == "second":
            text = rf"\underline{{{text}}}"
        if not entry.beside:
            return text
        beside = rf"{{\footnotesize ({_latex(entry.beside)})}}"
        return rf"\shortstack[{side}]{{{text}\\{beside}}}"

    def line(cells: Sequence[str]) -> str:
        return "  " + " & ".join(cells) + r" \\"

    width = len(table.header)
    lines = [
        r"\begin{table}",
        rf"\caption{{{_latex(table.title)}}}\label{{tab:{_label(table.name)}}}",
        r"\centering\small",
        rf"\begin{{tabular}}{{{table.align}}}",
        r"\toprule",
        line(
            [
                _latex(name)
                if side == "l"
                else rf"\multicolumn{{1}}{{c}}{{{_latex(name)}}}"
                for name, side in zip(table.header, table.align, strict=True)
            ]
        ),
    ]
    for group in table.groups:
        lines.append(r"\midrule")
        if group.title:
            title = rf"\multicolumn{{{width}}}{{l}}{{\emph{{{_latex(group.title)}}}}}"
            lines += [line([title]), r"\midrule"]
        lines += [
            line([cell(*pair) for pair in zip(row, table.align, strict=True)])
            for row in group.rows
        ]
    lines += [r"\bottomrule", r"\end{tabular}"]
    if table.notes:
        notes = " ".join(_latex(note) for note in table.notes)
        lines += ["", rf"\medskip\raggedright\footnotesize {notes}"]
    return "\n".join([*lines, r"\end{table}"]) + "\n"


def to_html(table: RenderedTable) -> str:
    """A ``<table>`` element; classes ``n`` (number), ``beside``, ``note``."""

    def cell(entry: Cell, side: str, first: bool) -> str:
        text = _html(entry.text)
        if entry.mark == "best":
            text = f"<strong>{text}</strong>"
        elif entry.mark == "second":
            text = f"<u>{text}</u>"
        if entry.beside:
            text += f' <span class="beside">({_html(entry.beside)})</span>'
        if first:
            return f'<th scope="row">{text}</th>'
        return f'<td class="n">{text}</td>' if side == "r" else f"<td>{text}</td>"

    heads = "".join(
        f'<th scope="col"{" class=" + chr(34) + "n" + chr(34) if side == "r" else ""}>'
        f"{_html(name)}</th>"
        for name, side in zip(table.header, table.align, strict=True)
    )
    notes = "".join(f'<span class="note">{_html(note)}</span>' for note in table.notes)
    lines = [
        f'<table id="{_html(_label(table.name))}">',
        f"<caption>{_html(table.title)}{notes}</caption>",
        f"<thead><tr>{heads}</tr></thead>",
    ]
    for group in table.groups:
        lines.append("<tbody>")
        if group.title:
            lines.append(
                f'<tr><th class="group" scope="rowgroup" colspan="{len(table.header)}">'
                f"{_html(group.title)}</th></tr>"
            )
        for row in group.rows:
            cells = "".join(
                cell(entry, side, place == 0)
                for place, (entry, side) in enumerate(
                    zip(row, table.align, strict=True)
                )
            )
            lines.append(f"<tr>{cells}</tr>")
        lines.append("</tbody>")
    return "\n".join([*lines, "</table>"]) + "\n"


_MARKDOWN = {
    **{character: "\\" + character for character in "\\`*_[]|~$#"},
    "<": "&lt;",
    ">": "&gt;",
    "&": "&amp;",
}
_LATEX = {
    **{character: "\\" + character for character in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    # After the end of a row a bracket or star would be read as its option.
    "[": "{[}",
    "*": "{*}",
    "±": r"$\pm$",
    "−": "$-$",
    "×": r"$\times$",
    "≤": r"$\leq$",
    "–": "--",
}


def _escape(text: str, escapes: dict[str, str]) -> str:
    return "".join(escapes.get(character, character) for character in plain(text))


def _markdown(text: str) -> str:
    return _escape(text, _MARKDOWN)


def _latex(text: str) -> str:
    return _escape(text, _LATEX)


def _html(text: str) -> str:
    return html_escapes.escape(plain(text))


def _pipes(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _label(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9-]+", "-", name)
