"""The run directory: stages that are whole or nothing, on a disk or an object store.

Commit rule, the same everywhere: data files are written first, under names that carry
the attempt; the manifest is written last and names them. A folder without a manifest
is nothing. Only this module touches the filesystem of a run directory, through
`pyarrow.fs`, so that ``s3://`` needs no other code.
"""

from __future__ import annotations

import datetime
import hashlib
import io
import json
import logging
import platform
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from importlib import metadata
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from xnq_dist import schemas
from xnq_dist.errors import RunDirectoryError, StageError
from xnq_dist.npz import read_npz
from xnq_dist.redaction import redacted

__all__ = ["Attempt", "FileRecord", "Folder", "Manifest", "RunDirectory", "fingerprint"]

log = logging.getLogger(__name__)

MANIFEST = "_manifest.json"
MANIFEST_VERSION = 1
STATES = "states"
"""Folder of states that are in files while supersteps run; never a whole stage."""
STAGES = (
    "graph",
    "select",
    STATES,
    "checkpoints",
    "embeddings",
    "readout",
    "posteriors",
    "quantify",
)
"""Stage folders in the order of the line; a stage depends on those before it."""


def fingerprint(*parts: Any) -> str:
    """Hash of JSON-able values, the same on every machine.

    Examples
    --------
    >>> fingerprint({"b": 1, "a": 2}) == fingerprint({"a": 2, "b": 1})
    True
    """
    text = json.dumps(parts, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


@dataclass(frozen=True)
class FileRecord:
    """One data file as its manifest names it."""

    name: str
    rows: int
    bytes: int
    checksum: str
    """blake2b-128 of the file, hexadecimal."""


@dataclass(frozen=True)
class Manifest:
    """What a whole stage is: its files and where they came from."""

    stage: str
    attempt: str
    fingerprint: str
    inputs: dict[str, Any]
    """What went into the fingerprint, to say what differs."""
    files: tuple[FileRecord, ...]
    facts: dict[str, Any]
    """Figures that later stages and reports use."""
    seconds: float
    created: str
    versions: dict[str, str] = field(default_factory=dict)
    version: int = MANIFEST_VERSION

    def named(self, prefix: str) -> list[FileRecord]:
        """Files whose name begins with the prefix, in name order."""
        found = [record for record in self.files if record.name.startswith(prefix)]
        return sorted(found, key=lambda record: record.name)


PUBLISHED = (
    "prevalence.parquet",
    "anomalies.parquet",
    "changes.parquet",
    "communities.parquet",
    "partitions.parquet",
    "report.html",
)
"""Files at the top of a run directory, beside the folder ``plots``."""
PREVIOUS = "previous"
"""Folder of the results that a run directory held before its stages changed."""


class _HashingWriter(io.RawIOBase):
    """Counts and hashes what passes into an output stream."""

    def __init__(self, sink: Any) -> None:
        self._sink = sink
        self.hash = hashlib.blake2b(digest_size=16)
        self.count = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:
        view = memoryview(data).cast("B")
        self._sink.write(view)
        self.hash.update(view)
        self.count += len(view)
        return len(view)


@dataclass(frozen=True, repr=False)
class Folder:
    """A folder on any `pyarrow.fs` filesystem; small, picklable, opened on use."""

    location: str
    """Absolute path or URI, credentials included: to be opened, never to be shown."""
    parent: Folder | None = field(default=None, compare=False)

    @property
    def uri(self) -> str:
        """Where it is, without credentials: for messages, logs and files."""
        return str(redacted(self.location))

    def __repr__(self) -> str:
        return f"Folder({self.uri!r})"

    @classmethod
    def of(cls, location: str | Path) -> Folder:
        """The folder for a path (made absolute) or URI."""
        text = str(location)
        if "://" in text:
            return cls(text.rstrip("/"))
        return cls(str(Path(text).expanduser().absolute()))

    @cached_property
    def _opened(self) -> tuple[Any, str]:
        if "://" in self.location:
            try:
                filesystem, path = pafs.FileSystem.from_uri(self.location)
            except (pa.ArrowInvalid, OSError) as error:
                raise RunDirectoryError(
                    f"{self.uri} is not a location that can be opened: {error}"
                ) from error
            return filesystem, path
        return pafs.LocalFileSystem(), self.location

    def __getstate__(self) -> dict[str, Any]:
        return {"location": self.location, "parent": self.parent}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)

    @property
    def is_local(self) -> bool:
        """Whether the folder is on this machine's disk."""
        return isinstance(self._opened[0], pafs.LocalFileSystem)

    def path(self, name: str = "") -> str:
        """Path of a file within the filesystem."""
        root = self._opened[1]
        return f"{root}/{name}" if name else root

    def child(self, name: str) -> Folder:
        """A folder inside this one."""
        before, question, query = self.location.partition("?")
        return Folder(f"{before}/{name}{question}{query}", self)

    @property
    def filesystem(self) -> Any:
        """The `pyarrow.fs.FileSystem`."""
        return self._opened[0]

    def create(self) -> None:
        """Make the folder, on a disk its owner's alone; one that is there stays."""
        try:
            if self.is_local:
                if self.parent is not None:
                    self.parent.create()
                mode = 0o700 if self.parent is None else 0o777
                Path(self.path()).mkdir(mode, parents=True, exist_ok=True)
            else:
                self.filesystem.create_dir(self.path(), recursive=True)
        except OSError as error:
            raise RunDirectoryError(
                f"{self.uri} cannot be written ({_reason(error)}): choose another "
                "folder for --out"
            ) from error

    def exists(self, name: str = "") -> bool:
        """Whether a file (or, without a name, the folder) is there."""
        info = self.filesystem.get_file_info(self.path(name))
        return bool(info.type != pafs.FileType.NotFound)

    def size(self, name: str) -> int | None:
        """Bytes of a file, None when it is not there."""
        info = self.filesystem.get_file_info(self.path(name))
        return int(info.size) if info.type == pafs.FileType.File else None

    def names(self) -> list[str]:
        """Names of the files and folders inside, sorted; empty when not there."""
        selector = pafs.FileSelector(self.path(), allow_not_found=True)
        return sorted(
            info.base_name for info in self.filesystem.get_file_info(selector)
        )

    def delete(self, name: str) -> None:
        """Remove a file if it is there."""
        if self.exists(name):
            self.filesystem.delete_file(self.path(name))

    def delete_folder(self) -> None:
        """Remove the folder and all in it, manifest first, if it is there."""
        if self.exists():
            self.delete(MANIFEST)
            self.filesystem.delete_dir(self.path())

    def read_bytes(self, name: str) -> bytes:
        """A whole file."""
        with self.filesystem.open_input_file(self.path(name)) as stream:
            return bytes(stream.readall())

    def write_bytes(self, name: str, data: bytes) -> None:
        """A whole file, seen by readers only when complete."""
        try:
            # Object stores show a file only once it is whole; a disk needs the rename.
            target = f"{name}.{uuid.uuid4().hex[:8]}.tmp" if self.is_local else name
            with self.filesystem.open_output_stream(self.path(target)) as stream:
                stream.write(data)
            if target != name:
                self.filesystem.move(self.path(target), self.path(name))
        except OSError as error:
            raise RunDirectoryError(
                f"{self.uri}/{name} cannot be written ({_reason(error)})"
            ) from error

    def read_json(self, name: str) -> Any | None:
        """A JSON file's content, None when it is not there or not whole."""
        if not self.exists(name):
            return None
        try:
            return json.loads(self.read_bytes(name))
        except (ValueError, FileNotFoundError):  # not whole, or gone since
            return None

    @contextmanager
    def open_output(self, name: str) -> Iterator[_HashingWriter]:
        """A stream to a new file; it counts and hashes what is written."""
        with self.filesystem.open_output_stream(self.path(name)) as sink:
            yield _HashingWriter(sink)

    @contextmanager
    def open_input(self, name: str) -> Iterator[IO[bytes]]:
        """A seekable stream from a file."""
        with self.filesystem.open_input_file(self.path(name)) as source:
            yield source


