"""States of partitions in files, for supersteps that hold few rows in memory.

A partition's states after a superstep are one raw file, with rows in local order. The
next superstep processes one tile of rows at a time: it reads the states of the tile's
in-neighbours, from the partition's file and from those of the owners, and writes a new
file. Files are not memory-mapped, because mapped pages count as resident memory.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import IO, Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from xnq_dist.core.arrays import Floats32, Ints, Ints32
from xnq_dist.core.backend import cpu
from xnq_dist.core.blocks import ROWS
from xnq_dist.core.errors import StageError
from xnq_dist.core.store import FileRecord, Manifest, Stage
from xnq_dist.graph.halo import Partition
from xnq_dist.graph.layout import load_partition
from xnq_dist.reservoir.context import (
    ReservoirSpec,
    combine_recurrent,
    draw_all,
    feature_matrix,
)
from xnq_dist.reservoir.drive import Drive, FeatureDrive, drive_width
from xnq_dist.reservoir.superstep import first_states, superstep
from xnq_dist.reservoir.weights import BlockDiagonal, Recurrent

__all__ = [
    "PartitionOnDisk",
    "StateFiles",
    "advance_partition",
    "open_partition",
    "read_states",
]


GAP = 1 << 14
"""Gaps of up to this many bytes between two rows are read: another call costs more."""
RUN = 1 << 22
"""Maximum bytes of one read that includes gaps."""


@dataclass(frozen=True)
class StateFiles:
    """Folder of the state files, and the memory of a task."""

    folder: str
    """Local path that every worker can access."""
    memory: int
    """Bytes for the rows of states, input drive and new states of one task."""

    def states(self, step: int, number: int) -> Path:
        """File of a partition's states after a superstep."""
        return Path(self.folder, f"state-{step:05d}-{number:05d}.raw")

    def drive(self, number: int) -> Path:
        """File of a partition's input drive, if it is stored."""
        return Path(self.folder, f"drive-{number:05d}.raw")

    @contextmanager
    def made(self) -> Iterator[None]:
        """Remove the folder before and after the block; it may be of a killed run."""
        shutil.rmtree(self.folder, ignore_errors=True)
        try:
            yield
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)

    def forget(self, step: int, partitions: int) -> None:
        """Remove the states after a superstep."""
        for number in range(partitions):
            self.states(step, number).unlink(missing_ok=True)


