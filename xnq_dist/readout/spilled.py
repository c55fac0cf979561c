"""Labelled rows beyond `readout.memory`: kept in files, fitted block by block.

Tasks write the labelled rows of each partition and combine them into groups of
`GROUP_ROWS` rows in canonical order. Every evaluation of the current fits is one pass
of tasks over the groups. A task holds one group; the client holds the models and sums
of their shape.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from xnq_dist.core.arrays import Ints, Ints32
from xnq_dist.core.cluster import thread_count
from xnq_dist.core.errors import StageError
from xnq_dist.core.progress import Progress, silent
from xnq_dist.core.store import Attempt, FileRecord, Folder, checked
from xnq_dist.core.waiting import gather, result
from xnq_dist.readout import objective
from xnq_dist.readout.lbfgs import TOLERANCE
from xnq_dist.readout.objective import (
    Group,
    Moments,
    Problem,
    add_moments,
    group_moments,
)
from xnq_dist.readout.rows import Labelled, Part, gather_used
from xnq_dist.readout.tasks import watch

if TYPE_CHECKING:
    from distributed import Client, Future

    _Future = Future[Any]

Result = TypeVar("Result")

__all__ = ["SpilledRows", "spill"]

TASKS_A_THREAD = 2
"""Tasks of a pass per thread; each processes several groups in turn."""


@dataclass(frozen=True)
class RowGroup:
    """Rows of one group in a file: labels, folds, then embeddings."""

    folder: Folder
    record: FileRecord
    rows: int
    width: int
    dtype: str

    def load(self) -> Group:
        """Read the rows into memory."""
        with checked(self.folder, self.record) as stream:
            data = stream.read()
        labels = np.frombuffer(data, np.int32, self.rows)
        folds = np.frombuffer(data, np.int32, self.rows, 4 * self.rows)
        x = np.frombuffer(data, self.dtype, offset=8 * self.rows)
        return Group(x.reshape(self.rows, self.width), labels, folds)


@dataclass(frozen=True)
class _Piece:
    """A partition's labelled rows in a file: ascending indexes, then embeddings."""

    record: FileRecord
    rows: int
    dtype: str
    starts: tuple[int, ...]
    """First row of each group, and the end."""


@dataclass(frozen=True, eq=False)
class SpilledRows:
    """All labelled rows as groups in files."""

    client: Client
    groups: tuple[RowGroup, ...]
    moments: Moments
    n_classes: int

    penalty: float = 1.0
    smooth: bool = False
    tolerance: float = TOLERANCE

    def placed(self) -> SpilledRows:
        """Return the rows unchanged: the workers compute the sums."""
        return self

    def over(self, work: Callable[..., Result], *arguments: Any) -> list[Result]:
        """Results of ``work(group, *arguments)`` in the order of the groups."""
        count = thread_count(self.client) * TASKS_A_THREAD
        tasks = [
            self.client.submit(_each, work, groups, *arguments, pure=False)
            for groups in _shared(self.groups, count)
        ]
        return list(chain.from_iterable(gather(self.client, tasks)))

    def moments_at(self, problem: Problem) -> Moments:
        """Moments of rows weighted by the curvature of their losses."""
        return _moments(self.client, self.groups, 1, problem)

    def delete(self) -> None:
        """Remove the files."""
        for group in self.groups:
            group.folder.delete(group.record.name)


