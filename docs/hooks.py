"""MkDocs hook: reference pages made from the code at build time.

A page asks for generated text with a comment: ``<!-- settings -->``,
``<!-- exit codes -->`` or ``<!-- tables: NAME NAME -->`` with
names of `xnq_dist.core.schemas.TABLES`, ``<!-- tables: * -->`` for those not named
before it.
``<!-- notebook: NAME -->`` shows the cells of ``docs/notebooks/NAME.ipynb``.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

from xnq_dist.app.settings_help import group_of, settings_rows
from xnq_dist.core import errors, schemas

MARK = re.compile(r"<!-- (settings|exit codes|tables|notebook)(?:: (.*?))? -->")


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Replace the marks of a page by what they ask for."""
    named: set[str] = set()

    def made(mark: re.Match[str]) -> str:
        kind, wanted = mark.groups()
        if kind == "settings":
            return "\n".join(_settings())
        if kind == "exit codes":
            return "\n".join(_exit_codes())
        if kind == "notebook":
            return "\n".join(_notebook(wanted))
        names = wanted.split()
        if names == ["*"]:
            names = [name for name in schemas.TABLES if name not in named]
        named.update(names)
        return "\n".join(_tables(names))

    return MARK.sub(made, markdown)


def _settings() -> Iterator[str]:
    for title, members in groupby(settings_rows(), lambda row: group_of(row[0])):
        yield f"## {title}\n"
        yield from _table(
            ("setting", "default", "values", "meaning"),
            (
                (f"`{key}`", f"`{default}`", values, meaning)
                for key, values, default, meaning in members
            ),
        )


def _tables(names: Iterable[str]) -> Iterator[str]:
    for name in names:
        table = schemas.TABLES[name]
        yield f"### {name}\n"
        yield f"{_sentence(table.meaning)} Format version {table.version}.\n"
        yield from _table(
            ("column", "type", "may be null", "meaning"),
            (
                (
                    f"`{column.name}`",
                    f"`{column.kind}`",
                    "yes" if column.nullable else "",
                    column.meaning,
                )
                for column in table.columns
            ),
        )


def _notebook(name: str) -> Iterator[str]:
    file = Path(__file__).parent / "notebooks" / f"{name}.ipynb"
    for cell in json.loads(file.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            yield f"{source}\n"
            continue
        yield f"```python\n{source}\n```\n"
        for output in cell["outputs"]:
            data = output.get("data", {})
            if "text/html" in data:
                # Markdown ends a block of HTML at an empty line.
                html = "".join(data["text/html"])
                yield "\n".join(filter(str.strip, html.splitlines())) + "\n"
            else:
                text = data.get("text/plain") or output.get("text", [])
                yield f"```text\n{''.join(text)}\n```\n"


def _exit_codes() -> Iterator[str]:
    yield from _table(
        ("status", "error", "meaning"),
        (
            (str(kind.exit_code), f"`{kind.__name__}`", _code(_summary(kind)))
            for kind in sorted(_kinds(), key=lambda kind: kind.exit_code)
        ),
    )


def _kinds() -> list[type[errors.XnqError]]:
    found = [getattr(errors, name) for name in errors.__all__]
    kinds = [one for one in found if isinstance(one, type)]
    return [kind for kind in kinds if kind is not errors.XnqError]


def _summary(kind: type) -> str:
    return (inspect.getdoc(kind) or "").partition("\n\n")[0].replace("\n", " ")


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def _code(text: str) -> str:
    return text.replace("``", "`")


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield f"|{'---|' * len(head)}"
    for row in rows:
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |"
    yield ""
