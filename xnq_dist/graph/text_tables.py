"""Text tables: CSV, TSV and the like, also compressed.

Separator, header and decimal separator are detected from the first bytes of the file,
and can be set (`input`). Text is UTF-8, quotes are double, and a compression follows
from the ending of the name.

Columns have the narrowest types that all their values fit. The first rows suggest them;
the first complete pass corrects them, and later passes use the result. A value is a
number only if its text is that of the number: ``00123`` and an integer that 64 bits
cannot hold stay text, so an id never loses a digit.
"""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from xnq_dist.core.errors import InfrastructureError, InputError
from xnq_dist.core.sections import InputSettings
from xnq_dist.graph.values import NULL_WORDS

__all__ = [
    "TEXT_ENDINGS",
    "Dialect",
    "TextFile",
    "kind_of",
    "looks_like",
    "open_text",
    "sniff",
    "typed",
    "wider",
]

_LOAD_IT = (
    ", which run does not read: load it in Python and pass the graph to "
    "estimate_prevalence (docs/how-to/other-formats.md)"
)
_NOT_TEXT: tuple[tuple[bytes, str], ...] = (
    (rb"$", "is empty: write it again, with at least one row"),
    (rb"PAR1", "looks like Parquet: rename it to end in .parquet"),
    (
        rb"\x80[\x02-\x05]",
        "looks like a Python pickle, which is never opened because that can run code: "
        "write the table as Parquet (DataFrame.to_parquet)",
    ),
    (
        rb"PK\x03\x04.*(\[Content_Types\]\.xml|xl/|opendocument)|\xd0\xcf\x11\xe0",
        "is a workbook: save its sheet as CSV",
    ),
    (rb"PK\x03\x04.*(/data\.pkl|/byteorder)", f"looks like PyTorch data{_LOAD_IT}"),
    (rb"PK\x03\x04.*\.npy", f"looks like NumPy arrays (npz){_LOAD_IT}"),
    (rb"PK\x03\x04", "looks like a zip archive: unpack it first"),
    (
        rb"\x1f\x8b|BZh|\x28\xb5\x2f\xfd|\x04\x22\x4d\x18",
        "is compressed: let its name end in .gz, .bz2, .zst or .lz4",
    ),
    (rb"version https://git-lfs", "is a Git LFS pointer: fetch it with git lfs pull"),
    (rb"(<\?xml.*?|<!--.*?)*<graphml", f"looks like GraphML{_LOAD_IT}"),
    (rb"<[!?a-z]", "looks like a web page or XML: save the table as CSV or Parquet"),
    (rb"\s*(\{\s*\"[^\"]*\"\s*:|\[\s*[\[{])",
     "looks like JSON: save the table as CSV or Parquet"),
)  # fmt: skip
"""Patterns of the first bytes; the first one that matches counts."""

NULLS = (*NULL_WORDS, "#N/A")
"""Words for null in columns of numbers, dates and booleans."""
_WHOLE = r"0|[1-9]\d{0,17}"
_KINDS = {
    "null": (pa.int64(), ""),
    "integer": (pa.int64(), r"0|-?[1-9]\d{0,18}"),
    "boolean": (pa.bool_(), r"true|false"),
    "date": (pa.date32(), r".*"),
    "time": (pa.timestamp("us"), r".*"),
    "instant": (pa.timestamp("us", "UTC"), r".*"),
    "number": (pa.float64(), rf"-?({_WHOLE})?(\.\d*)?(e[-+]?\d+)?|-?inf"),
    "text": (pa.string(), ".*"),
}
"""Types and patterns of the values, in the order in which kinds are tried. A column
without a value, ``null``, counts as integers."""
_WIDER = {
    frozenset({"integer", "number"}): "number",
    frozenset({"date", "time"}): "time",
}
SEPARATORS = {"\t": "tab", ";": "semicolon", "|": "bar", ",": "comma", " ": "space"}
"""Names in the order of preference: commas and spaces occur in text and in numbers."""
RECORDS = 200
"""Records that the separator is detected from."""
TEXT_ENDINGS = (".csv", ".tsv", ".tab", ".txt")
"""Endings of names, before that of a compression."""
BLOCK = 4 << 20
"""Bytes of the block that a batch is parsed from."""
HEAD = 1 << 18
"""Bytes that the dialect is detected from."""


