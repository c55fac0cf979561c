"""Text tables: CSV, TSV and the like, also compressed.

Columns have the types of all their values (`text_types`). The first rows suggest them;
the first complete pass corrects them, and later passes use the result.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.csv as pacsv

from xnq_dist.core.errors import InfrastructureError, InputError
from xnq_dist.core.settings import InputSettings
from xnq_dist.graph.formats.looks import looks_like
from xnq_dist.graph.formats.sniffing import Dialect, sniff
from xnq_dist.graph.formats.text_types import joined, kind_of, type_of, typed

__all__ = ["TEXT_ENDINGS", "TextFile", "open_text"]

TEXT_ENDINGS = (".csv", ".tsv", ".tab", ".txt")
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
    """Kinds of the columns (`text_types`)."""
    settled: set[str] = field(default_factory=set)
    """Columns whose kind is that of all values."""

    def settle(self, columns: Collection[str]) -> None:
        """Read the columns, unless it has been done, for the kinds of all values."""
        due = sorted(set(columns) & self.kinds.keys() - self.settled)
        for block in self._blocks(due) if due else ():
            for name, values in zip(due, block.columns, strict=True):
                kind = self.kinds[name]
                if typed(values, kind, self.dialect.decimal) is None:
                    found = kind_of(values, self.dialect.decimal)
                    self.kinds[name] = joined(kind, found)
        self.settled |= set(due)

    def schema(self) -> pa.Schema:
        """Names and types of the columns, as far as they are known."""
        names = self.dialect.names
        return pa.schema([(name, type_of(self.kinds[name])) for name in names])

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
        self, columns: list[str], rows: int, groups: range | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the columns, one block of the file at a time."""
        for block in self._blocks(columns):
            arrays = []
            for name, values in zip(columns, block.columns, strict=True):
                array = typed(values, self.kinds[name], self.dialect.decimal)
                if array is None and name in self.settled:
                    raise InfrastructureError(
                        f"{self.path} changed while it was read: run again"
                    )
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
