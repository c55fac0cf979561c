"""Streams the user's tables: files, columns and ids; errors name file and column."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.types as pt

from xnq_dist.core.arrays import Bools, Floats, offsets_of
from xnq_dist.core.errors import InputError
from xnq_dist.core.redaction import HIDDEN, redacted
from xnq_dist.core.sections import InputSettings
from xnq_dist.graph.copies import CopiedFile, TableCopy
from xnq_dist.graph.locations import (
    columns_of_folders,
    filesystem_of,
    glob,
    is_pattern,
    state_of,
    visible,
)
from xnq_dist.graph.parquet_tables import PARQUET_ENDINGS, ParquetFile
from xnq_dist.graph.scratch import writing
from xnq_dist.graph.text_tables import (
    TEXT_ENDINGS,
    TextFile,
    looks_like,
    open_text,
    wider,
)
from xnq_dist.graph.values import plain_values

__all__ = [
    "Batch",
    "Table",
    "is_text_file",
    "open_table",
]

log = logging.getLogger(__name__)


ENDINGS = ", ".join((PARQUET_ENDINGS[0], TEXT_ENDINGS[0]))


def has_ending(file: str, endings: tuple[str, ...]) -> bool:
    """Whether a file's name, without the ending of a compression, has an ending."""
    for packed in (".gz", ".bz2", ".zst", ".lz4"):
        file = file.removesuffix(packed)
    return file.endswith(endings)


def is_text_file(file: str) -> bool:
    """Whether a file is a text table by its name."""
    return has_ending(file, TEXT_ENDINGS)


SHOWN = 6
"""Columns of a file in a message."""


@dataclass(frozen=True)
class Batch:
    """Some rows of one file."""

    rows: pa.RecordBatch
    file: str
    first: int
    """Rows of the file before this batch."""

    def column(self, name: str) -> pa.Array:
        """The values of a column: no dictionaries, decimals or durations."""
        return plain_values(self.rows.column(name))

    def numbers(self, name: str, valid: Callable[[Floats], Bools], rule: str) -> Floats:
        """The values of a column as float64, NaN without one; raise if one is invalid.

        `rule`: what is valid and what to set, for messages.
        """
        array = self.column(name)
        kind = array.type
        if not (pt.is_integer(kind) or pt.is_floating(kind) or pt.is_null(kind)):
            raise InputError(
                f"column {name!r} of {self.file} is {kind}, not a number: {rule}"
            )
        found = array.cast(pa.float64(), safe=False).fill_null(np.nan).to_numpy()
        known = valid(found)
        if not known.all():
            at = int(np.argmin(known))
            value = array[at].as_py()
            shown = "null" if value is None else value
            raise InputError(f"column {name!r} holds {shown} in {self.row(at)}: {rule}")
        return np.asarray(found, np.float64)

    def row(self, at: int) -> str:
        """A row's name in messages: its number, from 1, and its file."""
        return f"row {self.first + at + 1} of {self.file}"


