"""Published results: a folder for each version, a pointer, and fixed paths.

``versions/<run_id>/`` holds one complete set of tables and the report page.
``published.json`` names the current one and is replaced atomically. Each file also has
a fixed path at the top of the run directory, where it is replaced atomically, too.
Nothing is removed before its replacement is complete.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from xnq_dist.core.errors import DamagedError, RunDirectoryError
from xnq_dist.core.redaction import joined
from xnq_dist.core.store.checksums import FileRecord
from xnq_dist.core.store.folder import MANIFEST, Folder
from xnq_dist.core.store.stage_folder import Manifest, Stage

__all__ = ["POINTER", "VERSIONS", "Published", "Version", "read_published"]

POINTER = "published.json"
VERSIONS = "versions"
"""Folder of the published versions."""
TABLES = (
    "prevalence.parquet",
    "totals.parquet",
    "anomalies.parquet",
    "changes.parquet",
    "history.parquet",
    "communities.parquet",
    "partitions.parquet",
    "report.html",
)
"""Files that may be at a fixed path."""


@dataclass(frozen=True)
class Version:
    """One complete set of results."""

    stage: Stage
    manifest: Manifest

    def __repr__(self) -> str:
        return (
            f"<results {self.run_id} in {self.stage.uri}: {', '.join(self.tables())}>"
        )

    @property
    def run_id(self) -> str:
        """The run id in its tables."""
        return self.manifest.attempt

    @property
    def number(self) -> int:
        """Number of the version: higher than those made before it."""
        return int(self.manifest.facts.get("number") or 0)

    def tables(self) -> dict[str, FileRecord]:
        """Its tables by name."""
        suffix = ".parquet"
        return {
            record.name.removesuffix(suffix): record
            for record in self.manifest.files
            if record.name.endswith(suffix)
        }

    def path(self, table: str) -> str:
        """Path or URI of a table.

        Raises
        ------
        RunDirectoryError
            When there is no such table among the results.
        """
        return self.stage.uri_of(self._record(table).name)

    def read(self, table: str, columns: Sequence[str] | None = None) -> pa.Table:
        """Read a table; its checksum is verified."""
        return self.stage.read_table(self._record(table), table, columns)

    def _record(self, table: str) -> FileRecord:
        known = self.tables()
        if table not in known:
            raise RunDirectoryError(
                f"{self.stage.uri} has no table {table!r}: choose one of "
                f"{', '.join(sorted(known))}"
            )
        return known[table]


class Published(Folder):
    """A run's folder, with its published results."""

    def __init__(self, location: str | Path) -> None:
        super().__init__(Folder.of(location).location)

    def stage(self, name: str) -> Stage:
        """The folder of a stage, which need not exist."""
        return Stage(joined(self.location, name), self)

    def stage_of(self, run_id: str) -> Stage:
        """The stage folder of a version."""
        return self.stage(f"{VERSIONS}/{run_id}")

    def version(self, run_id: str) -> Version | None:
        """The complete version with this run id; None if there is none."""
        stage = self.stage_of(run_id)
        manifest = stage.manifest()
        return Version(stage, manifest) if manifest else None

    def current_id(self) -> str:
        """The run id that `POINTER` names; empty if it is missing or damaged."""
        with suppress(DamagedError):
            if pointer := self.read_record(POINTER):
                return str(pointer.get("run_id"))
        return ""

    def current(self) -> Version | None:
        """The version that the pointer names; None if there is none."""
        return self.version(self.current_id())

    def history(self) -> list[Version]:
        """Complete versions, the current one first, then the newest."""
        found = filter(None, map(self.version, self.child(VERSIONS).names()))
        current = self.current_id()

        def order(version: Version) -> tuple[bool, int]:
            # Publishing again what an earlier version has makes that one current.
            return version.run_id == current, version.number

        return sorted(found, key=order, reverse=True)

    def publish(self, version: Version) -> None:
        """Make this version the current one, then put its files at the fixed paths."""
        if self.is_placed(version):
            return
        pointer = {
            "run_id": version.run_id,
            "version": f"{VERSIONS}/{version.run_id}",
            "created": version.manifest.created,
        }
        with self.replacing(r.name for r in version.manifest.files) as copies:
            # Copies: damage to one of the two leaves the other. All are on the disk
            # before the pointer changes: on a full disk the results before stay.
            for name, copy in copies.items():
                self.copy(f"{pointer['version']}/{name}", copy)
            self.sync(copies.values())
            self.write_record(POINTER, pointer)
        for name in self._outdated(version):
            self.delete(name)

    def is_placed(self, version: Version) -> bool:
        """Whether it is the current one, with its files alone at the fixed paths."""
        return (
            self.current_id() == version.run_id
            and not self._outdated(version)
            and not any(Stage(self.location).damaged(version.manifest.files))
        )

    def _outdated(self, version: Version) -> set[str]:
        """Files at fixed paths that this version does not have."""
        named = {record.name for record in version.manifest.files}
        return {*self.names()} & {*TABLES} - named

    def trim(self, keep: int) -> None:
        """Remove all but `keep` versions, at least 2: the current and the newest."""
        old = {each.run_id for each in self.history()[keep:]}
        for name in self.child(VERSIONS).names():
            folder = self.stage_of(name)
            if name in old or not folder.exists(MANIFEST):  # of a killed run
                folder.delete_folder()


def read_published(location: str | Path) -> Version:
    """The published results of a run directory, all tables of one version.

    ``published.json`` is read once: all tables read from the returned version are of
    the same run, even if another run publishes meanwhile. All tables are compared with
    their checksums.

    Parameters
    ----------
    location
        The run directory.

    Raises
    ------
    RunDirectoryError
        When the directory has no published results.
    DamagedError
        When a table is damaged.

    Examples
    --------
    >>> results = read_published("run")  # doctest: +SKIP
    >>> results.read("prevalence")  # doctest: +SKIP
    """
    run = Published(location)
    pointer = run.read_record(POINTER)
    if not pointer:
        raise RunDirectoryError(
            f"{run.uri} has no published results: complete it with xnq-dist run"
        )
    stage = run.stage_of(str(pointer.get("run_id")))
    manifest = stage.intact()
    if not manifest:
        raise DamagedError(run.uri, POINTER, f"names {stage.name}, which is missing")
    version = Version(stage, manifest)
    for error in stage.damaged(version.tables().values()):
        raise error
    return version
