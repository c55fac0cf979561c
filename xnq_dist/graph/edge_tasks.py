"""Reads and sorts the edge table by tasks, in bounded memory.

Tasks for shares of the table's rows map ids to canonical indices and sort the pairs in
runs. Tasks for ranges of targets then sort the parts of all runs. The adjacency is
canonical, so it does not depend on the shares, the ranges or the processes.
"""

from __future__ import annotations

import shutil
import uuid
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow.fs as pafs

from xnq_dist.core.errors import InputError, StageError
from xnq_dist.core.progress import Progress
from xnq_dist.core.sections import ColumnSettings, InputSettings
from xnq_dist.core.settings import Settings
from xnq_dist.core.tasks import Shared, Tasks
from xnq_dist.core.threads import ahead, map_threads
from xnq_dist.graph import scratch
from xnq_dist.graph.csr import (
    FOLDER,
    Csr,
    weights_of,
    write_rows,
    written_csr,
)
from xnq_dist.graph.ids import NodeIds
from xnq_dist.graph.profile.headers import names_read
from xnq_dist.graph.sort import PairSorter, SortedRun
from xnq_dist.graph.tables import Table

__all__ = ["read_edges", "visible"]

SHARES = 4
"""Shares of the table, and ranges of targets, for each task that runs at a time."""
ROWS = 1 << 20
"""Minimum rows of a share, if the table's row groups allow it."""
PAIRS = 1 << 22
"""Minimum pairs of a range."""


def visible(tasks: Tasks, table: Table) -> bool:
    """Whether every worker sees the table's files, or copy, and the shared folder."""
    token = tasks.folder / "token"
    token.touch()
    files, filesystem = list(table.files), table.filesystem
    if table.copy and table.copy.files:
        files = [str(each.path) for each in table.copy.files.values()]
        filesystem = pafs.LocalFileSystem()

    def sizes() -> list[int | None]:
        found = filesystem.get_file_info(files)
        return [int(token.exists()), *(info.size for info in found)]

    due = sizes()
    return all(found == due for found in tasks.everywhere(sizes))