@dataclass(frozen=True)
class Attempt:
    """Writes the data files of one try at a stage; picklable, used on workers."""

    folder: Folder
    id: str

    def file_name(self, stem: str, suffix: str) -> str:
        """Name of a data file that carries this attempt."""
        return f"{stem}-{self.id}.{suffix}"

    def write_table(self, stem: str, table: pa.Table, schema: str) -> FileRecord:
        """One Parquet file, checked against the registry."""
        with self.table_writer(stem, schema) as writer:
            writer.write(table)
        return writer.record

    def table_writer(self, stem: str, schema: str) -> TableWriter:
        """A Parquet file written table by table, each checked."""
        return TableWriter(self.folder, self.file_name(stem, "parquet"), schema)

    def write_arrays(self, stem: str, **arrays: np.ndarray) -> FileRecord:
        """One npz file; no pickled objects."""
        name = self.file_name(stem, "npz")
        with self.folder.open_output(name) as sink:
            buffered = io.BufferedWriter(sink, 1 << 20)
            np.savez(_Unseekable(buffered), allow_pickle=False, **arrays)
            buffered.flush()
        rows = max((a.shape[0] if a.ndim else 1 for a in arrays.values()), default=0)
        return FileRecord(name, rows, sink.count, sink.hash.hexdigest())

    def write_bytes(self, stem: str, suffix: str, data: bytes) -> FileRecord:
        """One file of any kind."""
        name = self.file_name(stem, suffix)
        with self.folder.open_output(name) as sink:
            sink.write(data)
        return FileRecord(name, 0, sink.count, sink.hash.hexdigest())


