"""How a text table is written: its separator, header and decimal separator.

They are detected from the first bytes of the file, and can be set (`input`). Text is
UTF-8, quotes are double, and a compression follows from the ending of the name.
"""

from __future__ import annotations

import csv
import io
from collections import Counter
from dataclasses import dataclass

import pyarrow as pa

from xnq_dist.core.errors import InputError
from xnq_dist.core.settings import InputSettings
from xnq_dist.graph.formats.text_types import kind_of

__all__ = ["Dialect", "sniff"]

SEPARATORS = ("\t", ";", "|", ",", " ")
"""In the order of preference: commas and spaces occur in text and in numbers."""
NAMES = {"\t": "tab", ";": "semicolon", ",": "comma", " ": "space", "|": "bar"}
RECORDS = 200
"""Records that the separator is detected from."""


@dataclass(frozen=True)
class Dialect:
    """How one file is written."""

    separator: str
    header: bool
    decimal: str
    names: tuple[str, ...]
    """The columns' names."""
    kinds: dict[str, str]
    """Kinds (`text_types`) of the columns in the first rows, by name."""

    def text(self) -> str:
        """The dialect in one line."""
        parts = [
            f"separator {NAMES.get(self.separator, self.separator)}",
            "header" if self.header else "no header (columns column1, column2, ...)",
            "decimal comma" if self.decimal == "," else "decimal point",
        ]
        return ", ".join(parts)


def sniff(head: bytes, complete: bool, settings: InputSettings, file: str) -> Dialect:
    """The dialect of a file.

    Parameters
    ----------
    head
        Its first bytes, decompressed.
    complete
        Whether they are all bytes.
    settings
        What is set instead of detected.
    file
        Name in messages.

    Raises
    ------
    InputError
        When the bytes are not text.
    """
    if b"\0" in head:  # such as UTF-16
        raise InputError(
            f"{file} is not a text table in UTF-8 (it has NUL bytes): save it as CSV "
            "in UTF-8, or as Parquet"
        )
    text = head.decode("utf-8", "replace").removeprefix("\ufeff")
    if not complete:
        # The last line may be cut.
        text = text[: max(text.rfind("\n"), text.rfind("\r")) + 1] or text
    separator = settings.separator
    if separator == "auto":
        separator = _separator(text)
    records = _records(text, separator, 10 * RECORDS)
    first = records[0] if records else []
    columns = [*zip(*(r for r in records if len(r) == len(first)), strict=True)]
    below = [column[1:] for column in columns]
    decimal, header = settings.decimal, settings.header
    if decimal == "auto":
        decimal = "," if any(map(_has_decimal_comma, below)) else "."
    if header == "auto":
        header = _has_header(first, below, decimal)
    names = [f"column{at + 1}" for at in range(len(first))]
    if header:
        names, columns = [name.strip() for name in first], below
    return Dialect(
        separator=separator,
        header=header,
        decimal=decimal,
        names=tuple(names),
        kinds={n: _kind(c, decimal) for n, c in zip(names, columns, strict=True)},
    )


def _kind(column: tuple[str, ...], decimal: str) -> str:
    return kind_of(pa.array([value or None for value in column], pa.string()), decimal)


def _records(text: str, separator: str, limit: int) -> list[list[str]]:
    """The first records without empty lines, up to a quote that is not closed."""
    source = io.StringIO(text, newline="")
    found: list[list[str]] = []
    try:
        for record in csv.reader(source, delimiter=separator, strict=True):
            found += [record] if record else []
            if len(found) == limit:
                break
    except csv.Error:
        pass
    return found


def _separator(text: str) -> str:
    """The separator that gives most records the same number of fields, above one.

    `csv.Sniffer` finds none in a single column, and others in text with commas.
    """
    best, found = 0.0, ","
    for separator in SEPARATORS:
        widths = Counter(map(len, _records(text, separator, RECORDS)))
        width, count = max(widths.items(), key=lambda item: item[1], default=(0, 0))
        share = count / widths.total() if width > 1 else 0.0
        if share > best:
            best, found = share, separator
    return found


def _has_decimal_comma(column: tuple[str, ...]) -> bool:
    """Whether numbers have a comma; 1,234 alone may be a thousand, and stays text."""
    commas = [v.strip() for v in column if "," in v]
    parts = [v.lstrip("+-").split(",") for v in commas]
    return _kind(column, ",") == "number" and any(
        whole == "0" or len(rest) != 3 for whole, rest in parts
    )


def _has_header(first: list[str], columns: list[tuple[str, ...]], decimal: str) -> bool:
    """Whether the first row has names: words alone, or a word over other values."""
    names = [name.strip() for name in first]
    words = [any(map(str.isalpha, n)) and _kind((n,), decimal) == "text" for n in names]
    below = [_kind(column, decimal) for column in columns]
    return all(word for word, name in zip(words, names, strict=True) if name) or any(
        word and kind not in ("null", "text")
        for word, kind in zip(words, below, strict=True)
    )
