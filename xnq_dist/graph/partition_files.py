"""Writes the files of the partitions from the adjacency, by a task for each.

Tasks first find the halos, and with all of them the send lists.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xnq_dist.core.arrays import Ints, Ints32, offsets_of
from xnq_dist.core.kernel import kernel
from xnq_dist.core.progress import Progress
from xnq_dist.core.store import Attempt, FileRecord
from xnq_dist.core.tasks import Shared, Tasks
from xnq_dist.graph import scratch
from xnq_dist.graph.csr import FOLDER, Csr, shared_csr
from xnq_dist.graph.halo import Partition, PartitionBook, distinct
from xnq_dist.graph.layout import file_stem

__all__ = ["WrittenPartition", "write_partitions"]


@dataclass(frozen=True)
class WrittenPartition:
    """The file of a partition, and what the stage records of it."""

    record: FileRecord
    counts: dict[str, int]
    sent: Ints
    """Rows that each partition reads, shape (P,)."""


def write_partitions(
    csr: Csr,
    book: PartitionBook,
    tasks: Tasks,
    attempt: Attempt,
    progress: Progress,
) -> list[WrittenPartition]:
    """Write the files of all partitions; `csr` from `edge_tasks.read_edges`."""
    folder = tasks.folder / "partitions"
    folder.mkdir()
    nodes, adjacency = len(csr.indptr) - 1, tasks.folder / FOLDER
    job = PartitionTasks(adjacency, folder, nodes, csr.weighted, attempt)
    numbers, done = range(book.partitions), partial(progress, "write partitions")
    with tasks.share(book, PartitionBook, *vars(book).values()) as shared:
        halos = tasks.map(partial(job.find, shared), numbers)
        return tasks.map(partial(job.write, shared, halos), numbers, done)


@dataclass(frozen=True)
class Halo:
    """A partition's halo in a file: global ids, ascending."""

    path: Path
    offsets: Ints
    """First row of each owner, and the number of rows, shape (P + 1,)."""

    def rows(self) -> Ints:
        """All rows, mapped."""
        return scratch.shared(self.path, np.int64, int(self.offsets[-1]))


@dataclass(frozen=True)
class PartitionTasks:
    """The tasks; small and picklable."""

    csr: Path
    """Folder of the adjacency."""
    folder: Path
    """Folder of the halos."""
    nodes: int
    weighted: bool
    attempt: Attempt

    def find(self, shared: Shared[PartitionBook], number: int) -> Halo:
        """Find a partition's halo."""
        book, csr = shared(), self._csr()
        owned = book.owned(number)
        # Mark nodes instead of sorting the sources: there may be many times N edges.
        is_halo = np.zeros(self.nodes, np.bool_)
        is_halo[values_of(csr.indptr, csr.arrays()[0], owned)] = True
        is_halo[owned] = False
        rows = np.sort(book.relabelled[is_halo]).astype(np.int64)
        path = self.folder / uuid.uuid4().hex
        scratch.append(path, rows)
        return Halo(path, np.searchsorted(rows, book.offsets).astype(np.int64))

    def write(
        self, shared: Shared[PartitionBook], halos: Sequence[Halo], number: int
    ) -> WrittenPartition:
        """Write the file of a partition."""
        book, csr, halo = shared(), self._csr(), halos[number]
        owned, rows = book.owned(number), np.array(halo.rows())
        local = np.empty(self.nodes, np.int32)
        names = np.concatenate([owned, book.order[rows]])
        local[names] = np.arange(len(names), dtype=np.int32)
        indices, weights = csr.arrays()
        indptr = offsets_of(np.diff(csr.indptr)[owned])
        sources = local[values_of(csr.indptr, indices, owned)]
        copied = values_of(csr.indptr, weights, owned) if self.weighted else None
        read = [
            each.rows()[each.offsets[number] : each.offsets[number + 1]]
            for each in halos
        ]
        partition = Partition(
            number,
            indptr,
            sources,
            copied,
            rows,
            halo.offsets,
            send_rows=(np.concatenate(read) - book.offsets[number]).astype(np.int32),
            send_offsets=offsets_of([len(some) for some in read]),
        )
        named = vars(partition).items()
        arrays = {
            name: each for name, each in named if name != "number" and each is not None
        }
        record = self.attempt.write_arrays(file_stem("adjacency", number), **arrays)
        counts = {
            "owned": partition.n_owned,
            "halo": partition.n_halo,
            "edges": partition.n_edges,
            "boundary": len(distinct(partition.send_rows)),
        }
        return WrittenPartition(record, counts, np.diff(partition.send_offsets))

    def _csr(self) -> Csr:
        return shared_csr(self.csr, self.nodes, self.weighted)


@kernel
def values_of(indptr: Ints, values: NDArray[Any], rows: Ints32) -> NDArray[Any]:
    """The values of the edges of some rows, one row after the other."""
    size = 0
    for row in rows:
        size += indptr[row + 1] - indptr[row]
    found = np.empty(size, values.dtype)
    at = 0
    for row in rows:
        for edge in range(indptr[row], indptr[row + 1]):
            found[at] = values[edge]
            at += 1
    return found
