"""Stages of a run: a folder of data files and a manifest, committed atomically.

Data files are written first, with the attempt's id in their names; the manifest that
lists them is written last. A folder without a manifest is no stage. Data and manifest
are on the disk before a stage counts as complete, and all data read back are compared
with the checksums in the manifest.
"""

from __future__ import annotations

import datetime
import io
import logging
import platform
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import cache, lru_cache
from importlib import metadata
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from xnq_dist.core import npy, schemas
from xnq_dist.core.errors import DamagedError, StageError
from xnq_dist.core.redaction import joined, redacted
from xnq_dist.core.store.checksums import (
    BLOCK,
    CheckedFile,
    FileRecord,
    fingerprint,
)
from xnq_dist.core.store.files import TableWriter
from xnq_dist.core.store.folder import MANIFEST, Folder, reason

__all__ = ["Attempt", "Manifest", "Stage"]

log = logging.getLogger(__name__)

MANIFEST_VERSION = 2


@dataclass(frozen=True)
class Manifest:
    """Files, inputs and facts of a complete stage.

    One that a stage wrote or read is pickled as a reference: the process that gets it
    reads the file. Tasks for each partition stay small this way.
    """

    stage: str
    attempt: str
    fingerprint: str
    inputs: dict[str, Any]
    """The values behind the fingerprint, to report differences."""
    files: tuple[FileRecord, ...]
    facts: dict[str, Any]
    """Values that later stages and reports use."""
    seconds: float
    created: str
    versions: dict[str, str] = field(default_factory=dict)
    version: int = MANIFEST_VERSION
    where: ClassVar[Stage] = None  # type: ignore[assignment]
    """The stage that has it in a file, and its files; a changed copy, which is pickled
    whole, has none."""

    @property
    def released(self) -> bool:
        """Whether the files were removed after use (`Stage.release`)."""
        return bool(self.facts.get("released"))

    def named(self, prefix: str) -> list[FileRecord]:
        """Files whose name starts with the prefix, in name order."""
        found = (record for record in self.files if record.name.startswith(prefix))
        return sorted(found, key=lambda record: record.name)

    def __reduce__(self) -> tuple[Any, ...]:
        if "where" not in vars(self):
            return type(self), tuple(vars(self).values())
        return _sent, (self.where, self.attempt)


class Stage(Folder):
    """One stage's folder in a run directory."""

    def child(self, name: str) -> Stage:
        """A folder inside this one, for a stage of its own."""
        return Stage(joined(self.location, name), self)

    def manifest(self) -> Manifest | None:
        """The manifest of a complete stage; None if it is missing or damaged.

        A manifest with a file that is missing or has another size is damaged, too.
        """
        try:
            return self.intact()
        except DamagedError as error:
            log.warning("%s", error)
            return None

    def intact(self) -> Manifest | None:
        """The manifest, checked with the sizes of its files; None if incomplete.

        A manifest of another version of this package counts as missing.

        Raises
        ------
        DamagedError
            When the manifest, or the size of a file, is not what was written.
        """
        manifest = self._read()
        for record in manifest.files if manifest else ():
            if self.size(record.name) != record.bytes:
                what = "is missing or has another size"
                raise DamagedError(self.uri, record.name, what)
        return manifest

    def _read(self) -> Manifest | None:
        values = self.read_record(MANIFEST)
        if values is None or values.get("version") != MANIFEST_VERSION:
            return None
        try:
            files = tuple(FileRecord(**record) for record in values.pop("files"))
            return self._keeps(Manifest(files=files, **values))
        except (TypeError, KeyError) as error:
            raise DamagedError(
                self.uri, MANIFEST, f"is not a manifest ({error})"
            ) from error

    def _keeps(self, manifest: Manifest) -> Manifest:
        manifest.__dict__["where"] = self
        return manifest

    def damages(self, thorough: bool = True) -> list[DamagedError]:
        """Damages of a complete stage; empty for an incomplete one.

        Parameters
        ----------
        thorough
            Read every byte; else check the manifest and the sizes of files.
        """
        try:
            manifest = self.intact()
        except DamagedError as error:
            return [error]
        return [*self.damaged(manifest.files)] if manifest and thorough else []

    def damaged(self, files: Iterable[FileRecord]) -> Iterator[DamagedError]:
        """Read every byte of files, a MiB in memory at a time; yield their damages."""
        for record in files:
            try:
                with self.open(record) as stream:
                    while stream.read(BLOCK):
                        pass
            except DamagedError as error:
                yield error

    def begin(self, attempt: str = "") -> Attempt:
        """Begin a new attempt; files of older ones are removed, the manifest first.

        `attempt`: its id; empty: a new one.
        """
        self.delete_folder()
        self.create()
        return Attempt(self.location, self.parent, attempt or uuid.uuid4().hex[:8])

    def release(self, manifest: Manifest) -> None:
        """Remove a complete stage's data files; its manifest stays, marked as released.

        The manifest is changed first, so that it never lists missing files.
        """
        facts = {**manifest.facts, "released": True}
        self.rewrite(replace(manifest, files=(), facts=facts))
        for record in manifest.files:
            self.delete(record.name)

    def rewrite(self, manifest: Manifest) -> None:
        """Replace the manifest of a complete stage."""
        self.write_record(MANIFEST, redacted(asdict(manifest)))

    @contextmanager
    def open(self, record: FileRecord) -> Iterator[io.BufferedReader]:
        """A stream of a data file whose bytes are compared with the record.

        Raises
        ------
        DamagedError
            When the file is missing, or bytes that are read differ.
        StageError
            When it cannot be read for another reason.
        """
        uri, name = self.uri, record.name
        try:
            with self.open_input(name) as source:
                yield io.BufferedReader(CheckedFile(source, record, uri), BLOCK)
        except FileNotFoundError as error:
            raise DamagedError(uri, name, "is missing") from error
        except OSError as error:
            raise StageError(
                f"{self.uri_of(name)} cannot be read ({reason(error)}): make it "
                "readable and run again"
            ) from error

    def read_table(
        self, record: FileRecord, schema: str, columns: Sequence[str] | None = None
    ) -> pa.Table:
        """Read a Parquet file of this stage, checked against its record and schema."""
        with self.open(record) as stream:
            file = pq.ParquetFile(stream)
            where = self.uri_of(record.name)
            schemas.check(file.schema_arrow, schema, where, columns)
            return file.read(columns=list(columns) if columns else None)

    def read_arrays(self, record: FileRecord) -> dict[str, np.ndarray]:
        """Read the arrays of a file of this stage, checked."""
        with self.open(record) as stream:
            return npy.read_arrays(stream)

    def row_blocks(
        self, record: FileRecord, name: str, rows: int
    ) -> Iterator[np.ndarray]:
        """Read an array of a file in blocks of up to `rows` rows, checked."""
        with self.open(record) as stream:
            yield from npy.read_row_blocks(stream, name, rows)


