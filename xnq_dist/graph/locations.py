"""Finds the files of the user's tables: on disk, in a store, by pattern."""

from __future__ import annotations

import fnmatch
import os
import posixpath
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.fs as pafs

from xnq_dist.core.errors import InputError
from xnq_dist.core.redaction import split_query
from xnq_dist.core.store.folder import filesystem_at
from xnq_dist.graph.text_tables import kind_of, typed

__all__ = [
    "columns_of_folders",
    "filesystem_of",
    "glob",
    "is_pattern",
    "state_of",
    "visible",
]

NULL = "__HIVE_DEFAULT_PARTITION__"
"""Null in the name of a folder."""


def filesystem_of(text: str, what: str) -> tuple[Any, str]:
    """The filesystem of a path or URI, and the path in it.

    Raises
    ------
    InputError
        When there is no such filesystem; `what` names the table.
    """
    if "://" not in text:
        return pafs.LocalFileSystem(), str(Path(os.path.expanduser(text)).absolute())
    # Wildcards are not allowed in a URI: open the part before them.
    fixed, query = split_query(text)
    rest = ""
    while is_pattern(fixed):
        fixed, _, last = fixed.rpartition("/")
        rest = f"/{last}{rest}"
    try:
        filesystem, root = filesystem_at(fixed + query)
    except (pa.ArrowException, OSError, ImportError, ValueError) as error:
        raise InputError(
            f"{what} {text} cannot be opened ({error}): check the address"
        ) from error
    return filesystem, root + rest


def is_pattern(path: str) -> bool:
    """Whether a path has wildcards."""
    return any(mark in path for mark in "*?[")


def glob(filesystem: Any, pattern: str) -> tuple[tuple[str, ...], str]:
    """The files that match a pattern, sorted, and the folder before its wildcards."""
    fixed = pattern
    while is_pattern(fixed):
        fixed = posixpath.dirname(fixed)
    depth = pattern.count("/")
    found = tuple(
        file
        for file in visible(filesystem, fixed)
        if file.count("/") == depth and fnmatch.fnmatchcase(file, pattern)
    )
    return found, fixed


def visible(filesystem: Any, folder: str) -> list[str]:
    """All files in a folder, sorted, except names that begin with ``_`` or ``.``."""
    selector = pafs.FileSelector(folder, recursive=True, allow_not_found=True)
    return sorted(
        info.path
        for info in filesystem.get_file_info(selector)
        if info.type == pafs.FileType.File
        and not re.search(r"(^|/)[_.]", info.path[len(folder) :])
    )


def columns_of_folders(folder: str, files: Sequence[str]) -> pa.Table:
    """Columns that folders below `folder` are named after, with a row for each file.

    Spark, Polars and DuckDB write ``community=3/part.parquet``: all rows of the file
    have 3 in the column community.
    """
    paths = []
    for file in files:
        parts = file[len(folder) :].split("/")[:-1]
        paths.append(dict(part.split("=", 1) for part in parts if "=" in part))
    found = {}
    for name in paths[0]:
        if all(name in path for path in paths):
            texts = (unquote(path[name]) for path in paths)
            values = pa.array([None if text == NULL else text for text in texts])
            found[name] = typed(values, kind_of(values, "."), ".")
    return pa.table(found)


def state_of(filesystem: Any, file: str) -> list[Any] | None:
    """Size, times and inode, or ETag, of a file; None: the filesystem has none.

    Raises
    ------
    OSError
        When the file cannot be reached.
    """
    if filesystem.type_name == "local":
        found = os.stat(file)
        times = [found.st_mtime_ns, found.st_ctime_ns]
        return [found.st_size, *times, found.st_dev, found.st_ino]
    info = filesystem.get_file_info(file)
    with filesystem.open_input_stream(file, compression=None) as stream:
        described = stream.metadata()
    tags = {key.lower(): value.decode() for key, value in described.items()}
    if info.mtime_ns is None or "etag" not in tags:
        return None
    return [info.size, info.mtime_ns, tags["etag"]]