@dataclass(frozen=True, eq=False)
class Table:
    """A table in one or more files, read in batches of bounded size."""

    what: str
    """Its name in messages, such as ``node table``."""
    path: str
    """Its location, without credentials."""
    files: tuple[str, ...]
    """Paths within the filesystem, sorted."""
    filesystem: Any
    settings: InputSettings
    """How text files are written."""
    texts: dict[str, TextFile] = field(default_factory=dict)
    """What is known of text files so far."""
    in_paths: pa.Table = field(default_factory=lambda: pa.table({}))
    """Columns that the folders of the files are named after, a row for each file."""
    groups: range | None = None
    """Groups of rows of the only file or of its copy; None: all. Text has one."""
    first: int = 0
    """Rows of the file before them."""
    copy: TableCopy | None = None
    """What `batches` read instead, once `decoded` has written it."""

    def shares(self, rows: int) -> list[Table]:
        """Tables of some rows each, in order: all rows together.

        Parameters
        ----------
        rows
            Rows from which on a share ends; text files without a copy stay complete.
        """
        found = []
        for place, file in enumerate(self.files):
            in_path = self.in_paths.slice(place, 1)
            copy = self.copy and self.copy.of(file)
            single = replace(self, files=(file,), in_paths=in_path, copy=copy)
            with self._values(file) as (reader, _):
                starts = offsets_of(reader.group_rows())
            groups = self.groups or range(len(starts) - 1)
            at = groups.start
            while at < groups.stop:
                end = int(np.searchsorted(starts, starts[at] + rows))
                part = range(at, min(max(end, at + 1), groups.stop))
                first = int(starts[at])
                found.append(replace(single, groups=part, first=first))
                at = part.stop
        return found

    @contextmanager
    def _reading(self, file: str) -> Iterator[ParquetFile | TextFile]:
        """A file, to be read.

        Reading errors in the block become `InputError`. The block must include the
        iteration, where Arrow raises errors too.
        """
        try:
            if is_text_file(file):
                yield self._text(file)
            else:
                yield ParquetFile(self.filesystem, file)
        except pa.ArrowNotImplementedError as error:
            raise InputError(
                f"{file} has a column that Arrow does not read ({error}): write the "
                "column as another type, large ids as text"
            ) from error
        except PermissionError as error:
            raise InputError(
                f"{file} cannot be read ({error}): check its permissions"
            ) from error
        except (pa.ArrowException, OSError, UnicodeError) as error:
            reason = " ".join(str(error).split())
            advice = (
                f"is not a text table in UTF-8 that can be read ({reason}): check the "
                "row and its quotes, or write Parquet"
                if is_text_file(file)
                else self._look(file)
                or f"is not a complete Parquet file ({reason}): copy or write it again"
            )
            raise InputError(f"{file} {advice}") from error

    @contextmanager
    def _values(
        self, file: str, columns: Sequence[str] = ()
    ) -> Iterator[tuple[Any, list[str]]]:
        """A file, or its copy if that has the columns, and the names of its columns."""
        copied = self.copy.files.get(file) if self.copy else None
        if copied and {*columns} <= {*copied.names}:
            yield copied, copied.names
            return
        with self._reading(file) as reader:
            yield reader, self._schemas[file].names

    def _look(self, file: str) -> str | None:
        """What a file that is not Parquet looks like; None: a damaged file."""
        with (
            suppress(OSError),
            self.filesystem.open_input_stream(file, compression=None) as stream,
        ):
            head = stream.read(1 << 16)
            if head.startswith(b"PAR1"):
                return None
            if look := looks_like(head):
                return look
        if not has_ending(file, PARQUET_ENDINGS):
            return f"has an unknown ending: rename it to end in one of {ENDINGS}"
        return None

    def _text(self, file: str) -> TextFile:
        if file not in self.texts:
            state = state_of(self.filesystem, file)
            key = self.filesystem.type_name, file, self.settings, str(state)
            if state is None or key not in _TEXTS:
                _TEXTS[key] = open_text(self.filesystem, file, self.settings)
                how = _TEXTS[key].dialect.text()
                log.info("%s %s: %s", self.what, self.path, how)
            self.texts[file] = _TEXTS[key]
        return self.texts[file]

    @cached_property
    def _schemas(self) -> dict[str, pa.Schema]:
        """The columns that each file has itself; a footer is read once for this."""
        found = {}
        for file in self.files:
            with self._reading(file) as reader:
                found[file] = reader.schema()
        return found

    @cached_property
    def schemas(self) -> dict[str, dict[str, pa.DataType]]:
        """The columns of every file; those of text are known after `settle`."""
        in_path = {each.name: each.type for each in self.in_paths.schema}
        # A file's own column counts, not the one in its path.
        return {
            file: in_path | {each.name: each.type for each in schema}
            for file, schema in self._schemas.items()
        }

    def settle(self, columns: Iterable[str]) -> Table:
        """The table with the types of all values of some columns of text files.

        The files are read for this, unless it has been done. A column has the same type
        in all text files, text if it is text in one.
        """
        names, texts = set(columns), []
        for file in filter(is_text_file, self.files):
            with self._reading(file):
                texts.append(self._text(file))
                texts[-1].settle(names)
        for name in names:
            there = [text for text in texts if name in text.kinds]
            kind = reduce(wider, (text.kinds[name] for text in there), "null")
            for text in there:
                text.kinds[name] = kind
        # A new table: the types in `schemas` may have changed.
        return replace(self) if texts else self

    @cached_property
    def n_rows(self) -> int:
        """Rows of all files; of text files their lines. `no_rows` without any."""
        total = 0
        for file in self.files:
            with self._reading(file) as reader:
                total += sum(reader.group_rows())
        if not total:
            raise self.no_rows()
        return total

    def no_rows(self) -> InputError:
        """The error of an empty table."""
        return InputError(
            f"{self.what} {self.path} has no rows: check that it is the right file"
        )

    def nulls(self, column: str) -> int | None:
        """Rows without a value by the files' footers; None: they do not say."""
        total = 0
        for file in self.files:
            with self._reading(file) as reader:
                found = reader.nulls(column)
            if found is None:
                return None
            total += found
        return total

    def has(self, column: str | None) -> bool:
        """Whether every file has the column; raises if only some files have it."""
        having = [file for file, columns in self.schemas.items() if column in columns]
        if having and len(having) < len(self.files):
            lacking = next(file for file in self.files if file not in having)
            raise InputError(
                f"column {column!r} is in {having[0]} but not in {lacking}: write all "
                f"files of the {self.what} with the same columns"
            )
        return bool(having)

    def require(self, columns: Iterable[tuple[str, str]]) -> None:
        """Check that every file has the columns.

        Parameters
        ----------
        columns
            Setting and name of each column, such as ``("columns.src", "src")``.

        Raises
        ------
        InputError
            The message names the file, the missing columns, the existing ones and the
            settings.
        """
        pairs = list(columns)
        for file, there in self.schemas.items():
            missing = {name: key for key, name in pairs if name not in there}
            if missing:
                where = self.path if len(self.files) == 1 else file
                more = ", ..." if len(there) > SHOWN else ""
                has = f"it has {', '.join([*there][:SHOWN]) or 'none'}{more}"
                keys = dict.fromkeys(missing.values())
                raise InputError(
                    f"{where} has no column {' or '.join(map(repr, missing))} ({has}): "
                    f"set {' and '.join(keys)}{self._reads(file)}"
                )

    def _reads(self, file: str) -> str:
        """How a text file is read, for messages about its columns."""
        if not is_text_file(file):
            return ""
        dialect = self._text(file).dialect.text()
        return f" (read with {dialect}; set by input.separator, input.header, ...)"

    def batches(
        self, columns: list[str], rows: int = 1 << 18, settled: bool = True
    ) -> Generator[Batch, None, None]:
        """Yield the columns of all files, in order, in batches of bounded size.

        Parameters
        ----------
        columns
            Columns to read; each file must have them.
        rows
            Maximum rows of a batch; text without a copy is read in blocks of bytes.
        settled
            Whether columns of text files have the types of all their values (`settle`);
            False: of the first rows.
        """
        copied = self.copy and self.copy.files
        table = self.settle(columns) if settled and not copied else self
        for file in table.files:
            yield from table._batches_of(file, columns, rows)

    def decoded(self, columns: list[str], rows: int) -> Iterator[Batch]:
        """As `batches`, and write the copy, if there is to be one, for later passes."""
        if self.copy is None or self.copy.files:
            yield from self.batches(columns, rows)
            return
        table, found = self.settle(columns), {}
        with writing(self.copy.folder):
            self.copy.folder.mkdir(exist_ok=True)
        for number, file in enumerate(table.files):
            copied = CopiedFile(self.copy.folder / f"{number}.arrow")
            yield from copied.written(table._batches_of(file, columns, rows))
            if copied.rows:
                found[file] = copied
        self.copy.files.update(found)
        self.copy.table = table

    def _batches_of(self, file: str, columns: list[str], rows: int) -> Iterator[Batch]:
        first = self.first
        with self._values(file, columns) as (reader, names):
            for name in columns:
                places = [str(at) for at, each in enumerate(names, 1) if each == name]
                if len(places) > 1:
                    raise InputError(
                        f"{file} has {len(places)} columns named {name!r} "
                        f"({', '.join(places)}): rename all but one"
                    )
            there = [name for name in columns if name in names] or names[:1]
            for batch in reader.batches(there, rows, self.groups):
                for name in columns:
                    if name not in names:
                        value = self.in_paths[name][self.files.index(file)]
                        repeated = pa.repeat(value, batch.num_rows)
                        batch = batch.append_column(name, repeated)
                if batch.num_rows:
                    yield Batch(batch.select(columns), file, first)
                first += batch.num_rows


