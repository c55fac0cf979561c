"""Reads and sorts the edge table on workers; the same adjacency as `edges.read_edges`.

Tasks for shares of the table's rows map ids to canonical indices and write sorted runs
of pairs. Tasks for ranges of targets then merge the parts of all runs. The adjacency is
canonical, so it does not depend on the shares, the ranges or the workers.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa

from xnq_dist.core.arrays import Ints
from xnq_dist.core.errors import InputError
from xnq_dist.core.progress import Progress, silent
from xnq_dist.core.settings_sections import ColumnSettings, InputSettings
from xnq_dist.core.worker_tasks import Tasks
from xnq_dist.graph import scratch
from xnq_dist.graph.ahead import ahead
from xnq_dist.graph.csr import FileCsr, spans, write_rows
from xnq_dist.graph.edges import (
    EdgeCounts,
    EdgeEngine,
    WeightConflict,
    add_edges,
    check_rows,
    checked_csr,
    checked_edges,
    columns_read,
    sorted_counts,
)
from xnq_dist.graph.ids import NodeIds
from xnq_dist.graph.loaded import forget, loaded
from xnq_dist.graph.sort import PairSorter, SortedRun
from xnq_dist.graph.tables import Table

__all__ = ["read_edges_by_tasks", "visible"]

SHARES = 4
"""Shares of the table, and ranges of targets, for each task that runs at a time."""
ROWS = 1 << 20
"""Minimum rows of a share, if the table's row groups allow it."""
PAIRS = 1 << 22
"""Minimum pairs of a range."""
BUCKETS = 1 << 14
"""Maximum number of parts of the targets whose edges are counted to make ranges."""


def visible(tasks: Tasks, table: Table) -> bool:
    """Whether every worker sees the table's files and the shared folder."""
    token = tasks.folder / "token"
    token.touch()
    due = _sizes(table, token)
    return all(
        due == found for found in tasks.everywhere(partial(_sizes, table, token))
    )


def _sizes(table: Table, token: Path) -> list[int | None]:
    files = table.filesystem.get_file_info(list(table.files))
    return [int(token.exists()), *(info.size for info in files)]


