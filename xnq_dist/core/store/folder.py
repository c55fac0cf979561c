"""A folder on a disk or a store, through `pyarrow.fs` or fsspec.

Only this module accesses the filesystem of a run directory, so that ``s3://`` needs no
other code. A store must show a closed file at once, complete, to every process; a copy
must replace a file; a deleted file must be gone.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs

from xnq_dist.core.errors import DamagedError, RunDirectoryError
from xnq_dist.core.redaction import joined, redacted, split_query
from xnq_dist.core.store.checksums import ChecksumWriter, fingerprint

__all__ = ["MANIFEST", "Folder", "filesystem_at", "reason", "sealed"]

MANIFEST = "_manifest.json"
CHECKSUM = "checksum"
"""Field of a record that holds the fingerprint of all others."""
BY_ARROW = ("s3", "gs", "gcs", "hdfs", "abfs", "abfss", "file", "viewfs")
"""Schemes of `pyarrow.fs`; all others are those of fsspec."""


@dataclass(frozen=True, repr=False)
class Folder:
    """A folder on any `pyarrow.fs` filesystem; small, picklable, opened on use."""

    location: str
    """Absolute local path, or a URI such as ``s3://bucket/prefix``. It may include
    credentials, so it is never shown."""
    parent: Folder | None = field(default=None, compare=False)
    """The folder that contains this one, if made by `child`."""

    @property
    def uri(self) -> str:
        """The location without credentials, for messages, logs and files."""
        return str(redacted(self.location))

    def __repr__(self) -> str:
        return f"Folder({self.uri!r})"

    @property
    def name(self) -> str:
        """The last part of the location."""
        return split_query(self.location)[0].rsplit("/", 1)[-1]

    def uri_of(self, name: str) -> str:
        """The location of a file in the folder, without credentials."""
        return joined(self.uri, name)

    @classmethod
    def of(cls, location: str | Path) -> Folder:
        """The folder for a path (made absolute) or URI."""
        text = str(location)
        if "://" in text:
            before, query = split_query(text)
            return cls(before.rstrip("/") + query)
        return cls(str(Path(os.path.expanduser(text)).absolute()))

    @property
    def is_local(self) -> bool:
        """Whether the folder is on this machine's disk."""
        return isinstance(self.filesystem, pafs.LocalFileSystem)

    def path(self, name: str = "") -> str:
        """Path of a file within the filesystem."""
        root = _opened(self.location)[1]
        return f"{root}/{name}" if name else root

    def child(self, name: str) -> Folder:
        """A folder inside this one."""
        return Folder(joined(self.location, name), self)

    @property
    def filesystem(self) -> Any:
        """The `pyarrow.fs.FileSystem`."""
        return _opened(self.location)[0]

    def create(self) -> None:
        """Create the folder and its parents; raise `RunDirectoryError` if impossible.

        On a disk, only the owner can access a new folder and its contents. An existing
        folder keeps its mode.
        """
        if self.parent is not None:
            self.parent.create()
        try:
            if self.is_local:
                mode = 0o700 if self.parent is None else 0o777
                Path(self.path()).mkdir(mode, parents=True, exist_ok=True)
            else:
                self.filesystem.create_dir(self.path(), recursive=True)
        except OSError as error:
            raise RunDirectoryError(
                f"{self.uri} cannot be written ({reason(error)}): choose another "
                "folder for --out"
            ) from error

    def _info(self, name: str) -> Any:
        return self.filesystem.get_file_info(self.path(name))

    def exists(self, name: str = "") -> bool:
        """Whether a file or folder (without a name: this one) exists."""
        return bool(self._info(name).type != pafs.FileType.NotFound)

    def size(self, name: str) -> int | None:
        """Bytes of a file; None if it does not exist."""
        info = self._info(name)
        return int(info.size) if info.type == pafs.FileType.File else None

    def names(self) -> list[str]:
        """Sorted names of the files and folders inside; empty if there is no folder."""
        selector = pafs.FileSelector(self.path(), allow_not_found=True)
        found = self.filesystem.get_file_info(selector)
        return sorted(info.base_name for info in found)

    def delete(self, name: str) -> None:
        """Remove a file if it exists."""
        with suppress(FileNotFoundError):
            self.filesystem.delete_file(self.path(name))

    def delete_folder(self) -> None:
        """Remove the folder with its contents, the manifest first, if it exists."""
        if self.exists():
            self.delete(MANIFEST)
            self.filesystem.delete_dir(self.path())

    def copy(self, name: str, target: str) -> None:
        """Copy a file; on an object store the copy is visible once complete."""
        self.filesystem.copy_file(self.path(name), self.path(target))

    def read_bytes(self, name: str) -> bytes:
        """Read a complete file."""
        with self.open_input(name) as stream:
            return bytes(stream.read())

    def write_bytes(self, name: str, data: bytes) -> None:
        """Write a complete file atomically: readers never see a part of it."""
        try:
            with (
                self.replacing([name]) as aside,
                self.filesystem.open_output_stream(self.path(aside[name])) as stream,
            ):
                stream.write(data)
        except (OSError, NotImplementedError) as error:
            raise RunDirectoryError(
                f"{self.uri_of(name)} cannot be written ({reason(error)})"
            ) from error

    @contextmanager
    def replacing(self, names: Iterable[str]) -> Iterator[dict[str, str]]:
        """Where to write new files, by the names that they get after the block.

        Readers see the file before or the new one, complete; after an error in the
        block, those before.
        """
        # Object stores need this too: a stream that is closed by an interrupt leaves an
        # incomplete object.
        aside = {name: f"{name}.{uuid.uuid4().hex[:8]}.tmp" for name in names}
        try:
            yield aside
            for name, new in aside.items():
                if self.is_local:
                    self.filesystem.move(self.path(new), self.path(name))
                else:
                    self.copy(new, name)
        finally:
            for new in aside.values():
                with suppress(OSError):
                    self.delete(new)

    def sync(self, names: Iterable[str]) -> None:
        """Wait until files and their names are on the disk; no effect on stores."""
        if not self.is_local:
            return
        for name in (*names, ""):  # the folder itself last
            handle = os.open(self.path(name), os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)

    def write_record(self, name: str, values: Mapping[str, Any]) -> None:
        """Write a JSON object with a checksum, and wait until it is on the disk.

        `read_record` reads it back.
        """
        self.write_bytes(name, sealed(values).encode())
        self.sync([name])

    def read_record(self, name: str) -> dict[str, Any] | None:
        """The values that `write_record` wrote; None if the file does not exist.

        Raises
        ------
        DamagedError
            When the content differs from its checksum, or has none.
        RunDirectoryError
            When it is a folder.
        OSError
            When a file system or store does not answer, which is no damage.
        """
        before = None
        while True:
            try:
                data = self.read_bytes(name)
                return _unsealed(data)
            except (FileNotFoundError, NotADirectoryError):
                return None
            except OSError as error:
                if self._info(name).type != pafs.FileType.Directory:
                    raise
                raise RunDirectoryError(
                    f"{self.uri_of(name)} is a folder where a file belongs: move it "
                    "away, or choose another --out"
                ) from error
            except ValueError as error:
                # Reading an object takes two requests, between which it may be replaced
                # by one of another size. A damaged object reads the same again.
                if data == before:
                    what = f"cannot be read ({error})"
                    raise DamagedError(self.uri, name, what) from error
                before = data

    @contextmanager
    def open_output(self, name: str) -> Iterator[ChecksumWriter]:
        """A stream to a new file that computes the size and checksum."""
        with self.filesystem.open_output_stream(self.path(name)) as sink:
            yield ChecksumWriter(sink)

    def open_input(self, name: str) -> Any:
        """A seekable stream from a file, as a context manager."""
        return self.filesystem.open_input_file(self.path(name))