_TEXTS: dict[tuple[Any, ...], TextFile] = {}
"""What is known of text files, by their state."""


def open_table(
    path: str | Path, what: str, settings: InputSettings | None = None
) -> Table:
    """Find and sort the files of a user's table; nothing is read yet.

    Parameters
    ----------
    path
        A file, a directory (all its Parquet files, else its CSV files, and so on;
        names that begin with ``_`` or ``.`` are left out), a glob, or a URI of any of
        these that `pyarrow.fs` or fsspec opens.
    what
        Name of the table in messages, such as ``node table``.
    settings
        How text tables are written; None: all of it is detected.

    Raises
    ------
    InputError
        When the path does not exist, no file matches or the URI cannot be opened.
    """
    text = str(path)
    if "://" in text and HIDDEN in text:
        raise InputError(
            f"the key of {what} {text} was not kept: give it in the environment, and "
            "name the table without it"
        )
    filesystem, root = filesystem_of(text, what)
    try:
        files, folder = _files(filesystem, root, f"{what} {text}")
    except OSError as error:
        raise InputError(
            f"{what} {text} cannot be read ({error}): check the path and permissions"
        ) from error
    settings, named = settings or InputSettings(), columns_of_folders(folder, files)
    return Table(what, redacted(text), files, filesystem, settings, in_paths=named)


