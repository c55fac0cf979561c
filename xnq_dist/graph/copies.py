"""Decoded tables in temporary files, so that a run decodes each table once.

The first complete pass over a table writes the columns that it reads, in Arrow's file
format; later passes of the run read these. They then see the same rows, even if the
user's files were replaced.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.ipc as ipc
import pyarrow.types as pt

from xnq_dist.core.errors import StageError
from xnq_dist.graph import scratch

__all__ = ["CopiedFile", "TableCopy"]

BYTES = 1 << 24
"""Maximum bytes of a group, which is read as a whole."""


@dataclass(frozen=True)
class CopiedFile:
    """The columns of one file, in groups of rows."""

    path: Path
    names: list[str] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)
    """Rows of each group."""

    def written(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Yield the batches of the file (`tables.Batch`), each after it was written."""
        with scratch.writing(self.path.parent), ExitStack() as held:
            for batch in batches:
                rows = _without_dictionaries(batch.rows)
                if not self.rows:
                    self.names.extend(rows.schema.names)
                    sink = held.enter_context(pa.OSFile(str(self.path), "wb"))
                    writer = held.enter_context(ipc.new_file(sink, rows.schema))
                step = max(1, BYTES * rows.num_rows // max(rows.nbytes, 1))
                for first in range(0, rows.num_rows, step):
                    part = rows.slice(first, step)
                    writer.write(part)
                    self.rows.append(part.num_rows)
                yield batch

    def group_rows(self) -> list[int]:
        """Number of rows of each group."""
        return self.rows

    def batches(
        self, columns: list[str], rows: int, groups: range | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the columns, of some groups or all, at most `rows` at a time."""
        with self._opened(columns) as reader:
            for at in groups or range(len(self.rows)):
                batch = reader.get_batch(at).select(columns)
                for first in range(0, batch.num_rows, rows):
                    yield batch.slice(first, rows)

    @contextmanager
    def _opened(self, columns: list[str]) -> Iterator[ipc.RecordBatchFileReader]:
        """A reader of some columns; a mapped file would stay in memory."""
        fields = [self.names.index(name) for name in columns]
        options = ipc.IpcReadOptions(included_fields=fields)
        try:
            with pa.OSFile(str(self.path)) as file:
                yield ipc.open_file(file, options=options)
        except (OSError, pa.ArrowException) as error:
            raise StageError(
                f"temporary files in {self.path.parent} cannot be read ({error}): run "
                "again"
            ) from error


@dataclass
class TableCopy:
    """The columns of one table, after the first complete pass over it."""

    folder: Path
    files: dict[str, CopiedFile] = field(default_factory=dict)
    """By the user's file; empty before the pass has ended."""
    table: Any = None
    """The `tables.Table` of the pass, with its list of files and their columns."""
    made: tuple[int, Any] | None = None
    """Time at which the pass began, and the state of the files then."""
    known: dict[str, tuple[Any, Any]] = field(default_factory=dict)
    """What `contents.read_table` found, by its key."""

    def of(self, file: str) -> TableCopy:
        """The copy of one file."""
        kept = {file: self.files[file]} if file in self.files else {}
        return TableCopy(self.folder, kept)


def _without_dictionaries(rows: pa.RecordBatch) -> pa.RecordBatch:
    """The rows with their values: dictionaries may differ from batch to batch."""
    columns = [
        each.dictionary_decode() if pt.is_dictionary(each.type) else each
        for each in rows.columns
    ]
    return pa.record_batch(columns, rows.schema.names)
