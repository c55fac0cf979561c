"""Writes the files of partitions by tasks; the same bits as `partition_files`.

Tasks for ranges of rows group the edges by partition. Tasks for partitions then find
the halos, and with all of them the send lists.
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

from xnq_dist.core.arrays import Ints
from xnq_dist.core.progress import Progress, silent
from xnq_dist.core.store import Attempt
from xnq_dist.core.worker_tasks import Tasks
from xnq_dist.graph import scratch
from xnq_dist.graph.csr import FileCsr, shared_csr, spans
from xnq_dist.graph.halo import PartitionBook, find_halo
from xnq_dist.graph.loaded import forget, loaded
from xnq_dist.graph.partition_files import (
    WrittenPartition,
    assembled,
    split,
    write_partition,
)

__all__ = ["write_partitions_by_tasks"]

EDGE_BYTES = 16
"""Bytes of an edge while a range of rows is grouped, weights included."""
RANGES = 4
"""Ranges of rows for each task that runs at a time, or more if memory is small."""
EDGES = 1 << 22
"""Minimum edges of a range, if memory is enough."""


def write_partitions_by_tasks(
    csr: FileCsr,
    book: PartitionBook,
    tasks: Tasks,
    attempt: Attempt,
    progress: Progress = silent,
) -> list[WrittenPartition]:
    """Write the files of all partitions; `csr` as `csr.shared_csr`."""
    n, edges = len(csr.indptr) - 1, int(csr.indptr[-1])
    folder, parts = tasks.folder / "partitions", book.partitions
    folder.mkdir()
    for name in ("part", "offsets", "order", "relabelled"):
        scratch.append(folder / name, getattr(book, name))
    job = PartitionTasks(csr.folder, folder, n, parts, csr.weighted, attempt)
    size = max(edges // (RANGES * tasks.slots) + 1, EDGES)
    size = min(size, tasks.memory // EDGE_BYTES)
    ranges = list(spans(csr.indptr, max(size, 1), n))
    try:
        grouped = Listing.of(folder, "edges", tasks.map(job.group, ranges))
        found = tasks.map(partial(job.find, grouped), range(parts))
        return tasks.map(
            partial(job.write, grouped, Listing.of(folder, "halos", found)),
            range(parts),
            lambda done, total: progress("write partitions", done, total),
        )
    finally:
        tasks.everywhere(forget)


@dataclass(frozen=True)
class Grouped:
    """Files of values that are grouped by partition."""

    name: str
    """Of the files, without their endings."""
    begins: Ints
    """First value of each partition, and the number of values, shape (P + 1,)."""


@dataclass(frozen=True)
class Listing:
    """Several `Grouped`, listed in files: messages to workers stay small."""

    folder: Path
    kind: str
    count: int
    partitions: int

    @classmethod
    def of(cls, folder: Path, kind: str, files: Sequence[Grouped]) -> Listing:
        """Write the list; `kind`: its name."""
        scratch.append(folder / f"{kind}.names", np.array([f.name for f in files], "S"))
        scratch.append(folder / f"{kind}.begins", np.stack([f.begins for f in files]))
        return cls(folder, kind, len(files), len(files[0].begins) - 1)

    def files(self) -> list[Grouped]:
        """The list; `begins` are mapped."""
        path, width = self.folder / self.kind, self.partitions + 1
        names = scratch.shared(path.with_suffix(".names"), np.dtype("S32"), self.count)
        values = path.with_suffix(".begins"), np.int64, self.count * width
        rows = scratch.shared(*values).reshape(self.count, width)
        return [
            Grouped(str(name, "ascii"), begins)
            for name, begins in zip(names.tolist(), rows, strict=True)
        ]

    def parts(self, number: int, ending: str, dtype: type) -> list[NDArray[Any]]:
        """The values of a partition in each of the files, mapped."""
        parts = []
        for file in self.files():
            path = self.folder / f"{file.name}.{ending}"
            values = scratch.shared(path, dtype, int(file.begins[-1]))
            parts.append(values[file.begins[number] : file.begins[number + 1]])
        return parts


@dataclass(frozen=True)
class PartitionTasks:
    """The tasks; small and picklable."""

    csr: Path
    """Folder of the adjacency."""
    folder: Path
    """Folder of the book's arrays and of what tasks write."""
    nodes: int
    partitions: int
    weighted: bool
    attempt: Attempt

    def group(self, rows: tuple[int, int]) -> Grouped:
        """Group the edges of rows first to last - 1 by partition."""
        begins, indices, weights = split(self._csr().rows(*rows), self._book())
        name = uuid.uuid4().hex
        scratch.append(self.folder / f"{name}.indices", indices)
        scratch.append(self.folder / f"{name}.weights", weights)
        return Grouped(name, begins)

    def find(self, edges: Listing, number: int) -> Grouped:
        """Find a partition's halo, grouped by owner."""
        sources = np.concatenate(edges.parts(number, "indices", np.int32))
        halo, offsets = find_halo(sources, self._book(), number)
        name = uuid.uuid4().hex
        scratch.append(self.folder / f"{name}.halo", halo)
        return Grouped(name, offsets)

    def write(self, edges: Listing, halos: Listing, number: int) -> WrittenPartition:
        """Write the file of a partition."""
        own = halos.files()[number]
        size = int(own.begins[-1])
        halo = scratch.shared(self.folder / f"{own.name}.halo", np.int64, size)
        weights = None
        if self.weighted:
            weights = np.concatenate(edges.parts(number, "weights", np.float32))
        partition = assembled(
            number,
            self._book(),
            self._csr().indptr,
            np.concatenate(edges.parts(number, "indices", np.int32)),
            weights,
            (np.array(halo), np.array(own.begins)),
            halos.parts(number, "halo", np.int64),
        )
        return write_partition(self.attempt, partition)

    def _csr(self) -> FileCsr:
        return shared_csr(self.csr, self.nodes, self.weighted)

    def _book(self) -> PartitionBook:
        return loaded(_read_book, self.folder, self.nodes, self.partitions)


def _read_book(folder: Path, n: int, partitions: int) -> PartitionBook:
    nodes = (
        np.array(scratch.shared(folder / name, np.int32, n))
        for name in ("part", "order", "relabelled")
    )
    part, order, relabelled = nodes
    offsets = scratch.shared(folder / "offsets", np.int64, partitions + 1)
    return PartitionBook(part, np.array(offsets), order, relabelled)