def read_edges_by_tasks(
    table: Table,
    ids: NodeIds,
    columns: ColumnSettings,
    settings: InputSettings,
    tasks: Tasks,
    progress: Progress = silent,
) -> tuple[FileCsr, EdgeCounts]:
    """As `edges.read_edges`; `csr.shared_csr` opens the adjacency on workers.

    Raises
    ------
    InputError
        As `read_edges`; for the first fault in the order of the table.
    StageError
        As `read_edges`, and when a file of a task is missing or has another size.
    """
    table, weighted = checked_edges(table, ids, columns, settings)
    table = table.settle(columns_read(table, columns))
    n, folder = len(ids), tasks.folder
    _write_ids(folder / "ids", ids)
    rules = settings.model_copy(update={"memory": tasks.memory})
    job = EdgeSort(n, folder, columns, rules, weighted, table.what)
    shares = table.shares(max(ROWS, table.n_rows // (SHARES * tasks.slots)))
    try:
        sorted_shares = tasks.map(
            job.sort, shares, lambda done, total: progress("read edges", done, total)
        )
    finally:
        tasks.everywhere(forget)
    counts = sum((share.counts for share in sorted_shares), EdgeCounts())
    check_rows(counts, table)
    sizes = np.sum([share.sizes for share in sorted_shares], axis=0)
    runs = [run for share in sorted_shares for run in share.runs]
    ranges = job.ranges(sizes, SHARES * tasks.slots)
    merged = tasks.map(
        partial(job.merge, runs),
        ranges,
        lambda done, total: progress("sort edges", done, total),
    )
    for path in (path for run in runs for path in run.paths):
        path.unlink()
    counts = sum((part.counts for part in merged), counts)
    csr = _joined(merged, ranges, n, folder / "csr", weighted)
    return checked_csr(csr, counts, table, columns), counts


@dataclass(frozen=True)
class SortedShare:
    """The sorted pairs of some rows of the table."""

    runs: list[SortedRun]
    sizes: Ints
    """Their number in each bucket of targets."""
    counts: EdgeCounts


@dataclass(frozen=True)
class MergedRange:
    """The files of the adjacency's rows of a range of targets."""

    folder: Path
    counts: EdgeCounts


@dataclass(frozen=True)
class EdgeSort:
    """The tasks of a sort; small and picklable."""

    nodes: int
    folder: Path
    columns: ColumnSettings
    rules: InputSettings
    """With the memory of a task."""
    weighted: bool
    what: str
    """Name of the table in messages."""

    @property
    def bounds(self) -> Ints:
        """First target of each bucket, and the number of nodes."""
        return np.linspace(0, self.nodes, min(self.nodes, BUCKETS) + 1).astype(np.int64)

    def ranges(self, sizes: Ints, count: int) -> list[tuple[int, int]]:
        """At most about `count` ranges of targets, with about the same size."""
        begins = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        size = max(int(begins[-1]) // count + 1, PAIRS)
        bounds = self.bounds.tolist()
        parts = spans(begins, size, len(sizes))
        return [(bounds[first], bounds[last]) for first, last in parts]

    def sort(self, share: Table) -> SortedShare:
        """Write the sorted pairs of some rows."""
        ids = loaded(_read_ids, self.folder / "ids")
        engine = EdgeEngine(self.rules.memory_bytes)
        with self._sorter(self.folder) as sorter:
            pairs = engine.pairs(share, ids, self.columns, self.rules)
            counts = add_edges(sorter, pairs, self.rules, self.weighted)
            runs = sorter.runs()
            sizes = sorter.sizes(runs, self.bounds)
            return SortedShare(runs, sizes, counts + sorted_counts(sorter))

    def merge(self, runs: Sequence[SortedRun], targets: tuple[int, int]) -> MergedRange:
        """Write the rows of a range of targets from all sorted pairs."""
        folder = self.folder / f"rows-{uuid.uuid4().hex}"
        folder.mkdir()
        with self._sorter(folder) as sorter:
            sorter.merge(runs, *targets)
            chunks = ahead(sorter.chunks(self.rules.duplicates, self._conflict))
            degrees = write_rows(chunks, *targets, folder, self.weighted)
            scratch.append(folder / "degrees", degrees)
            return MergedRange(folder, sorted_counts(sorter))

    def _sorter(self, folder: Path) -> PairSorter:
        n, memory = self.nodes, self.rules.memory_bytes
        return PairSorter(n, n, memory, folder, self.weighted)

    def _conflict(self, major: int, minor: int) -> InputError:
        values = _read_ids(self.folder / "ids").values
        return WeightConflict(values, self.what)(major, minor)


def _write_ids(path: Path, ids: NodeIds) -> None:
    table = pa.table({"id": ids.values})
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as out:
        out.write_table(table)


def _read_ids(path: Path) -> NodeIds:
    with pa.memory_map(str(path)) as source:
        values = pa.ipc.open_file(source).read_all()["id"].combine_chunks()
    return NodeIds(values)


def _joined(
    merged: Sequence[MergedRange],
    ranges: Sequence[tuple[int, int]],
    n: int,
    folder: Path,
    weighted: bool,
) -> FileCsr:
    """The adjacency in a new folder, from the rows of all ranges, which are removed."""
    folder.mkdir()
    indptr = np.zeros(n + 1, np.int64)
    arrays = {"indices": np.int32} | ({"weights": np.float32} if weighted else {})
    for part, (first, last) in zip(merged, ranges, strict=True):
        degrees = scratch.shared(part.folder / "degrees", np.int64, last - first)
        indptr[first + 1 : last + 1] = degrees
        for name, dtype in arrays.items():
            values = scratch.shared(part.folder / name, dtype, int(degrees.sum()))
            scratch.append(folder / name, values)
        shutil.rmtree(part.folder)
    np.cumsum(indptr, out=indptr)
    scratch.append(folder / "indptr", indptr)
    return FileCsr(indptr, folder, weighted)
