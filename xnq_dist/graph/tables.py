"""Streams the user's tables: files, columns and ids; errors name file and column."""

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
    """Locations of the user's tables, each a file, a directory, a glob or a URI."""

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
        """The values of a column; dictionary encoding is removed."""
        array = self.rows.column(name)
        return array.dictionary_decode() if pt.is_dictionary(array.type) else array

    def row(self, at: int) -> str:
        """A row's name in messages: its number, from 1, and its file."""
        return f"row {self.first + at + 1} of {self.file}"


@contextmanager
def _reading(file: str) -> Iterator[Any]:
    """The module of a file's format; reading errors in the block become `InputError`.

    The block must include the iteration, where Arrow raises errors too.
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
    """Its name in messages, such as ``node table``."""
    path: str
    """Its location, without credentials."""
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
        """Whether all files store their numbers of rows, nulls and bytes."""
        return all(format_of(file).footer for file in self.files)

    @cached_property
    def n_rows(self) -> int:
        """Rows of all files; 0 if a file does not store its number of rows."""
        if not self.has_footers:
            return 0
        total = 0
        for file in self.files:
            with _reading(file) as reader:
                total += reader.rows(self.filesystem, file)
        return total

    def chunks(self, columns: set[str]) -> Iterator[Any]:
        """Yield the footers' metadata of the columns' chunks; none without footers."""
        for file in self.files if self.has_footers else ():
            with _reading(file) as reader:
                for chunk in reader.chunks(self.filesystem, file):
                    if chunk.path_in_schema.split(".")[0] in columns:
                        yield chunk

    def has(self, column: str) -> bool:
        """Whether every file has the column; raises if only some files have it."""
        having = [file for file, columns in self.schemas.items() if column in columns]
        if having and len(having) < len(self.files):
            lacking = next(file for file in self.files if file not in having)
            raise InputError(
                f"column {column!r} is in {having[0]} but not in {lacking}: write all "
                f"files of the {self.what} with the same columns"
            )
        return bool(having)

    def require(self, columns: Mapping[str, str]) -> None:
        """Check that every file has the columns.

        Parameters
        ----------
        columns
            Column names by the setting that names them, such as
            ``{"columns.src": "src"}``.

        Raises
        ------
        InputError
            The message names the file, the missing column, the existing columns and
            the setting.
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
        """Yield the columns of all files, in order, in batches of bounded size.

        Parameters
        ----------
        columns
            Columns to read; each file must have them.
        rows
            Maximum rows of a batch; CSV files are read in blocks of bytes instead.
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
    """Find and sort the files of a user's table; nothing is read yet.

    Parameters
    ----------
    path
        A file, a directory (all its Parquet files, else its CSV files, and so on;
        names that begin with ``_`` or ``.`` are left out), a glob, or a `pyarrow.fs`
        URI of any of these.
    what
        Name of the table in messages, such as ``node table``.

    Raises
    ------
    InputError
        When the path does not exist, no file matches or the URI cannot be opened.
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
            raise InputError(f"{what} {text} does not exist: check the path")
        if info.type == pafs.FileType.File:
            return Table(what, shown, (root,), filesystem)
        found = _visible(filesystem, root)
    except OSError as error:
        raise InputError(
            f"{what} {text} cannot be read ({error}): check the path and permissions"
        ) from error
    known = FORMATS.records().values()
    for each in known:
        files = tuple(sorted(file for file in found if file.endswith(each.endings)))
        if files:
            return Table(what, shown, files, filesystem)
    endings = " and no ".join(each.endings[0] for each in known)
    raise InputError(f"{what}: folder {text} holds no {endings} file: check the path")


def _filesystem(text: str, what: str) -> tuple[Any, str]:
    if "://" not in text:
        return pafs.LocalFileSystem(), str(Path(text).expanduser().absolute())
    # Wildcards are not allowed in a URI: open the part before them.
    fixed, query = split_query(text)
    rest = ""
    while any(mark in fixed for mark in "*?["):
        fixed, _, last = fixed.rpartition("/")
        rest = f"/{last}{rest}"
    try:
        filesystem, root = pafs.FileSystem.from_uri(fixed + query)
    except (pa.ArrowException, OSError) as error:
        raise InputError(
            f"{what} {text} cannot be opened ({error}): check the address"
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
        For another type, a null (the message names the row) or an id too large for
        int64.
    """
    array = batch.column(column)
    if array.null_count:
        at = pc.index(pc.is_null(array), pa.scalar(True)).as_py()
        raise InputError(
            f"column {column!r} is null in {batch.row(at)}: fill in the id, every row "
            "needs one"
        )
    if pt.is_integer(array.type):
        try:
            return array.cast(pa.int64())
        except pa.ArrowInvalid as error:
            raise InputError(
                f"column {column!r} of {batch.file} holds ids too large for int64, "
                f"such as {pc.max(array).as_py()}: write them as strings"
            ) from error
    if (
        pt.is_string(array.type)
        or pt.is_large_string(array.type)
        or pt.is_string_view(array.type)
    ):
        return array.cast(pa.string())
    raise InputError(
        f"column {column!r} of {batch.file} is {array.type}, not an integer or a "
        "string: cast the ids to one of them"
    )


def show(ids: pa.Array | pa.ChunkedArray, at: int) -> str:
    """An id as shown in messages, like Python's repr; invalid bytes are replaced."""
    value = ids[at]
    if pt.is_integer(value.type):
        return str(value.as_py())
    return repr(bytes(value.as_buffer()).decode("utf-8", errors="replace"))