def read_edges(
    table: Table,
    ids: NodeIds,
    settings: Settings,
    tasks: Tasks,
    progress: Progress,
) -> tuple[Csr, Counter[str]]:
    """The adjacency (rows: targets) in canonical order, and counts of the table.

    The adjacency is in the folder `csr.FOLDER` of the tasks' folder. Counts are
    ``edges_read``, the rows of the table; ``reversed_added``, edges that exist only as
    the reverse of a row (undirected graphs); ``duplicates_dropped``, rows after the
    first with the same (src, dst), dropped or added up; ``self_loops``, rows v -> v;
    ``unknown_dropped``, rows that name a node that is not in the node table.

    `csr.shared_csr` opens the adjacency in tasks. With ``duplicates: sum``, an edge of
    a graph without weights gets its number of rows as weight, unless all are 1.

    Raises
    ------
    InputError
        For null ids, ids of another type than the nodes', unknown nodes (unless
        dropped), weights that are null, negative or not finite, or dropped duplicates
        of different weight; the first in the order of the table.
    StageError
        When the number of edges after the sort is not the expected one, and when a file
        of a task is missing or has another size.
    """
    columns, rules = settings.columns, settings.input
    weighted = table.has(columns.weight) or rules.duplicates == "sum"
    table = table.settle(names_read("edges", columns, table))
    names = names_read("edges", columns, table)
    shares = table.shares(max(ROWS, table.n_rows // (SHARES * tasks.slots)))
    rows = table.n_rows
    with tasks.share(ids, NodeIds.of_arrays, *ids.arrays()) as shared:
        rules = rules.model_copy(update={"memory": tasks.memory})
        job = EdgeSort(len(ids), tasks.folder, columns, names, rules, weighted)
        sorted_shares = tasks.map(
            partial(job.sort, shared),
            shares,
            lambda done, total: progress("read edges", rows * done // total, rows),
        )
        runs = [run for some, _ in sorted_shares for run in some]
        size = sum(run.size for run in runs) // (SHARES * tasks.slots) + 1
        ranges = job.sorter(tasks.folder).ranges(runs, max(size, PAIRS))
        merged = tasks.map(
            partial(job.merge, runs, shared),
            ranges,
            partial(progress, "sort edges"),
        )
    for run in runs:
        run.path.unlink()
    counts = Counter[str]()
    for _, found in (*sorted_shares, *merged):
        counts.update(found)
    # Without weights in the table they count rows: all are 1 if none was repeated.
    repeated = weighted and counts["duplicates_dropped"] > 0
    weighted = table.has(columns.weight) or repeated
    folders = [folder for folder, _ in merged]
    csr = _joined(folders, len(ids), tasks.folder / FOLDER, weighted)
    lost = counts["duplicates_dropped"] + counts["unknown_dropped"]
    due, edges = counts["edges_read"] - lost + counts["reversed_added"], csr.indptr[-1]
    if due != edges:
        raise StageError(
            f"{due} edges went into the sort and {edges} came out: internal error, "
            "please report it"
        )
    return csr, counts


@dataclass(frozen=True)
class EdgeSort:
    """The tasks of a sort; small and picklable."""

    nodes: int
    folder: Path
    columns: ColumnSettings
    names: list[str]
    """Columns that are read: workers may see the table's copy alone."""
    rules: InputSettings
    """With the memory of a task."""
    weighted: bool

    def sort(
        self, ids: Shared[NodeIds], share: Table
    ) -> tuple[list[SortedRun], Counter[str]]:
        """Sort the pairs of some rows of the table, those that the rules keep."""
        sorter, counts = self.sorter(self.folder), Counter[str]()
        columns, unknown = self.columns, self.rules.unknown_nodes
        ends = columns.src, columns.dst
        # Ids, indices, keys and the decoded batch together: some 200 bytes a row.
        rows = int(np.clip(self.rules.memory_bytes // 1024, 1024, 1 << 18))
        for batch in ahead(share.batches(self.names, rows)):
            find = partial(ids().find, batch, unknown=unknown)
            source, target = map_threads(find, ends, 2)
            weight = weights_of(batch, columns)
            keep = (source >= 0) & (target >= 0)
            counts.update(
                edges_read=len(keep),
                self_loops=int(np.count_nonzero(keep & (source == target))),
                unknown_dropped=int(np.count_nonzero(~keep)),
            )
            if not keep.all():
                source, target, weight = source[keep], target[keep], weight[keep]
            sorter.add(target, source, weight)
            if not self.rules.directed:
                sorter.add(source, target, weight, reverse=True)
        return sorter.runs(), counts

    def merge(
        self,
        runs: Sequence[SortedRun],
        ids: Shared[NodeIds],
        targets: tuple[int, int],
    ) -> tuple[Path, Counter[str]]:
        """Write the rows of a range of targets from all sorted pairs, in a folder."""
        folder = self.folder / f"rows-{uuid.uuid4().hex}"
        folder.mkdir()

        def conflict(major: int, minor: int) -> InputError:
            edge = f"{ids().name(minor)} -> {ids().name(major)}"
            return InputError(
                f"edge {edge} occurs more than once in the edge table with different "
                "weights: set input.duplicates to sum, or keep one row"
            )

        sorter = self.sorter(folder)
        dropped = self.rules.duplicates == "drop"
        rows = sorter.merge(runs, *targets, conflict if dropped else None)
        write_rows(rows, folder, self.weighted)
        counts = Counter(
            reversed_added=sorter.reversed_added, duplicates_dropped=sorter.duplicates
        )
        return folder, counts

    def sorter(self, folder: Path) -> PairSorter:
        """A sorter with files in a folder."""
        memory = self.rules.memory_bytes
        return PairSorter(self.nodes, self.nodes, memory, folder, self.weighted)


def _joined(parts: Sequence[Path], n: int, folder: Path, weighted: bool) -> Csr:
    """The adjacency in a new folder, from the rows of all ranges, which are removed."""
    folder.mkdir()
    for part in parts:
        for name in ("degrees", "indices", *["weights"] * weighted):
            scratch.append(folder / name, scratch.mapped(part / name, np.uint8))
        shutil.rmtree(part)
    return written_csr(n, folder, weighted)
