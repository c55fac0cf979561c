"""How a text table is written: its separator, header and decimal separator.

They are detected from the first bytes of the file, and can be set (`input`). Text is
UTF-8, quotes are double, and a compression follows from the ending of the name.
"""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections import Counter
from dataclasses import dataclass, field

import pyarrow as pa

from xnq_dist.core.errors import InputError
from xnq_dist.core.settings import Reading
from xnq_dist.graph.formats.text_types import NULL_WORDS, kind_of

__all__ = ["Dialect", "sniff"]

SEPARATORS = ("\t", ";", "|", ",", " ")
"""In the order of preference: commas and spaces occur in text and in numbers."""
NAMES = {"\t": "tab", ";": "semicolon", ",": "comma", " ": "space", "|": "bar"}
RECORDS = 200
"""Records that the separator is detected from."""
_WIDE = (b"\xff\xfe", b"\xfe\xff")
"""Byte order marks of UTF-16 and UTF-32."""
_DECIMAL_COMMA = re.compile(r"[-+]?\d+(,\d+)?")


@dataclass(frozen=True)
class Dialect(Reading):
    """How one file is written; nothing is ``auto``."""

    names: tuple[str, ...] = field(default=(), repr=False)
    """The columns' names."""
    first: tuple[tuple[str, ...], ...] = field(default=(), repr=False)
    """The first rows."""
    empty: bool = False
    """Whether there are no rows."""

    def text(self) -> str:
        """The dialect in one line."""
        words = ", ".join(
            word for word in NULL_WORDS if any(word in row for row in self.first)
        )
        parts = [
            f"separator {NAMES.get(self.separator, repr(self.separator))}",
            "header" if self.header else "no header (columns column1, column2, ...)",
            "decimal comma" if self.decimal == "," else "decimal point",
            f"null in columns of numbers: {words}" if words else "",
        ]
        return ", ".join(part for part in parts if part)


def sniff(head: bytes, complete: bool, reading: Reading, file: str = "") -> Dialect:
    """The dialect of a file.

    Parameters
    ----------
    head
        Its first bytes, decompressed.
    complete
        Whether they are all bytes.
    reading
        What is set instead of detected.
    file
        Name in messages.

    Raises
    ------
    InputError
        When the bytes are not text in UTF-8.
    """
    if head.startswith(_WIDE) or b"\0" in head:
        raise InputError(
            f"{file} is not a text table in UTF-8 (it has NUL bytes): save it as CSV "
            "in UTF-8, or as Parquet"
        )
    try:
        text = codecs.getincrementaldecoder("utf-8")().decode(head, complete)
    except UnicodeDecodeError as error:
        line = head.count(b"\n", 0, error.start) + 1
        raise InputError(
            f"byte 0x{head[error.start]:02x} in line {line:,} of {file} is not UTF-8: "
            "write the table as UTF-8"
        ) from error
    text = text.removeprefix("\ufeff")
    if not complete:
        # The last line may be cut.
        text = text[: max(text.rfind("\n"), text.rfind("\r")) + 1] or text
    separator = _separator(text) if reading.separator == "auto" else reading.separator
    rows = _records(text, separator, 10 * RECORDS)
    decimal = reading.decimal
    columns = list(zip(*(r for r in rows[1:] if len(r) == len(rows[0])), strict=True))
    if decimal == "auto":
        decimal = "," if any(map(_has_decimal_comma, columns)) else "."
    header = reading.header
    if header == "auto":
        header = _has_header(rows, columns, decimal)
    width = len(rows[0]) if rows else 0
    names = tuple(f"column{at + 1}" for at in range(width))
    if header and rows:
        names = tuple(name.strip() for name in rows.pop(0))
        if rows and all(len(row) == width + 1 for row in rows):
            names = ("", *names)  # R writes no name over the names of rows.
    return Dialect(
        separator=separator,
        header=header,
        decimal=decimal,
        names=names,
        first=tuple(map(tuple, rows)),
        empty=complete and not rows,
    )


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
    values = [v.strip() for v in column if v.strip() not in ("", *NULL_WORDS)]
    with_comma = [v for v in values if "," in v]
    numbers = sum(_DECIMAL_COMMA.fullmatch(v) is not None for v in values)
    if not with_comma or numbers < 0.95 * len(values):
        return False
    # 1,234 alone may be a thousand: then the column stays text.
    return any(len(v.split(",")[1]) != 3 or v.lstrip("+-")[0] == "0"
               for v in with_comma if _DECIMAL_COMMA.fullmatch(v))  # fmt: skip


def _has_header(
    rows: list[list[str]], columns: list[tuple[str, ...]], decimal: str
) -> bool:
    """Whether the first row differs in type from the rows below it."""
    if not rows:
        return True
    first = [name.strip() for name in rows[0]]
    kinds = [kind_of(pa.array([name]), decimal) for name in first]
    words = [
        kind == "text" and any(map(str.isalpha, name))
        for name, kind in zip(first, kinds, strict=True)
    ]
    below = [kind_of(pa.array(column), decimal) for column in columns]
    if any(word and kind not in ("null", "text")
           for word, kind in zip(words, below, strict=False)):  # fmt: skip
        return True
    others = [
        name for name, word in zip(first, words, strict=True) if name and not word
    ]
    if others:  # Columns of features are often named 0, 1, 2, ...
        counted = [str(at) for at in range(len(others) + 1)]
        return 2 < len(others) < len(first) and others in (counted[:-1], counted[1:])
    seen = {value for row in rows[1:] for value in row}
    return not any(name and name in seen for name in first)
