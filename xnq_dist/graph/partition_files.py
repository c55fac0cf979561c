"""Writes the files of the partitions from the adjacency, by tasks.

Tasks for ranges of rows group the edges by partition. Tasks for partitions then find
the halos, and with all of them the send lists.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xnq_dist.core.arrays import Floats32, Ints, Ints32, offsets_of
from xnq_dist.core.store import Attempt, FileRecord
from xnq_dist.core.tasks import Shared, Tasks
from xnq_dist.graph import scratch
from xnq_dist.graph.csr import CsrRows, FileCsr, shared_csr, spans
from xnq_dist.graph.halo import (
    Partition,
    PartitionBook,
    build_partition,
    find_halo,
    send_lists,
    split_rows,
)
from xnq_dist.graph.layout import file_stem, partition_arrays

__all__ = ["WrittenPartition", "write_partitions"]

EDGE_BYTES = 16
"""Bytes of an edge while a range of rows is grouped, weights included."""
RANGES = 4
"""Ranges of rows for each task that runs at a time, or more if memory is small."""
EDGES = 1 << 22
"""Minimum edges of a range, if memory is enough."""


@dataclass(frozen=True)
class WrittenPartition:
    """The file of a partition, and what the stage records of it."""

    record: FileRecord
    counts: dict[str, int]
    sent: Ints
    """Rows that each partition reads, shape (P,)."""


def write_partitions(
    csr: FileCsr,
    book: PartitionBook,
    tasks: Tasks,
    attempt: Attempt,
    on_done: Callable[[int, int], object] = lambda done, total: None,
) -> list[WrittenPartition]:
    """Write the files of all partitions; `csr` as `csr.shared_csr`.

    `on_done` is called with the number of those written, and of all.
    """
    n, edges = len(csr.indptr) - 1, int(csr.indptr[-1])
    folder = tasks.folder / "partitions"
    folder.mkdir()
    job = PartitionTasks(csr.folder, folder, n, csr.weighted, attempt)
    size = max(edges // (RANGES * tasks.slots) + 1, EDGES)
    size = min(size, tasks.memory // EDGE_BYTES)
    ranges = list(spans(csr.indptr, max(size, 1), n))
    numbers = range(book.partitions)
    with tasks.share(book, _of_book, PartitionBook) as shared:
        grouped = tasks.map(partial(job.group, shared), ranges)
        halos = tasks.map(partial(job.find, shared, grouped), numbers)
        return tasks.map(partial(job.write, shared, grouped, halos), numbers, on_done)


@dataclass(frozen=True)
class Grouped:
    """Files of values that are grouped by partition."""

    path: Path
    """Of the files, without their endings."""
    partitions: int

    @property
    def begins(self) -> Ints:
        """First value of each partition, and the number of values, shape (P + 1,)."""
        path = self.path.with_suffix(".begins")
        return scratch.shared(path, np.int64, self.partitions + 1)

    def all(self, ending: str, dtype: type) -> NDArray[Any]:
        """The values of a file, mapped."""
        size = int(self.begins[-1])
        return scratch.shared(self.path.with_suffix(ending), dtype, size)

    def part(self, number: int, ending: str, dtype: type) -> NDArray[Any]:
        """Those of a partition."""
        first, last = self.begins[number : number + 2]
        return self.all(ending, dtype)[first:last]


def _of_book(book: PartitionBook) -> tuple[NDArray[Any], ...]:
    return book.part, book.offsets, book.order, book.relabelled


@dataclass(frozen=True)
class PartitionTasks:
    """The tasks; small and picklable."""

    csr: Path
    """Folder of the adjacency."""
    folder: Path
    """Folder of what tasks write."""
    nodes: int
    weighted: bool
    attempt: Attempt

    def group(self, book: Shared[PartitionBook], rows: tuple[int, int]) -> Grouped:
        """Group the edges of rows first to last - 1 by partition."""
        begins, indices, weights = split(self._csr().rows(*rows), book())
        return self._grouped(begins, indices=indices, weights=weights)

    def find(
        self, book: Shared[PartitionBook], edges: Sequence[Grouped], number: int
    ) -> Grouped:
        """Find a partition's halo, grouped by owner."""
        halo, begins = find_halo(_sources(edges, number), book(), number)
        return self._grouped(begins, halo=halo)

    def _grouped(self, begins: Ints, **values: NDArray[Any]) -> Grouped:
        path = self.folder / uuid.uuid4().hex
        for name, array in {"begins": begins, **values}.items():
            scratch.append(path.with_suffix(f".{name}"), array)
        return Grouped(path, len(begins) - 1)

    def write(
        self,
        book: Shared[PartitionBook],
        edges: Sequence[Grouped],
        halos: Sequence[Grouped],
        number: int,
    ) -> WrittenPartition:
        """Write the file of a partition, from its edges in the order of its rows."""
        at, mine = book(), halos[number]
        owned, indptr = at.owned(number), self._csr().indptr
        begins = offsets_of(indptr[owned.astype(np.int64) + 1] - indptr[owned])
        weights = None
        if self.weighted:
            weights = _joined(edges, number, ".weights", np.float32)
        segments = [each.part(number, ".halo", np.int64) for each in halos]
        partition = build_partition(
            number,
            begins,
            _sources(edges, number),
            weights,
            at,
            (np.array(mine.all(".halo", np.int64)), mine.begins),
            send_lists(segments, int(at.offsets[number])),
        )
        stem, arrays = file_stem("adjacency", number), partition_arrays(partition)
        record = self.attempt.write_arrays(stem, **arrays)
        sent = np.diff(partition.send_offsets)
        return WrittenPartition(record, counts(partition), sent)

    def _csr(self) -> FileCsr:
        return shared_csr(self.csr, self.nodes, self.weighted)


def _sources(edges: Sequence[Grouped], number: int) -> Ints32:
    """Canonical sources of a partition's edges, in the order of its rows."""
    return _joined(edges, number, ".indices", np.int32)


def _joined(
    files: Sequence[Grouped], number: int, ending: str, dtype: type
) -> NDArray[Any]:
    return np.concatenate([file.part(number, ending, dtype) for file in files])


def counts(partition: Partition) -> dict[str, int]:
    """The counts that the stage records of a partition."""
    return {
        "owned": partition.n_owned,
        "halo": partition.n_halo,
        "edges": partition.n_edges,
        "boundary": len(partition.boundary_rows),
    }


def split(rows: CsrRows, book: PartitionBook) -> tuple[Ints, Ints32, Floats32]:
    """Offsets of each owner, then edges and weights grouped by the rows' owner."""
    counts = np.diff(rows.indptr)
    owner = book.part[rows.first : rows.first + len(counts)]
    sizes = np.bincount(owner, counts, book.partitions).astype(np.int64)
    begins = offsets_of(sizes)
    indices, weights = np.empty_like(rows.indices), np.empty_like(rows.weights)
    split_rows(rows.indptr, rows.indices, owner, begins[:-1].copy(), indices)
    if len(weights):
        split_rows(rows.indptr, rows.weights, owner, begins[:-1].copy(), weights)
    return begins, indices, weights