@dataclass(frozen=True, repr=False)
class Attempt(Stage):
    """An attempt at a stage: writes its data files, also on workers, and commits it."""

    id: str = ""
    began: float = field(default_factory=time.monotonic)
    """`time.monotonic` when it began."""

    def write_table(self, stem: str, table: pa.Table, schema: str) -> FileRecord:
        """Write one Parquet file, checked against its schema."""
        with self.table_writer(stem, schema) as writer:
            writer.write(table)
        return writer.record

    def table_writer(self, stem: str, schema: str) -> TableWriter:
        """A writer of a Parquet file from several tables, each checked."""
        return TableWriter(self, f"{stem}-{self.id}.parquet", schema)

    def write_arrays(self, stem: str, **arrays: np.ndarray) -> FileRecord:
        """Write arrays to one file, without pickled objects."""
        name = f"{stem}-{self.id}.npy"
        with self.open_output(name) as sink:
            npy.write_arrays(sink, arrays)
        rows = max((a.shape[0] if a.ndim else 1 for a in arrays.values()), default=0)
        return sink.record(name, rows)

    def commit(
        self,
        files: Sequence[FileRecord],
        inputs: Mapping[str, Any],
        facts: Mapping[str, Any],
    ) -> Manifest:
        """Write the manifest to the disk, which makes the stage complete."""
        manifest = Manifest(
            stage=self.name,
            attempt=self.id,
            fingerprint=fingerprint(inputs),
            inputs=dict(inputs),
            files=tuple(files),
            facts=dict(facts),
            seconds=round(time.monotonic() - self.began, 3),
            created=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            versions=versions(),
        )
        missing = [r.name for r in files if self.size(r.name) != r.bytes]
        if missing:
            raise StageError(
                f"stage {self.name}: {missing[0]} in {self.uri} is missing or "
                "has another size: check that all workers see the same run directory, "
                "and run again"
            )
        self.sync([record.name for record in files])
        self.rewrite(manifest)
        return self._keeps(manifest)


@lru_cache(maxsize=32)
def _sent(stage: Stage, attempt: str) -> Manifest:
    """A manifest that was sent by reference."""
    manifest = stage._read()
    if manifest is None or manifest.attempt != attempt:
        raise StageError(f"{stage.uri} was made again while it was read: run again")
    return manifest


@cache
def versions() -> dict[str, str]:
    """Versions of Python and of the packages that results depend on."""
    names = ["xnq-dist", "numpy", "scipy", "numba", "scikit-learn", "pyarrow", "dask"]
    return {"python": platform.python_version()} | {
        name: metadata.version(name) for name in names
    }
