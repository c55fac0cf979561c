"""Removal of one node's rows from a run directory, including its older results."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from xnq_dist.core.errors import RunDirectoryError
from xnq_dist.core.lock import run_lock
from xnq_dist.core.store import (
    FileRecord,
    Published,
    RunDirectory,
    Stage,
    TableWriter,
    Version,
    delete_damage,
)

__all__ = ["Erased", "erase"]

NODE = "node_id"


@dataclass(frozen=True)
class Erased:
    """What `erase` removed."""

    rows: int
    """Rows removed from published tables, over all versions."""
    tables: tuple[str, ...]
    """Paths of the published tables that were rewritten."""
    stages: tuple[str, ...]
    """Folders of removed stages, which the next run computes again."""


def erase(location: str, node: str) -> Erased:
    """Remove the rows of one node from everything in a run directory.

    Published tables with a column ``node_id`` are rewritten in every version. If the
    graph has the node, all stages are removed, and the next run computes them from
    tables without it. Damaged files, which cannot be searched, are deleted.

    Parameters
    ----------
    location
        The run directory.
    node
        The node id, as text.

    Raises
    ------
    RunDirectoryError
        When there is no run directory, or a run is using it.
    """
    run = RunDirectory(location)
    published = Published(run)
    if not (run.stages() or published.stages()):
        raise RunDirectoryError(
            f"{run.uri} is not a run directory: give the folder that --out named"
        )
    with run_lock(run.folder):
        delete_damage(run, thorough=True)
        stages = []
        if _in_graph(run.stage("graph"), node):
            stages = [stage.folder for stage in run.stages()]
            for folder in stages:
                folder.delete_folder()
        for name in ("quarantine", "states"):  # of versions up to 0.1
            run.folder.child(name).delete_folder()
        rows, tables = 0, []
        for version in published.versions():
            for name, removed in _erase_from(version, node):
                rows += removed
                tables.append(version.path(name))
        current = published.current()
        if current is not None:
            published.point(current)
            published.place(current)
    return Erased(rows, tuple(tables), tuple(folder.uri for folder in stages))


def _in_graph(stage: Stage, node: str) -> bool:
    """Whether the graph has the node; true if the graph cannot be read."""
    manifest = stage.manifest()
    if manifest is None:
        return True
    tables = (
        stage.read_table(record, "graph_nodes", [NODE])
        for record in manifest.named("nodes-")
    )
    return any(pc.any(_is(table[NODE], node)).as_py() for table in tables)


def _is(ids: pa.ChunkedArray, node: str) -> pa.ChunkedArray:
    """Which ids are those of the node."""
    return pc.equal(ids.cast(pa.string()), node)


def _erase_from(version: Version, node: str) -> Iterator[tuple[str, int]]:
    """Rewrite a version's tables that have the node; yield name and removed rows."""
    files = {record.name: record for record in version.manifest.files}
    for name, record in version.tables().items():
        table = version.read(name)
        if NODE not in table.column_names:
            continue
        keep = pc.invert(_is(table[NODE], node))
        remaining = table.filter(keep)
        if len(remaining) == len(table):
            continue
        files[record.name] = _replaced(version, record, name, remaining)
        manifest = replace(version.manifest, files=tuple(files.values()))
        version.stage.rewrite(manifest)
        yield name, len(table) - len(remaining)


def _replaced(
    version: Version, record: FileRecord, name: str, table: pa.Table
) -> FileRecord:
    """Replace a table of a version; return the record of the new file."""
    temporary = f"{record.name}.tmp"
    with TableWriter(version.folder, temporary, name, version.run_id) as writer:
        writer.write(table.drop_columns("run_id"))
    version.folder.sync([temporary])
    version.folder.move(temporary, record.name)
    return replace(writer.record, name=record.name)