@dataclass(frozen=True)
class PartitionOnDisk:
    """One partition on a worker, without its states."""

    partition: Partition
    offsets: Ints
    """Global id of each partition's first node, shape (P + 1,)."""
    drive: FeatureDrive | None
    """None: in a file."""
    recurrent: Recurrent | BlockDiagonal
    tiles: tuple[int, ...]
    """First row of each row tile, and the number of rows."""
    spec: ReservoirSpec
    files: StateFiles

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of stored and exchanged states."""
        return np.dtype(self.spec.exchange_dtype)


def open_partition(
    graph: Stage,
    manifest: Manifest,
    number: int,
    spec: ReservoirSpec,
    files: StateFiles,
    threads: int,
    checkpoint: tuple[int, Stage, FileRecord] | None = None,
) -> PartitionOnDisk:
    """Read a partition; write its states after superstep 1, and a stored input drive.

    With a checkpoint (superstep, stage and file of states) its states are written.

    Raises
    ------
    StageError
        When the folder of the files does not exist or cannot be written.
    """
    if not Path(files.folder).is_dir():
        raise StageError(
            f"a worker cannot access {files.folder}: set scratch to a folder that all "
            "workers share, or exchange.states=memory"
        )
    partition = load_partition(graph, manifest, number)
    features = feature_matrix(graph, manifest, number)
    drawn = draw_all(spec, features.shape[1])
    recurrent, drive = combine_recurrent(drawn), FeatureDrive.of(features, drawn)
    stored = drive_width(features.shape[1], spec.dim) == spec.dim
    item = np.dtype(spec.exchange_dtype).itemsize
    row = spec.dim * 4
    # Input drive, sums of the first superstep, and their copy for writing.
    step = max(ROWS, files.memory // (3 * row) // ROWS * ROWS)
    with ExitStack() as stack:
        pushed = out = None
        if stored:
            pushed = stack.enter_context(_written_atomically(files.drive(number)))
        if checkpoint is None:
            out = stack.enter_context(_written_atomically(files.states(1, number)))
        for first in range(0, partition.n_owned, step):
            part: Drive = drive.part(first, first + step)
            if pushed is not None:
                part = drive.part(first, first + step).stored(threads)
                _write(pushed, part)
            if out is not None:
                states = first_states(part, recurrent, threads)
                _write(out, states.astype(spec.exchange_dtype, copy=False))
    if checkpoint is not None:
        reached, stage, record = checkpoint
        with _written_atomically(files.states(reached, number)) as copy:
            _write(copy, stage.read_arrays(record)["states"])
    n_local = partition.n_owned + partition.n_halo
    begins = row_tiles(
        partition.indptr,
        partition.indices,
        n_local,
        spec.dim * item,
        spec.dim * (4 * stored + item),
        files.memory,
    )
    offsets = np.asarray(manifest.facts["offsets"], np.int64)
    tiles = tuple(begins.tolist())
    kept = None if stored else drive
    return PartitionOnDisk(partition, offsets, kept, recurrent, tiles, spec, files)


@njit(cache=True, nogil=True)
def row_tiles(
    indptr: Ints,
    indices: Ints32,
    n_local: int,
    source_bytes: int,
    row_bytes: int,
    max_bytes: int,
) -> Ints:
    """First row of each row tile, followed by the number of rows.

    A tile consists of blocks of `ROWS` rows: as many as fit in `max_bytes` with their
    distinct in-neighbours, or one block if even that does not fit. `indices` are local
    ids below `n_local`; a distinct in-neighbour takes `source_bytes`, a row
    `row_bytes`.
    """
    rows = indptr.shape[0] - 1
    seen = np.zeros(n_local, np.int32)
    begins = [0]
    taken = 0
    for first in range(0, rows, ROWS):
        last = min(first + ROWS, rows)
        for turn in range(2):
            tile = len(begins)
            more = (last - first) * row_bytes
            for edge in range(indptr[first], indptr[last]):
                if seen[indices[edge]] != tile:
                    seen[indices[edge]] = tile
                    more += source_bytes
            if turn == 0 and begins[-1] < first and taken + more > max_bytes:
                # Count the block again, as the first one of the next tile.
                begins.append(first)
                taken = 0
                continue
            taken += more
            break
    begins.append(rows)
    return np.array(begins)


def advance_partition(held: PartitionOnDisk, step: int, threads: int) -> int:
    """Write the states after the next superstep; return bytes read and written."""
    partition, files = held.partition, held.files
    number, dim = partition.number, held.spec.dim
    moved = 0
    with _written_atomically(files.states(step + 1, number)) as out:
        for first, last in pairwise(held.tiles):
            edges = slice(int(partition.indptr[first]), int(partition.indptr[last]))
            tile, sources = _compact(partition, first, last, edges)
            states = np.empty((len(sources), dim), held.dtype)
            _read_local(held, step, sources, states)
            drive = _drive(held, first, last)
            weights = drive, held.recurrent, (slice(0, dim),)
            after = superstep(cpu(), tile, states, _no_halo, *weights, threads)
            _write(out, after)
            moved += states.nbytes + after.nbytes
            moved += drive.nbytes if held.drive is None else 0
    return moved


def _drive(held: PartitionOnDisk, first: int, last: int) -> Drive:
    """The input drive of some rows, computed or read."""
    if held.drive is not None:
        return held.drive.part(first, last)
    drive = np.empty((last - first, held.spec.dim), np.float32)
    _read_at(held.files.drive(held.partition.number), first, drive)
    return drive


def read_states(held: PartitionOnDisk, step: int) -> NDArray[np.floating]:
    """A partition's states after a superstep, shape (n_owned, d')."""
    states = np.empty((held.partition.n_owned, held.spec.dim), held.dtype)
    _read_at(held.files.states(step, held.partition.number), 0, states)
    return states


def _compact(
    partition: Partition, first: int, last: int, edges: slice
) -> tuple[Partition, Ints]:
    """Some rows as a separate partition, and the original local ids of its ids.

    All its in-neighbours are owned rows, in the order of the local ids. The order of a
    row's neighbours, and so of its sum, does not change.
    """
    seen = np.zeros(partition.n_owned + partition.n_halo, np.bool_)
    seen[partition.indices[edges]] = True
    sources = np.flatnonzero(seen)
    place = np.cumsum(seen, dtype=np.int32) - np.int32(1)
    nothing = np.empty(0, np.int64)
    weights = partition.weights
    tile = Partition(
        partition.number,
        partition.indptr[first : last + 1] - edges.start,
        place[partition.indices[edges]],
        None if weights is None else weights[edges],
        nothing,
        nothing,
        nothing.astype(np.int32),
        nothing,
    )
    return tile, sources


def _no_halo(columns: slice) -> Floats32:
    return np.empty((0, columns.stop - columns.start), np.float32)


def _read_local(
    held: PartitionOnDisk, step: int, sources: Ints, out: NDArray[np.floating]
) -> None:
    """Read owned and halo rows, by ascending local id, from their owners' files."""
    partition = held.partition
    at = int(np.searchsorted(sources, partition.n_owned))
    read_rows(held.files.states(step, partition.number), sources[:at], out[:at])
    halo = partition.halo[sources[at:] - partition.n_owned]
    bounds = np.searchsorted(halo, held.offsets)
    for owner, (begin, end) in enumerate(pairwise(bounds.tolist())):
        if begin < end:
            rows = halo[begin:end] - held.offsets[owner]
            path = held.files.states(step, owner)
            read_rows(path, rows, out[at + begin : at + end])