def _files(filesystem: Any, root: str, shown: str) -> tuple[tuple[str, ...], str]:
    """The files of a table, and the folder below which folders may be columns."""
    kind = filesystem.get_file_info(root).type
    if kind == pafs.FileType.File:
        return (root,), root
    if kind == pafs.FileType.NotFound and is_pattern(root):
        files, folder = glob(filesystem, root)
        if not files:
            raise InputError(f"no file matches {shown}: check the pattern")
        return files, folder
    if kind == pafs.FileType.NotFound:
        raise InputError(f"{shown} does not exist: check the path")
    if kind != pafs.FileType.Directory:
        raise InputError(
            f"{shown} is a pipe or a device, and a table is read several times: write "
            "it to a file first"
        )
    _no_versions(filesystem, root, shown)
    found = visible(filesystem, root)
    for endings in (PARQUET_ENDINGS, *((ending,) for ending in TEXT_ENDINGS)):
        files = tuple(file for file in found if has_ending(file, endings))
        if files:
            return files, root
    raise InputError(
        f"{shown} is a folder that holds no file that ends in {ENDINGS}: check the path"
    )


def _no_versions(filesystem: Any, root: str, shown: str) -> None:
    """Raise for a folder whose files are of several versions of a table."""
    for marker, name, rows in (
        ("_delta_log", "Delta", "DeltaTable(path).to_pyarrow_table()"),
        ("metadata", "Iceberg", "table.scan().to_arrow()"),
    ):
        found = filesystem.get_file_info(f"{root}/{marker}")
        if found.type == pafs.FileType.Directory:
            raise InputError(
                f"{shown} is a folder of a {name} table, whose files also hold rows "
                f"that are deleted: write its current rows ({rows}) to a Parquet file"
            )