def spill(
    client: Client,
    parts: Sequence[Part],
    rows: Labelled,
    folds: Ints32,
    n_classes: int,
    attempt: Attempt,
    progress: Progress = silent,
) -> SpilledRows:
    """Write the labelled rows as groups; `SpilledRows.delete` removes them.

    `rows.x` is not used; folds are below 0 for rows that are in no fit. Partitions with
    other rows are a `StageError`.
    """
    size = objective.GROUP_ROWS
    bounds = rows.index[::size]
    written = [
        client.submit(_write_piece, part, number, bounds, attempt, pure=False)
        for number, part in enumerate(parts)
    ]
    watch(client, written, "labelled rows", progress)
    pieces = [piece for piece in gather(client, written) if piece is not None]
    # Dask would write a piece again if the worker of a future that is held dies.
    del written
    joined = [
        client.submit(
            _write_group,
            number,
            pieces,
            rows.labels[number * size :][:size],
            folds[number * size :][:size],
            attempt,
            pure=False,
        )
        for number in range(len(bounds))
    ]
    groups = tuple(gather(client, joined))
    del joined
    for piece in pieces:
        attempt.folder.delete(piece.record.name)
    count = int(folds.max()) + 1
    return SpilledRows(client, groups, _moments(client, groups, count), n_classes)


def _moments(client: Client, groups: Sequence[RowGroup], *arguments: Any) -> Moments:
    before: _Future | None = None
    for part in _shared(groups, thread_count(client) * TASKS_A_THREAD):
        sums = client.submit(_each, group_moments, part, *arguments, pure=False)
        # Added one by one, so that no worker holds more than a few of them.
        before = client.submit(add_moments, before, sums, pure=False)
    if before is None:
        raise StageError(
            "there is no labelled row: this is an internal error, please report it"
        )
    moments: Moments = result(client, before)
    return moments


def _shared(groups: Sequence[RowGroup], tasks: int) -> Iterator[Sequence[RowGroup]]:
    bounds = np.linspace(0, len(groups), min(tasks, len(groups)) + 1).astype(int)
    for first, last in pairwise(bounds.tolist()):
        yield groups[first:last]


def _each(work: Any, groups: Sequence[RowGroup], *arguments: Any) -> list[Any]:
    return [work(group.load(), *arguments) for group in groups]


def _write_piece(
    part: Part, number: int, bounds: Ints, attempt: Attempt
) -> _Piece | None:
    """Write a partition's labelled rows by canonical index; None when it has none."""
    used = gather_used(part)
    if used is None or not len(used.index):
        return None
    order = np.argsort(used.index)
    index = used.index[order]
    starts = (*np.searchsorted(index, bounds).tolist(), len(index))
    data = index.tobytes() + np.ascontiguousarray(used.x[order]).tobytes()
    record = attempt.write_bytes(f"piece-{number:05d}", "rows", data)
    return _Piece(record, len(index), str(used.x.dtype), starts)


def _write_group(
    number: int,
    pieces: Sequence[_Piece],
    labels: Ints32,
    folds: Ints32,
    attempt: Attempt,
) -> RowGroup:
    """Combine one group's rows from the files of all partitions."""
    indexes, parts = [], []
    width, dtype = 0, np.dtype(pieces[0].dtype)
    for piece in pieces:
        first, last = piece.starts[number], piece.starts[number + 1]
        width = (piece.record.bytes // piece.rows - 8) // dtype.itemsize
        row_bytes = width * dtype.itemsize
        with checked(attempt.folder, piece.record) as stream:
            stream.seek(8 * first)
            indexes.append(np.frombuffer(stream.read(8 * (last - first)), np.int64))
            stream.seek(8 * piece.rows + row_bytes * first)
            values = np.frombuffer(stream.read(row_bytes * (last - first)), dtype)
            parts.append(values.reshape(last - first, width))
    order = np.argsort(np.concatenate(indexes))
    if len(order) != len(labels):
        raise StageError(
            f"partitions have {len(order)} labelled rows of group {number} instead of "
            f"{len(labels)}: this is an internal error, please report it"
        )
    x = np.concatenate(parts)[order]
    data = labels.astype(np.int32).tobytes() + folds.astype(np.int32).tobytes()
    record = attempt.write_bytes(f"group-{number:05d}", "rows", data + x.tobytes())
    return RowGroup(attempt.folder, record, len(labels), width, str(dtype))