@lru_cache
def _opened(location: str) -> tuple[Any, str]:
    """The filesystem of a location, and the path in it."""
    if "://" not in location:
        return pafs.LocalFileSystem(), location
    try:
        return filesystem_at(location)
    except (pa.ArrowInvalid, OSError, ImportError, ValueError) as error:
        raise RunDirectoryError(
            f"{redacted(location)} cannot be opened ({redacted(str(error))}): check "
            "the address"
        ) from error


def sealed(values: Mapping[str, Any]) -> str:
    """JSON text of an object, with the checksum of its content as a field."""
    # Convert the values to what reading returns: keys as text, tuples as lists.
    plain = json.loads(json.dumps(dict(values)))
    plain.pop(CHECKSUM, None)
    plain[CHECKSUM] = fingerprint(plain)
    return json.dumps(plain, indent=1, sort_keys=True)


def _unsealed(data: bytes) -> dict[str, Any]:
    """The values of a `sealed` text; a `ValueError` if it is damaged."""
    values: dict[str, Any] = json.loads(data)
    if not isinstance(values, dict) or values.pop(CHECKSUM, "") != fingerprint(values):
        raise ValueError("it differs from its checksum")
    return values


def filesystem_at(uri: str) -> tuple[Any, str]:
    """The filesystem of a URI, of `pyarrow.fs` or fsspec, and the path in it.

    Raises
    ------
    pa.ArrowInvalid, OSError, ImportError, ValueError
        When there is no such filesystem.
    """
    known = ("fsspec+", *(f"{scheme}://" for scheme in BY_ARROW))
    found: tuple[Any, str] = pafs.FileSystem.from_uri(
        uri if uri.startswith(known) else f"fsspec+{uri}"
    )
    return found


def reason(error: Exception) -> str:
    """The system's text of an error."""
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
