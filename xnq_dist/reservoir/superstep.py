"""One superstep of one partition, whatever holds the states and moves the halo.

The signature is what later engines stand on: an array backend, a store of states
(memory, or tiles on a disk), column tiles, and a function that brings halo rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from xnq_dist.backend import Backend
from xnq_dist.blocks import ROWS, for_each_block, one_blas_thread
from xnq_dist.graph.halo import Partition
from xnq_dist.reservoir import device
from xnq_dist.reservoir.weights import Recurrent, SideBySide

__all__ = [
    "MemoryStates",
    "StateStore",
    "column_tiles",
    "gather",
    "superstep",
    "update",
]

Array = NDArray[np.float32]
HaloSource = Callable[[slice], Array]
"""Halo rows' states in the given columns, shape (n_halo, w), in local halo order."""

_NO_WEIGHTS = np.empty(0, dtype=np.float32)


class StateStore(Protocol):
    """States of a partition's owned rows, read in column tiles."""

    def tile(self, columns: slice) -> Array:
        """C-contiguous, shape (n_owned, w)."""


@dataclass(frozen=True)
class MemoryStates:
    """States held in memory."""

    array: Array
    """Shape (n_owned, d')."""

    def tile(self, columns: slice) -> Array:
        """C-contiguous, shape (n_owned, w)."""
        part = self.array[:, columns]
        # Said in a way that arrays on a device understand too.
        return part if part.flags.c_contiguous else part.copy()


def column_tiles(dim: int, width: int | None) -> tuple[slice, ...]:
    """Columns 0..dim in tiles of at most `width`.

    Examples
    --------
    >>> column_tiles(5, 2)
    (slice(0, 2, None), slice(2, 4, None), slice(4, 5, None))
    """
    step = dim if width is None else min(width, dim)
    return tuple(slice(at, min(at + step, dim)) for at in range(0, dim, step))


def gather(
    backend: Backend,
    partition: Partition,
    states: StateStore,
    columns: slice,
    halo: Array,
    out: Array,
    threads: int = 1,
) -> None:
    """Sums of in-neighbours' states in one column tile, into ``out``.

    Parameters
    ----------
    halo
        Halo rows' states in these columns, shape (n_halo, w).
    out
        Shape (n_owned, w), C-contiguous.
    """
    if backend.on_device:
        device.gather(backend, partition, states.tile(columns), halo, out)
        return
    kernels = _kernels(backend)
    owned = states.tile(columns)
    weights = _NO_WEIGHTS if partition.weights is None else partition.weights

    def work(first: int, last: int) -> None:
        kernels.gather_add(
            partition.indptr,
            partition.indices,
            weights,
            owned,
            halo,
            first,
            last,
            out[first:last],
        )

    for_each_block(owned.shape[0], threads, work)


def update(
    backend: Backend,
    gathered: Array,
    drive: Array,
    recurrent: Recurrent | SideBySide,
    threads: int = 1,
) -> None:
    """``gathered = tanh(gathered W^T + drive)`` in place; shapes (n_owned, d')."""
    if backend.on_device:
        gathered[...] = device.update(backend, gathered, drive, recurrent)
        return
    work = _updater(_kernels(backend), gathered, drive, recurrent)
    with one_blas_thread():
        for_each_block(gathered.shape[0], threads, work)


def superstep(
    backend: Backend,
    partition: Partition,
    states: StateStore,
    halo: HaloSource,
    drive: Array,
    recurrent: Recurrent | SideBySide,
    tiles: Sequence[slice],
    threads: int = 1,
) -> Array:
    """States after one more update.

    Parameters
    ----------
    backend
        Where arrays live.
    partition
        In-neighbours of the owned rows.
    states
        States before.
    halo
        Brings the halo rows of a column tile.
    drive
        ``W_in x + b`` of the owned rows, shape (n_owned, d').
    recurrent
        W.
    tiles
        Column tiles; buffers for halo rows are one tile wide.
    threads
        Row blocks worked on at a time.

    Returns
    -------
    ndarray
        Shape (n_owned, d').
    """
    if backend.on_device:
        return _on_device(  # type: ignore[no-any-return]
            backend, partition, states, halo, drive, recurrent, tiles
        )
    out = backend.empty(drive.shape)
    if len(tiles) == 1:
        _fused(
            _kernels(backend),
            partition,
            states.tile(tiles[0]),
            halo(tiles[0]),
            drive,
            recurrent,
            threads,
            out,
        )
        return out  # type: ignore[no-any-return]
    for columns in tiles:
        part = backend.empty((drive.shape[0], columns.stop - columns.start))
        gather(backend, partition, states, columns, halo(columns), part, threads)
        out[:, columns] = part
    update(backend, out, drive, recurrent, threads)
    return out  # type: ignore[no-any-return]


