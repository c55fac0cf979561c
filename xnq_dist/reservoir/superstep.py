"""One superstep of one partition, independent of state storage and halo exchange.

States are stored in float32 or float16; sums and products are always in float32.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np

from xnq_dist.core.arrays import Floats32, Ints32
from xnq_dist.core.backend import Backend, cpu
from xnq_dist.core.blocks import ROWS, Spare, for_each_block
from xnq_dist.core.products import multiply, pack
from xnq_dist.graph.halo import Partition
from xnq_dist.reservoir import device
from xnq_dist.reservoir.device import DeviceWeights, RecurrentWeights
from xnq_dist.reservoir.drive import Drive, rows_of
from xnq_dist.reservoir.weights import BlockDiagonal, Recurrent

__all__ = ["column_tiles", "first_states", "gather", "superstep", "update"]

HaloSource = Callable[[slice], Floats32]
"""Returns the halo rows' states in the columns, (n_halo, w), in local halo order."""

STREAMED = 2**28
"""Bytes of states from which on, with a sparse W, non-temporal stores are used: about
the last-level cache of large servers. Smaller states are read from the cache in the
next superstep."""

_NO_WEIGHTS = np.empty(0, dtype=np.float32)


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
    states: Floats32,
    columns: slice,
    halo: Floats32,
    out: Floats32,
    threads: int = 1,
) -> None:
    """Write sums of in-neighbours' states in one column tile to `out`.

    `halo` are the halo rows' states in these columns, shape (n_halo, w); `out` has
    shape (n_owned, w), C-contiguous.
    """
    if backend.on_device:
        device.gather(backend, partition, _tile(states, columns), halo, out)
        return
    kernels = _kernels(backend)
    owned, halo = _as_kept(_tile(states, columns), halo)
    weights = _NO_WEIGHTS if partition.weights is None else partition.weights
    edges = (partition.indptr, partition.indices, weights, owned, halo)

    def work(first: int, last: int) -> None:
        kernels.gather_add(*edges, first, last, out[first:last])

    for_each_block(owned.shape[0], threads, work)


def update(
    backend: Backend,
    gathered: Floats32,
    drive: Drive,
    recurrent: RecurrentWeights,
    threads: int = 1,
) -> None:
    """``gathered = tanh(gathered W^T + drive)`` in place; shapes (n_owned, d')."""
    if isinstance(recurrent, DeviceWeights):
        gathered[...] = device.update(backend, gathered, drive, recurrent)
        return
    rows = _rows_update(_kernels(backend), recurrent)
    blocks = Spare((ROWS, recurrent.dim))

    def work(first: int, last: int) -> None:
        after = gathered[first:last]
        with rows_of(drive, first, last) as pushed:
            if rows.in_place:
                rows.apply(after, pushed, after)
                return
            with blocks.borrow() as block:
                block[: last - first] = after
                rows.apply(block[: last - first], pushed, after)

    for_each_block(gathered.shape[0], threads, work)


def superstep(
    backend: Backend,
    partition: Partition,
    states: Floats32,
    halo: HaloSource,
    drive: Drive,
    recurrent: RecurrentWeights,
    tiles: Sequence[slice],
    threads: int = 1,
    out: Floats32 | None = None,
) -> Floats32:
    """States after one more update, shape (n_owned, d').

    Parameters
    ----------
    states
        States before, shape (n_owned, d').
    halo
        Returns the halo rows of a column tile.
    drive
        ``W_in x + b`` of the owned rows, shape (n_owned, d'); an array on a GPU.
    recurrent
        The recurrent matrix W.
    tiles
        Column tiles; buffers for halo rows are one tile wide.
    threads
        Number of threads; each processes row blocks.
    out
        Output array, C-contiguous, of the type of the result, not `states`; None: new
        memory, which the system must clear first.

    Returns
    -------
    ndarray
        The new states, of the type of `states`; float32 with several tiles.
    """
    if isinstance(recurrent, DeviceWeights):
        return _on_device(  # type: ignore[no-any-return]
            backend, partition, states, halo, drive, recurrent, tiles
        )
    if len(tiles) == 1:
        owned = _tile(states, tiles[0])
        if out is None:
            out = backend.empty(drive.shape, owned.dtype)
        inputs = partition, owned, halo(tiles[0]), drive, recurrent
        _fused(_kernels(backend), *inputs, threads, out)
        return out
    if out is None:
        out = backend.empty(drive.shape)
    for columns in tiles:
        part = backend.empty((drive.shape[0], columns.stop - columns.start))
        gather(backend, partition, states, columns, halo(columns), part, threads)
        out[:, columns] = part
    update(backend, out, drive, recurrent, threads)
    return out


def _on_device(
    backend: Backend,
    partition: Partition,
    states: Floats32,
    halo: HaloSource,
    drive: Any,
    recurrent: DeviceWeights,
    tiles: Sequence[slice],
) -> Any:
    if len(tiles) == 1:
        owned, rows = _tile(states, tiles[0]), halo(tiles[0])
        return device.superstep(backend, partition, owned, rows, drive, recurrent)
    sums = np.empty(drive.shape, dtype=np.float32)
    for columns in tiles:
        part = sums[:, columns]
        device.gather(backend, partition, _tile(states, columns), halo(columns), part)
    return device.update(backend, sums, drive, recurrent)


def _kernels(backend: Backend) -> Any:
    return import_module(backend.kernels)


