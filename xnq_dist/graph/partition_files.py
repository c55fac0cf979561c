"""Writes the files of partitions from the adjacency, in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from xnq_dist.core.arrays import Floats32, Ints, Ints32
from xnq_dist.core.store import Attempt, FileRecord
from xnq_dist.graph import scratch
from xnq_dist.graph.ahead import ahead
from xnq_dist.graph.csr import CsrRows, FileCsr
from xnq_dist.graph.halo import (
    Partition,
    PartitionBook,
    build_partition,
    find_halo,
    send_lists,
    split_rows,
)
from xnq_dist.graph.layout import file_stem, partition_arrays

__all__ = [
    "WrittenPartition",
    "assembled",
    "counts",
    "split",
    "write_partition",
    "write_partitions",
]


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
    memory: int,
    folder: Path,
    attempt: Attempt,
    on_partition: Callable[[int], object],
) -> list[WrittenPartition]:
    """Write the files of all partitions; `on_partition` is called with each number."""
    written: list[WrittenPartition] = []
    for made in ahead(_partitions(csr, book, memory, folder)):
        # The next partition, but not two, is made while one is written.
        written.append(write_partition(attempt, made))
        on_partition(made.number)
        del made
    return written


def write_partition(attempt: Attempt, partition: Partition) -> WrittenPartition:
    """Write the file of a partition."""
    stem = file_stem("adjacency", partition.number)
    record = attempt.write_arrays(stem, **partition_arrays(partition))
    return WrittenPartition(record, counts(partition), np.diff(partition.send_offsets))


def counts(partition: Partition) -> dict[str, int]:
    """The counts that the stage records of a partition."""
    return {
        "owned": partition.n_owned,
        "halo": partition.n_halo,
        "edges": partition.n_edges,
        "boundary": len(partition.boundary_rows),
    }


def _partitions(
    csr: FileCsr, book: PartitionBook, memory: int, folder: Path
) -> Iterator[Partition]:
    """Yield the partitions in order; edges are sorted into a file per partition."""
    buckets = folder / "partitions"
    buckets.mkdir()
    parts = (split(rows, book) for rows in csr.chunks(max(memory // 256, 1024)))
    for begins, indices, weights in ahead(parts):
        for number in np.flatnonzero(np.diff(begins)).tolist():
            part = slice(begins[number], begins[number + 1])
            scratch.append(buckets / f"{number}.indices", indices[part])
            if csr.weighted:
                scratch.append(buckets / f"{number}.weights", weights[part])
    halo_offsets = []
    firsts = [0]
    for number in range(book.partitions):
        sources = scratch.read(buckets / f"{number}.indices", np.int32)
        halo, offsets = find_halo(sources, book, number)
        scratch.append(buckets / "halo", halo)
        halo_offsets.append(offsets)
        firsts.append(firsts[-1] + len(halo))
    # Mapped, because each owner needs a few rows of every reader.
    halos = scratch.mapped(buckets / "halo", np.int64)
    readers = list(zip(firsts, halo_offsets, strict=False))
    for number in range(book.partitions):
        segments = [
            halos[first + at[number] : first + at[number + 1]] for first, at in readers
        ]
        mine = slice(firsts[number], firsts[number + 1])
        values: Floats32 | None = None
        if csr.weighted:
            values = scratch.read(buckets / f"{number}.weights", np.float32)
        yield assembled(
            number,
            book,
            csr.indptr,
            scratch.read(buckets / f"{number}.indices", np.int32),
            values,
            (np.array(halos[mine]), halo_offsets[number]),
            segments,
        )


def split(rows: CsrRows, book: PartitionBook) -> tuple[Ints, Ints32, Floats32]:
    """Offsets of each owner, then edges and weights grouped by the rows' owner."""
    counts = np.diff(rows.indptr)
    owner = book.part[rows.first : rows.first + len(counts)]
    sizes = np.bincount(owner, counts, book.partitions).astype(np.int64)
    begins = np.concatenate([[0], np.cumsum(sizes)])
    indices, weights = np.empty_like(rows.indices), np.empty_like(rows.weights)
    split_rows(rows.indptr, rows.indices, owner, begins[:-1].copy(), indices)
    if len(weights):
        split_rows(rows.indptr, rows.weights, owner, begins[:-1].copy(), weights)
    return begins, indices, weights


def assembled(
    number: int,
    book: PartitionBook,
    indptr: Ints,
    sources: Ints32,
    weights: Floats32 | None,
    halo: tuple[Ints, Ints],
    segments: Sequence[Any],
) -> Partition:
    """A partition from its edges, in the order of its rows.

    Parameters
    ----------
    indptr
        Row pointers of the adjacency, shape (N + 1,).
    sources
        Canonical sources of the edges; they become the partition's `indices`.
    halo
        From `find_halo`.
    segments
        The partition's part of each reader's halo, as for `send_lists`.
    """
    owned = book.owned(number)
    degrees = indptr[owned.astype(np.int64) + 1] - indptr[owned]
    begins = np.concatenate([[0], np.cumsum(degrees)]).astype(np.int64)
    send = send_lists(segments, int(book.offsets[number]))
    return build_partition(number, begins, sources, weights, book, halo, send)