class _Unseekable:
    """What `np.savez` needs of a file, without seeking: zip in streaming form."""

    def __init__(self, stream: IO[bytes] | io.BufferedWriter) -> None:
        self._stream = stream

    def write(self, data: Any) -> int:
        return self._stream.write(data)

    def read(self, *_: Any) -> bytes:
        raise io.UnsupportedOperation("read")

    def flush(self) -> None:
        self._stream.flush()


class TableWriter:
    """Parquet written in pieces; `record` is there once it is closed."""

    def __init__(self, folder: Folder, name: str, schema: str) -> None:
        self._folder = folder
        self._name = name
        self._schema = schema
        self._rows = 0
        self._writer: pq.ParquetWriter | None = None

    def __enter__(self) -> TableWriter:
        self._context = self._folder.open_output(self._name)
        self._sink = self._context.__enter__()
        return self

    def write(self, table: pa.Table) -> None:
        """Check and append a table."""
        where = f"{self._folder.uri}/{self._name}"
        table = schemas.conform(table, self._schema, where)
        if self._writer is None:
            file = pa.PythonFile(self._sink, mode="w")
            self._writer = pq.ParquetWriter(
                file,
                table.schema,
                compression="zstd",
                compression_level=1,
                # Ids and vectors do not repeat: dictionaries would only cost time.
                use_dictionary=[
                    field.name
                    for field in table.schema
                    if field.name not in ("node_id", "index")
                    and not pa.types.is_fixed_size_list(field.type)
                ],
            )
        self._writer.write_table(table)
        self._rows += table.num_rows

    def __exit__(self, kind: Any, value: Any, trace: Any) -> None:
        try:
            if self._writer is not None:
                self._writer.close()
        finally:
            self._context.__exit__(kind, value, trace)
        if kind is None:
            if self._writer is None:
                raise StageError(f"{self._folder.uri}/{self._name}: nothing written")
            self.record = FileRecord(
                self._name, self._rows, self._sink.count, self._sink.hash.hexdigest()
            )


@dataclass(frozen=True)
class Stage:
    """One stage's folder in a run directory."""

    folder: Folder
    name: str

    def manifest(self) -> Manifest | None:
        """The manifest of a whole stage, None when there is none.

        A manifest of another version, or one that names a file that is missing or
        of another size, is as good as none: the stage is done again.
        """
        values = self.folder.read_json(MANIFEST)
        if not isinstance(values, dict) or values.get("version") != MANIFEST_VERSION:
            return None
        try:
            files = tuple(FileRecord(**record) for record in values.pop("files"))
            found = Manifest(files=files, **values)
        except (TypeError, KeyError):
            return None
        for record in found.files:
            if self.folder.size(record.name) != record.bytes:
                log.warning("%s/%s is damaged", self.folder.uri, record.name)
                return None
        return found

    def begin(self) -> Attempt:
        """A new attempt; what an older one left is removed, its manifest first."""
        self.folder.delete_folder()
        self.folder.create()
        return Attempt(self.folder, uuid.uuid4().hex[:8])

    def commit(
        self,
        attempt: Attempt,
        files: Sequence[FileRecord],
        fingerprint: str,
        inputs: Mapping[str, Any],
        facts: Mapping[str, Any],
        seconds: float,
    ) -> Manifest:
        """Write the manifest: from now on the stage is whole."""
        manifest = Manifest(
            stage=self.name,
            attempt=attempt.id,
            fingerprint=fingerprint,
            inputs=dict(inputs),
            files=tuple(files),
            facts=dict(facts),
            seconds=round(seconds, 3),
            created=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            versions=versions(),
        )
        missing = [r.name for r in files if self.folder.size(r.name) != r.bytes]
        if missing:
            raise StageError(
                f"stage {self.name}: {missing[0]} is not in {self.folder.uri} as "
                "written; do all workers see the same run directory?"
            )
        self._write_manifest(manifest)
        return manifest

    def release(self, manifest: Manifest) -> None:
        """Remove a whole stage's data files and keep its manifest, which says so.

        The manifest is changed first: files that nobody names are nothing.
        """
        facts = {**manifest.facts, "released": True}
        bare = replace(manifest, files=(), facts=facts)
        self._write_manifest(bare)
        for record in manifest.files:
            self.folder.delete(record.name)

    def _write_manifest(self, manifest: Manifest) -> None:
        text = json.dumps(redacted(asdict(manifest)), indent=1, sort_keys=True)
        self.folder.write_bytes(MANIFEST, text.encode())

    def read_table(
        self, record: FileRecord, schema: str, columns: Sequence[str] | None = None
    ) -> pa.Table:
        """A Parquet file of this stage, checked against the registry."""
        where = f"{self.folder.uri}/{record.name}"
        try:
            with self.folder.open_input(record.name) as stream:
                file = pq.ParquetFile(stream)
                schemas.check(file.schema_arrow, schema, where)
                table = file.read(columns=list(columns) if columns else None)
        except (pa.ArrowInvalid, OSError) as error:
            raise StageError(f"{where} cannot be read: {error}") from error
        if table.num_rows != record.rows:
            raise StageError(f"{where} has {table.num_rows} rows, not {record.rows}")
        return table

    def read_arrays(self, record: FileRecord) -> dict[str, np.ndarray]:
        """An npz file of this stage, checked against its checksum."""
        data = self.folder.read_bytes(record.name)
        if hashlib.blake2b(data, digest_size=16).hexdigest() != record.checksum:
            raise StageError(
                f"{self.folder.uri}/{record.name} differs from its checksum; run "
                "again with --overwrite"
            )
        return read_npz(io.BytesIO(data))