def _fused(
    kernels: Any,
    partition: Partition,
    owned: Floats32,
    halo: Floats32,
    drive: Drive,
    recurrent: Recurrent | BlockDiagonal,
    threads: int,
    out: Floats32,
) -> None:
    """Gather and update one block at a time, which stays in cache."""
    half = owned.dtype == np.float16
    owned, halo = _as_kept(owned, halo)
    weights = _NO_WEIGHTS if partition.weights is None else partition.weights
    streamed = not half and out.nbytes >= STREAMED
    rows = _rows_update(kernels, recurrent, streamed)
    blocks = Spare((ROWS, recurrent.dim))
    edges = (partition.indptr, partition.indices, weights, owned, halo)

    def fill(first: int, last: int, block: Floats32, after: Floats32) -> None:
        if rows.step is None:
            kernels.gather_add(*edges, first, last, block)
        with rows_of(drive, first, last) as pushed:
            if rows.step is None:
                rows.apply(block, pushed, after)
            else:
                rows.step(edges, first, last, pushed, after)

    def work(first: int, last: int) -> None:
        after = out[first:last]
        if rows.in_place and not half:
            fill(first, last, after, after)
            return
        # Sums go to a borrowed block, so that they stay in cache for the product.
        with blocks.borrow() as spare:
            block = spare[: last - first]
            if not half:
                fill(first, last, block, after)
            elif rows.in_place:
                fill(first, last, block, block)
                kernels.narrow(block, after.view(np.uint16))
            else:
                with blocks.borrow() as other:
                    wide = other[: last - first]
                    fill(first, last, block, wide)
                    kernels.narrow(wide, after.view(np.uint16))

    for_each_block(len(out), threads, work)


def _as_kept(owned: Floats32, halo: Floats32) -> tuple[Any, Any]:
    """Owned and halo rows as arguments of the kernels: float16 as its bits."""
    if owned.dtype != np.float16:
        return owned, halo
    return owned.view(np.uint16), halo.astype(np.float16, copy=False).view(np.uint16)


def first_states(
    drive: Drive, recurrent: RecurrentWeights, threads: int = 1
) -> Floats32:
    """States after superstep 1 on the CPU, from states of zero."""
    states = np.zeros(drive.shape, dtype=np.float32)
    update(cpu(), states, drive, recurrent, threads)
    return states


def _tile(states: Floats32, columns: slice) -> Floats32:
    """Some columns as a C-contiguous array, in memory or on a device."""
    part = states[:, columns]
    return part if part.flags.c_contiguous else part.copy()


@dataclass(frozen=True)
class _RowsUpdate:
    """``out = tanh(gathered W^T + drive)`` for at most `ROWS` rows."""

    apply: Callable[[Floats32, Floats32, Floats32], None]
    """``apply(gathered, drive, out)``; `gathered` is overwritten."""
    in_place: bool
    """Whether `out` must be `gathered`; if not, it must be another array."""
    step: Callable[[tuple[Any, ...], int, int, Floats32, Floats32], None] | None = None
    """``step(edges, first, last, drive, out)``: gather and update in one kernel."""


def _rows_update(
    kernels: Any, recurrent: Recurrent | BlockDiagonal, streamed: bool = False
) -> _RowsUpdate:
    if isinstance(recurrent, BlockDiagonal):
        return _block_diagonal(kernels, recurrent)
    if recurrent.columns is not None:
        columns, values = recurrent.columns, recurrent.values
        return _sparse(kernels, recurrent.dim, columns, values, streamed)
    return _dense(kernels, recurrent)


def _sparse(
    kernels: Any, dim: int, columns: Ints32, values: Floats32, streamed: bool
) -> _RowsUpdate:
    tiles, sums = Spare((dim, kernels.LANES)), Spare((kernels.WIDTH, kernels.LANES))
    # A few rows stay in a core's cache until they are written; a block would not.
    spares = Spare((kernels.LANES if streamed else 0, dim))

    def apply(gathered: Floats32, drive: Floats32, _out: Floats32) -> None:
        with tiles.borrow() as tile, sums.borrow() as total:
            kernels.sparse_update(gathered, columns, values, drive, tile, total)

    def step(
        edges: tuple[Any, ...], first: int, last: int, drive: Floats32, out: Floats32
    ) -> None:
        with tiles.borrow() as tile, sums.borrow() as total, spares.borrow() as spare:
            scratch = (columns, values, drive, tile, total, spare, out)
            kernels.sparse_superstep(*edges, first, last, *scratch)

    return _RowsUpdate(apply, in_place=True, step=step)


def _dense(kernels: Any, recurrent: Recurrent) -> _RowsUpdate:
    panels = pack(recurrent.values.T)

    def apply(gathered: Floats32, drive: Floats32, out: Floats32) -> None:
        multiply(gathered, panels, out)
        kernels.tanh_add(out, drive)

    return _RowsUpdate(apply, in_place=False)


def _block_diagonal(kernels: Any, recurrent: BlockDiagonal) -> _RowsUpdate:
    """Update the reservoirs in turn, on copies, with the bits of a single reservoir."""
    parts = [
        (columns, _rows_update(kernels, part), Spare((ROWS, part.dim)))
        for columns, part in zip(recurrent.columns(), recurrent.parts, strict=True)
    ]

    def apply(gathered: Floats32, drive: Floats32, out: Floats32) -> None:
        rows = len(gathered)
        for columns, part, spare in parts:
            with spare.borrow() as state, spare.borrow() as pushed:
                state[:rows], pushed[:rows] = gathered[:, columns], drive[:, columns]
                if part.in_place:
                    part.apply(state[:rows], pushed[:rows], state[:rows])
                    out[:, columns] = state[:rows]
                    continue
                with spare.borrow() as after:
                    part.apply(state[:rows], pushed[:rows], after[:rows])
                    out[:, columns] = after[:rows]

    return _RowsUpdate(apply, in_place=True)