def _on_device(
    backend: Backend,
    partition: Partition,
    states: StateStore,
    halo: HaloSource,
    drive: Array,
    recurrent: Recurrent | SideBySide,
    tiles: Sequence[slice],
) -> Any:
    if len(tiles) == 1:
        owned, rows = states.tile(tiles[0]), halo(tiles[0])
        return device.superstep(backend, partition, owned, rows, drive, recurrent)
    sums = np.empty(drive.shape, dtype=np.float32)
    for columns in tiles:
        part = sums[:, columns]
        device.gather(backend, partition, states.tile(columns), halo(columns), part)
    return device.update(backend, sums, drive, recurrent)


def _kernels(backend: Backend) -> Any:
    return import_module(backend.kernels)


def _fused(
    kernels: Any,
    partition: Partition,
    owned: Array,
    halo: Array,
    drive: Array,
    recurrent: Recurrent | SideBySide,
    threads: int,
    out: Array,
) -> None:
    """Gather and update block by block, while a block is in cache."""
    weights = _NO_WEIGHTS if partition.weights is None else partition.weights
    finish = _updater(kernels, out, drive, recurrent)

    def work(first: int, last: int) -> None:
        kernels.gather_add(
            partition.indptr,
            partition.indices,
            weights,
            owned,
            halo,
            first,
            last,
            out[first:last],
        )
        finish(first, last)

    with one_blas_thread():
        for_each_block(owned.shape[0], threads, work)


def _updater(
    kernels: Any, gathered: Array, drive: Array, recurrent: Recurrent | SideBySide
) -> Callable[[int, int], None]:
    """The update of rows first:last of `gathered`, in place."""
    if isinstance(recurrent, SideBySide):
        return _blockwise(kernels, gathered, drive, recurrent)
    dim = recurrent.dim
    if recurrent.columns is not None:
        columns, values = recurrent.columns, recurrent.values

        def sparse(first: int, last: int) -> None:
            tile = np.zeros((dim, kernels.LANES), dtype=np.float32)
            sums = np.empty_like(tile)
            kernels.sparse_update(
                gathered[first:last], columns, values, drive[first:last], tile, sums
            )

        return sparse
    transposed = np.ascontiguousarray(recurrent.values.T)

    def dense(first: int, last: int) -> None:
        # Always ROWS rows: a product of another shape may differ in the last bit.
        block: Any = gathered[first:last]
        if last - first < ROWS:
            block = np.zeros((ROWS, dim), dtype=np.float32)
            block[: last - first] = gathered[first:last]
        mixed = np.matmul(block, transposed)[: last - first]
        kernels.tanh_add(mixed, drive[first:last])
        gathered[first:last] = mixed

    return dense


def _blockwise(
    kernels: Any, gathered: Array, drive: Array, recurrent: SideBySide
) -> Callable[[int, int], None]:
    """The update of rows first:last, one reservoir after the other.

    Columns are copied: a reservoir's arithmetic is then the one it has alone, bit for
    bit.
    """
    blocks = list(zip(recurrent.columns(), recurrent.parts, strict=True))

    def work(first: int, last: int) -> None:
        for columns, part in blocks:
            state = np.ascontiguousarray(gathered[first:last, columns])
            pushed = np.ascontiguousarray(drive[first:last, columns])
            _updater(kernels, state, pushed, part)(0, last - first)
            gathered[first:last, columns] = state

    return work
