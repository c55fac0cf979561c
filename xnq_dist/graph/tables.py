"""The user's tables, streamed: files, columns and ids, each fault in one sentence."""

from __future__ import annotations

import fnmatch
import posixpath
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
import pyarrow.types as pt

from xnq_dist.core.errors import InputError
from xnq_dist.core.redaction import redacted, split_query
from xnq_dist.graph.formats import FORMATS, format_of

__all__ = [
    "Batch",
    "Sources",
    "Table",
    "ids_of",
    "open_table",
    "show",
]


@dataclass(frozen=True)
class Sources:
    """Where the user's tables are: a file, a directory, a glob or a URI each."""

    nodes: str
    edges: str
    memberships: str | None = None

    def __repr__(self) -> str:
        shown = redacted((self.nodes, self.edges, self.memberships))
        return f"Sources{shown!r}"


@dataclass(frozen=True)
class Batch:
    """Some rows of one file."""

    rows: pa.RecordBatch
    file: str
    first: int
    """Rows of the file before this batch."""

    def column(self, name: str) -> pa.Array:
        """A column's values, dictionaries decoded."""
        array = self.rows.column(name)
        return array.dictionary_decode() if pt.is_dictionary(array.type) else array

    def row(self, at: int) -> str:
        """How messages name a row: counted from 1, with its file."""
        return f"row {self.first + at + 1} of {self.file}"


@contextmanager
def _reading(file: str) -> Iterator[Any]:
    """The module of a file's format; errors of reading it are ours.

    Arrow's surface anywhere while iterating.
    """
    record = format_of(file)
    try:
        yield FORMATS.module_of(record.name)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        reason = " ".join(str(error).split())
        raise InputError(
            f"{file} is not {record.title} ({reason}): {record.hint}"
        ) from error


@dataclass(frozen=True)
class Table:
    """A table in one or more files, read in batches of bounded size."""

    what: str
    """What messages call it, such as ``node table``."""
    path: str
    """Where it is, without credentials."""
    files: tuple[str, ...]
    """Paths within the filesystem, sorted."""
    filesystem: Any

    def schema(self, file: str) -> dict[str, pa.DataType]:
        """Names and types of one file's columns."""
        with _reading(file) as reader:
            schema = reader.schema(self.filesystem, file)
            return dict(zip(schema.names, schema.types, strict=True))

    @cached_property
    def schemas(self) -> dict[str, dict[str, pa.DataType]]:
        """The columns of every file."""
        return {file: self.schema(file) for file in self.files}

    @cached_property
    def has_footers(self) -> bool:
        """Whether all files say their number of rows, and nulls and bytes."""
        return all(format_of(file).footer for file in self.files)

    @cached_property
    def n_rows(self) -> int:
        """Rows of all files, 0 when a format hides the number."""
        if not self.has_footers:
            return 0
        total = 0
        for file in self.files:
            with _reading(file) as reader:
                total += reader.rows(self.filesystem, file)
        return total

    def chunks(self, columns: set[str]) -> Iterator[Any]:
        """What footers say of every chunk of some columns; nothing without footers."""
        for file in self.files if self.has_footers else ():
            with _reading(file) as reader:
                for chunk in reader.chunks(self.filesystem, file):
                    if chunk.path_in_schema.split(".")[0] in columns:
                        yield chunk

    def has(self, column: str) -> bool:
        """Whether every file has the column; a column of some files is refused."""
        having = [file for file, columns in self.schemas.items() if column in columns]
        if having and len(having) < len(self.files):
            lacking = next(file for file in self.files if file not in having)
            raise InputError(
                f"column {column!r} is in {having[0]} but not in {lacking}: all files "
                f"of the {self.what} need the same columns"
            )
        return bool(having)

    def require(self, columns: Mapping[str, str]) -> None:
        """Refuse a file that lacks a column.

        Parameters
        ----------
        columns
            Name of the column for each setting that names one, such as
            ``{"columns.src": "src"}``.

        Raises
        ------
        InputError
            Naming the file, the column, the columns there and the setting.
        """
        for file, there in self.schemas.items():
            for setting, column in columns.items():
                if column not in there:
                    raise InputError(
                        f"{file} has no column {column!r} (it has "
                        f"{', '.join(there) or 'none'}): set {setting} to the name of "
                        "one of them"
                    )

    def batches(
        self, columns: list[str], rows: int = 1 << 18
    ) -> Generator[Batch, None, None]:
        """The columns of all files, in order, in batches of bounded size.

        Parameters
        ----------
        columns
            Columns to read; each file must have them.
        rows
            Most rows of a batch; formats of text may come in blocks of bytes.
        """
        for file in self.files:
            first = 0
            with _reading(file) as reader:
                schema = pa.schema(self.schemas[file])
                for batch in reader.batches(
                    self.filesystem, file, columns, rows, schema
                ):
                    if batch.num_rows:
                        yield Batch(batch, file, first)
                    first += batch.num_rows