class RunDirectory:
    """A run's folder: stage folders, and at the top what is published."""

    def __init__(self, location: str | Path) -> None:
        self.folder = Folder.of(location)

    @property
    def uri(self) -> str:
        """Where it is, without credentials."""
        return self.folder.uri

    def stage(self, name: str) -> Stage:
        """A stage's folder."""
        return Stage(self.folder.child(name), name)

    def publish(self, name: str, data: bytes) -> None:
        """One published file at the top, whole or not there."""
        if "/" in name:
            self.folder.child(name.rsplit("/", 1)[0]).create()
        self.folder.write_bytes(name, data)

    def reuse(self, name: str, inputs: Mapping[str, Any]) -> Manifest | None:
        """The manifest of a whole stage made from exactly these inputs.

        Otherwise None; then the published results, this stage and every stage after
        it are removed, and what differs is logged.
        """
        found = self.stage(name).manifest()
        if found is not None and found.fingerprint == fingerprint(inputs):
            log.info("stage %s: whole, nothing to do", name)
            return found
        if found is not None:
            changed = differences(found.inputs, inputs)
            log.info("stage %s: done again, changed: %s", name, "; ".join(changed))
        self.retire()
        for later in STAGES[STAGES.index(name) :]:
            self.stage(later).folder.delete_folder()
        return None

    def published(self) -> Stage:
        """What is published, as if it were a stage: the top of the run directory."""
        return Stage(self.folder, "published")

    def retire(self) -> None:
        """Keep the prevalence that is published, for comparison; then unpublish.

        It goes into the folder `PREVIOUS`, in place of what was there; where nothing
        whole is published that stays.
        """
        found = self.published().manifest()
        table = found.named("prevalence.") if found else []
        if found and table:
            data = self.folder.read_bytes(table[0].name)
            kept = self.stage(PREVIOUS)
            attempt = kept.begin()
            record = attempt.write_bytes("prevalence", "parquet", data)
            record = replace(record, rows=table[0].rows)
            facts = {**found.facts, "created": found.created}
            kept.commit(
                attempt, [record], found.fingerprint, found.inputs, facts, found.seconds
            )
        self.unpublish()

    def unpublish(self) -> None:
        """Remove published results: they no longer say what the stages say."""
        # By name: whatever else a user keeps here is not ours to remove.
        for name in (MANIFEST, *PUBLISHED):
            self.folder.delete(name)
        self.folder.child("plots").delete_folder()


def differences(
    old: Mapping[str, Any], new: Mapping[str, Any], prefix: str = ""
) -> list[str]:
    """Keys whose values differ, ``key: old -> new`` each, in key order."""
    new = json.loads(json.dumps(new, default=str))
    found: list[str] = []
    for key in sorted({*old, *new}):
        before, after = old.get(key), new.get(key)
        if isinstance(before, dict) and isinstance(after, dict):
            found += differences(before, after, f"{prefix}{key}.")
        elif before != after:
            found.append(f"{prefix}{key}: {_short(before)} -> {_short(after)}")
    return found


def _short(value: Any) -> str:
    text = json.dumps(redacted(value), default=str)
    return text if len(text) <= 60 else text[:57] + "..."


def versions() -> dict[str, str]:
    """Versions of what made a result."""
    packages = ["xnq-dist", "numpy", "scipy", "numba", "scikit-learn", "pyarrow"]
    packages += ["dask", "prefect"]
    found = {"python": platform.python_version()}
    for package in packages:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = "not installed"
    return found


def _reason(error: OSError) -> str:
    return error.strerror or str(error)
