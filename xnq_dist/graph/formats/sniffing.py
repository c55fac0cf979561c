"""How a text table is written: separator, encoding, quotes, header, decimal separator.

Everything is detected from the first bytes of the file, and can be set (`input`).
"""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections import Counter
from dataclasses import dataclass, field, replace

import pyarrow as pa

from xnq_dist.core.errors import InputError
from xnq_dist.core.settings import Reading
from xnq_dist.graph.formats.text_types import NULL_WORDS, kind_of

__all__ = ["Dialect", "compression_of", "sniff"]

SEPARATORS = ("\t", ";", "|", ",", " ")
"""In the order of preference: commas and spaces occur in text and in numbers."""
QUOTES = ('"', "'", "none")
NAMES = {"\t": "tab", ";": "semicolon", ",": "comma", " ": "space", "|": "bar"}
RECORDS = 200
"""Records that the separator is detected from."""

_MAGIC = {
    b"\x1f\x8b": "gzip",
    b"BZh": "bz2",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"\x04\x22\x4d\x18": "lz4",
}
_MARKS = {
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
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
        quoted = "no quotes" if self.quote == "none" else f"quotes {self.quote}"
        parts = [
            f"separator {NAMES.get(self.separator, repr(self.separator))}",
            self.encoding,
            quoted,
            "header" if self.header else "no header (columns column1, column2, ...)",
            "decimal comma" if self.decimal == "," else "decimal point",
            f"null words {', '.join(self.nulls)}" if self.nulls else "",
            f"null in columns of numbers: {words}" if words and not self.nulls else "",
            "" if self.compression == "none" else self.compression,
        ]
        return ", ".join(part for part in parts if part)


def compression_of(head: bytes, reading: Reading | None = None) -> str:
    """Compression of a file from its first bytes; ``none`` if there is none."""
    if reading is not None and reading.compression != "auto":
        return reading.compression
    return next((name for magic, name in _MAGIC.items() if head[:4].startswith(magic)),
                "none")  # fmt: skip


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
        When the bytes are not text in the encoding, or fields are separated by another
        character than the one that is set.
    """
    encoding = reading.encoding
    if encoding == "auto":
        encoding = _encoding(head, complete)
    if "\0" in (text := head.decode(encoding, "replace")):
        raise InputError(
            f"{file} is not a text table (it has NUL bytes): write it as CSV or "
            "Parquet, or set input.encoding"
        )
    text = text.removeprefix("\ufeff")
    if not complete:
        # The last line may be cut.
        text = text[: max(text.rfind("\n"), text.rfind("\r")) + 1] or text
    separator, quote = _fields(text, reading)
    rows, _ = _records(text, separator, quote, 10 * RECORDS)
    if reading.separator != "auto" and rows and len(rows[0]) == 1:
        other, _ = _fields(text, replace(reading, separator="auto"))
        if any(len(row) > 1 for row in _records(text, other, quote, 1)[0]):
            raise InputError(
                f"{file} has one column, {rows[0][0]!r}, with separator "
                f"{separator!r}: it looks like a {NAMES[other]}-separated file; leave "
                f"input.separator=auto or set it to {other!r}"
            )
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
        encoding=encoding,
        quote=quote,
        nulls=() if reading.nulls == "auto" else reading.nulls,
        header=header,
        decimal=decimal,
        compression=compression_of(b"", reading),
        names=names,
        first=tuple(map(tuple, rows)),
        empty=complete and not rows,
    )


def _encoding(head: bytes, complete: bool) -> str:
    for mark, name in _MARKS.items():
        if head.startswith(mark):
            return name
    sample = head[:1000]
    if len(sample) > 3 and sample[1::2].count(0) > len(sample) // 4:
        return "utf-16-le"
    if len(sample) > 3 and sample[::2].count(0) > len(sample) // 4:
        return "utf-16-be"
    for name in ("utf-8", "cp1252"):
        try:
            codecs.getincrementaldecoder(name)().decode(head, complete)
        except UnicodeDecodeError:
            continue
        return name
    return "latin-1"


def _records(
    text: str, separator: str, quote: str, limit: int
) -> tuple[list[list[str]], bool]:
    """The first records without empty lines, and whether all quotes are closed."""
    plain = quote == "none"
    reader = csv.reader(
        io.StringIO(text, newline=""),
        delimiter=separator,
        quotechar=None if plain else quote,
        quoting=csv.QUOTE_NONE if plain else csv.QUOTE_MINIMAL,
        strict=True,
    )
    found: list[list[str]] = []
    try:
        for record in reader:
            found += [record] if record else []
            if len(found) == limit:
                break
    except csv.Error:
        return found, False
    return found, True


def _fields(text: str, reading: Reading) -> tuple[str, str]:
    """The separator and quote under which most records have as many fields."""
    separators = SEPARATORS if reading.separator == "auto" else (reading.separator,)
    best = (0.0, 0.0), "," if reading.separator == "auto" else separators[0], '"'
    for quote in QUOTES if reading.quote == "auto" else (reading.quote,):
        if quote == "'" and not re.search(r"(^|[\t;|,])'[^'\n]*'([\t;|,]|$)", text):
            continue
        for separator in separators:
            records, closed = _records(text, separator, quote, RECORDS)
            widths = Counter(map(len, records))
            width, count = max(widths.items(), key=lambda item: item[1], default=(0, 0))
            share = count / widths.total() if width > 1 else 0.0
            score = share, (0.5 if quote == "none" else float(closed)) * (share > 0)
            if score > best[0] or (quote == "'" and score == best[0] and share):
                best = score, separator, quote
    if not best[0][0] and reading.quote != "auto":
        return best[1], reading.quote
    return best[1:]


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