@dataclass
class TextFile:
    """What is known of one file."""

    filesystem: Any
    path: str
    dialect: Dialect
    kinds: dict[str, str]
    """Kinds of the columns."""
    settled: set[str] = field(default_factory=set)
    """Columns whose kind is that of all values."""

    def settle(self, columns: Collection[str]) -> None:
        """Read the columns, unless it has been done, for the kinds of all values."""
        due = sorted(set(columns) & self.kinds.keys() - self.settled)
        for _ in self.batches(due) if due else ():
            pass
        self.settled |= set(due)

    def schema(self) -> pa.Schema:
        """Names and types of the columns, as far as they are known."""
        names = self.dialect.names
        return pa.schema([(name, _KINDS[self.kinds[name]][0]) for name in names])

    def group_rows(self) -> list[int]:
        """Number of lines after the header, as one group."""
        return [self._lines]

    @cached_property
    def _lines(self) -> int:
        """Lines after the header; a value with line ends counts as several."""
        total, last = -int(bool(self.dialect.header)), b"\n"
        with self.filesystem.open_input_stream(self.path) as stream:
            while block := stream.read(1 << 22):
                total += block.count(b"\n")
                last = block[-1:]
        return total + (last != b"\n")

    def nulls(self, column: str) -> None:
        """None: a text file does not say."""

    def batches(
        self, columns: list[str], rows: int = 0, groups: range | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the columns, one block of the file at a time.

        Where a value of a block does not fit the kind of a column that is not settled,
        the block's values are text, and the kind becomes wider.
        """
        decimal = self.dialect.decimal
        for block in self._blocks(columns):
            arrays = []
            for name, values in zip(columns, block.columns, strict=True):
                # In this order: another thread may widen the kind and settle it.
                settled, kind = name in self.settled, self.kinds[name]
                array = typed(values, kind, decimal)
                if array is None and settled:
                    raise InfrastructureError(
                        f"{self.path} changed while it was read: run again"
                    )
                if array is None:
                    self.kinds[name] = wider(kind, kind_of(values, decimal))
                arrays.append(values if array is None else array)
            yield pa.record_batch(arrays, names=columns)

    def _blocks(self, columns: list[str]) -> Iterator[pa.RecordBatch]:
        """Yield the columns as text."""
        dialect = self.dialect
        with self.filesystem.open_input_stream(self.path) as stream, pacsv.open_csv(
            stream,
            read_options=pacsv.ReadOptions(
                block_size=BLOCK,
                column_names=dialect.names,
                skip_rows_after_names=int(dialect.header),
                use_threads=False,  # Arrow's errors name the row then; as fast
            ),
            parse_options=pacsv.ParseOptions(
                delimiter=dialect.separator, newlines_in_values=True
            ),
            convert_options=pacsv.ConvertOptions(
                include_columns=columns,
                column_types=dict.fromkeys(columns, pa.string()),
                null_values=[""],
                strings_can_be_null=True,
            ),
        ) as reader:  # fmt: skip
            yield from reader


def open_text(filesystem: Any, path: str, settings: InputSettings) -> TextFile:
    """Detect how a file is written, from its first bytes."""
    with filesystem.open_input_stream(path) as stream:
        head = stream.read(HEAD)
    if look := looks_like(head):
        raise InputError(f"{path} {look}")
    dialect = sniff(head, len(head) < HEAD, settings, path)
    return TextFile(filesystem, path, dialect, dict(dialect.kinds))


@dataclass(frozen=True)
class Dialect:
    """How one file is written."""

    separator: str
    header: bool
    decimal: str
    names: tuple[str, ...]
    """The columns' names."""
    kinds: dict[str, str]
    """Kinds of the columns in the first rows, by name."""

    def text(self) -> str:
        """The dialect in one line."""
        parts = [
            f"separator {SEPARATORS.get(self.separator, self.separator)}",
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


def looks_like(head: bytes) -> str | None:
    """How a message about a file goes on after its name; None: nothing is recognised.

    `head`: the first bytes of the file, decompressed.
    """
    start = head[:4096].removeprefix(b"\xef\xbb\xbf")
    for pattern, words in _NOT_TEXT:
        if re.match(pattern, start, re.IGNORECASE | re.DOTALL):
            return words
    return None


def kind_of(values: pa.Array, decimal: str) -> str:
    """The narrowest kind of some text."""
    return next(kind for kind in _KINDS if typed(values, kind, decimal) is not None)


def typed(values: pa.Array, kind: str, decimal: str) -> pa.Array | None:
    """Text as values of a kind; None if a value does not fit."""
    if kind == "text":
        return values
    found = _cast(values, kind, decimal)
    if found is None:
        trimmed = pc.utf8_trim_whitespace(values)
        absent = pc.is_in(trimmed, pa.array(NULLS))
        trimmed = pc.if_else(absent, None, trimmed)
        found = _cast(trimmed, kind, decimal)
    return found


def wider(one: str, other: str) -> str:
    """The narrowest kind that the values of both kinds fit."""
    if "null" in (one, other) or one == other:
        return one if other == "null" else other
    return _WIDER.get(frozenset({one, other}), "text")


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


def _kind(column: tuple[str, ...], decimal: str) -> str:
    return kind_of(pa.array([value or None for value in column], pa.string()), decimal)


def _cast(values: pa.Array, kind: str, decimal: str) -> pa.Array | None:
    if kind == "number" and decimal == ",":
        if pc.any(pc.match_substring(values, ".")).as_py():
            return None
        values = pc.replace_substring(values, ",", ".")
    wanted, pattern = _KINDS[kind]
    try:
        found = values.cast(wanted)
    except pa.ArrowInvalid:
        return None
    exact = pc.match_substring_regex(values, f"^({pattern})$", ignore_case=True)
    return None if pc.all(exact).as_py() is False else found