def read_rows(path: Path, rows: Ints, out: NDArray[Any]) -> None:
    """Read distinct, ascending rows of a raw file to `out`, (n, d'), C-contiguous."""
    if not len(rows):
        return
    width = out.shape[1] * out.itemsize
    far = np.flatnonzero(np.diff(rows) > GAP // width + 1) + 1
    step = max(1, RUN // width)
    with _opened(path) as file:
        for begin, end in pairwise([0, *far.tolist(), len(rows)]):
            first, last = int(rows[begin]), int(rows[end - 1]) + 1
            if last - first == end - begin:
                _fill(file, first * width, out[begin:end])
                continue
            while begin < end:
                first = int(rows[begin])
                stop = begin + int(rows[begin:end].searchsorted(first + step))
                places = rows[begin:stop] - first
                run = np.empty((int(places[-1]) + 1, out.shape[1]), out.dtype)
                _fill(file, first * width, run)
                np.take(run, places, axis=0, out=out[begin:stop], mode="clip")
                begin = stop


def _read_at(path: Path, first: int, out: NDArray[Any]) -> None:
    if out.nbytes:
        with _opened(path) as file:
            _fill(file, first * out.shape[1] * out.itemsize, out)


@contextmanager
def _opened(path: Path) -> Iterator[IO[bytes]]:
    try:
        with path.open("rb", buffering=0) as file:
            yield file
    except OSError as error:
        raise StageError(
            f"{path} cannot be read ({error.strerror}): run again to resume"
        ) from error


def _fill(file: IO[bytes], at: int, out: NDArray[Any]) -> None:
    view = out.reshape(-1).view(np.uint8).data
    file.seek(at)
    while view:
        got = file.readinto(view)  # type: ignore[attr-defined]
        if not got:
            raise StageError(f"{file.name} ends early: run again to resume")
        view = view[got:]


@contextmanager
def _written_atomically(path: Path) -> Iterator[IO[bytes]]:
    """Write a file atomically, because a task may run twice."""
    name = path.with_suffix(f".{os.getpid()}.tmp")
    try:
        with name.open("wb", buffering=0) as file:
            yield file
        name.replace(path)
    except OSError as error:
        raise StageError(
            f"states in {path.parent} cannot be written ({error.strerror}): set "
            "scratch to a folder with more space that all workers can access"
        ) from error


def _write(file: IO[bytes], array: NDArray[Any]) -> None:
    view = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
    while view:
        view = view[file.write(view) :]