def open_table(path: str | Path, what: str) -> Table:
    """A user's table, its files found and sorted; nothing is read yet.

    Parameters
    ----------
    path
        A file, a directory (all its Parquet files, else its CSV files, and so on;
        names that begin with ``_`` or ``.`` are left out), a glob, or a `pyarrow.fs`
        URI of any of these.
    what
        What messages call it, such as ``node table``.

    Raises
    ------
    InputError
        When nothing is there, nothing matches or the URI cannot be opened.
    """
    text, shown = str(path), redacted(str(path))
    filesystem, root = _filesystem(text, what)
    try:
        if any(mark in root for mark in "*?["):
            files = _glob(filesystem, root)
            if not files:
                raise InputError(f"{what}: no file matches {text}: check the pattern")
            return Table(what, shown, files, filesystem)
        info = filesystem.get_file_info(root)
        if info.type == pafs.FileType.NotFound:
            raise InputError(f"{what} {text} is not there: check the path")
        if info.type == pafs.FileType.File:
            return Table(what, shown, (root,), filesystem)
        found = _visible(filesystem, root)
    except OSError as error:
        raise InputError(f"{what} {text} cannot be read ({error})") from error
    known = FORMATS.records().values()
    for each in known:
        files = tuple(sorted(file for file in found if file.endswith(each.endings)))
        if files:
            return Table(what, shown, files, filesystem)
    endings = " and no ".join(each.endings[0] for each in known)
    raise InputError(f"{what}: folder {text} holds no {endings} file")


def _filesystem(text: str, what: str) -> tuple[Any, str]:
    if "://" not in text:
        return pafs.LocalFileSystem(), str(Path(text).expanduser().absolute())
    # A glob's marks are not legal in a URI: open its fixed part.
    fixed, query = split_query(text)
    rest = ""
    while any(mark in fixed for mark in "*?["):
        fixed, _, last = fixed.rpartition("/")
        rest = f"/{last}{rest}"
    try:
        filesystem, root = pafs.FileSystem.from_uri(fixed + query)
    except (pa.ArrowException, OSError) as error:
        raise InputError(
            f"{what} {text} is not a location that can be opened ({error})"
        ) from error
    return filesystem, root + rest


def _glob(filesystem: Any, pattern: str) -> tuple[str, ...]:
    fixed = pattern
    while any(mark in fixed for mark in "*?["):
        fixed = posixpath.dirname(fixed)
    depth = pattern.count("/")
    return tuple(
        sorted(
            file
            for file in _visible(filesystem, fixed)
            if file.count("/") == depth and fnmatch.fnmatchcase(file, pattern)
        )
    )


def _visible(filesystem: Any, folder: str) -> list[str]:
    selector = pafs.FileSelector(folder, recursive=True, allow_not_found=True)
    return [
        info.path
        for info in filesystem.get_file_info(selector)
        if info.type == pafs.FileType.File
        and not any(
            part.startswith(("_", "."))
            for part in info.path[len(folder) :].strip("/").split("/")
        )
    ]


def ids_of(batch: Batch, column: str) -> pa.Array:
    """A batch's ids as int64 or string.

    Parameters
    ----------
    batch
        Rows with the column.
    column
        Integers, strings, or dictionaries of those.

    Raises
    ------
    InputError
        For another type, a null (its row is named), an id beyond int64 or text that
        is not UTF-8.
    """
    array = batch.column(column)
    if array.null_count:
        at = pc.index(pc.is_null(array), pa.scalar(True)).as_py()
        raise InputError(
            f"column {column!r} is null in {batch.row(at)}: every row needs an id"
        )
    if pt.is_integer(array.type):
        try:
            return array.cast(pa.int64())
        except pa.ArrowInvalid as error:
            raise InputError(
                f"column {column!r} of {batch.file} holds ids beyond int64, such as "
                f"{pc.max(array).as_py()}: write them as strings"
            ) from error
    if (
        pt.is_string(array.type)
        or pt.is_large_string(array.type)
        or pt.is_string_view(array.type)
    ):
        return array.cast(pa.string())
    raise InputError(
        f"column {column!r} of {batch.file} is {array.type}, not an integer or a "
        "string: cast the ids"
    )


def show(ids: pa.Array | pa.ChunkedArray, at: int) -> str:
    """How messages name an id: as Python would, odd bytes replaced."""
    value = ids[at]
    if pt.is_integer(value.type):
        return str(value.as_py())
    return repr(bytes(value.as_buffer()).decode("utf-8", errors="replace"))
