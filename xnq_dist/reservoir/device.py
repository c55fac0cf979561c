"""One superstep of one partition on a GPU, like `superstep` on the host.

States, drive and weights stay on the device between supersteps. With column tiles
(`reservoir.tile`) they stay in the host's memory and are copied to the device, a tile
of columns for the sums and a block of rows for the product. The bits are the same; this
is for states that do not fit on the device.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from xnq_dist.core.arrays import Floats32
from xnq_dist.core.backend import Backend, GpuBackend
from xnq_dist.graph.halo import Partition
from xnq_dist.reservoir import gpu_kernels
from xnq_dist.reservoir.gpu_kernels import GEMM_ROWS, Topology
from xnq_dist.reservoir.weights import BlockDiagonal, Recurrent

__all__ = [
    "DeviceWeights",
    "RecurrentWeights",
    "decode",
    "device_bytes",
    "encode",
    "first_states",
    "gather",
    "move_partition",
    "move_weights",
    "superstep",
    "update",
]


@dataclass(frozen=True)
class DeviceWeights:
    """Recurrent weights of all reservoirs on the device."""

    dense: tuple[Any, ...] = ()
    """Blocks of the diagonal in the states' type; equal ones together, (b, m, m)."""
    columns: Any = None
    """Columns of a sparse W's non-zeros, int32 (k, d'): those of neighbouring units are
    neighbours, so that a warp reads one line of memory."""
    values: Any = None
    """Their values, float32 (k, d')."""


RecurrentWeights = Recurrent | BlockDiagonal | DeviceWeights
"""The recurrent matrix in the memory of a backend."""


def encode(states: Floats32, dtype: np.dtype[Any]) -> NDArray[Any]:
    """States on the host in the device's type; bfloat16 as its bits."""
    if dtype != np.uint16:
        return states.astype(dtype, copy=False)
    bits = np.ascontiguousarray(states, np.float32).view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> 16) & np.uint32(1))) >> 16
    return rounded.astype(np.uint16)


def decode(states: NDArray[Any]) -> Floats32:
    """States converted to float32, exactly; float32 is returned unchanged."""
    if states.dtype != np.uint16:
        return states.astype(np.float32, copy=False)
    return (states.astype(np.uint32) << np.uint32(16)).view(np.float32)


def move_partition(backend: Backend, partition: Partition) -> Partition:
    """The partition with its topology on the device."""
    weights = partition.weights
    return replace(
        partition,
        indptr=backend.to_device(partition.indptr),
        indices=backend.to_device(partition.indices),
        weights=None if weights is None else backend.to_device(weights),
    )


def move_weights(
    backend: Backend, recurrent: Recurrent | BlockDiagonal
) -> DeviceWeights:
    """The recurrent weights on the device, for few launches."""
    parts = recurrent.parts if isinstance(recurrent, BlockDiagonal) else (recurrent,)
    sparse = [(part.columns, part.values) for part in parts if part.columns is not None]
    if not sparse:
        equal = groupby((part.values for part in parts), len)
        stacks = [encode(np.stack(list(v)), backend.state_dtype) for _, v in equal]
        return DeviceWeights(tuple(map(backend.to_device, stacks)))
    # Zeros fill up rows with fewer non-zeros; a sum is never -0, so its bits stay.
    shape = (max(there.shape[1] for there, _ in sparse), recurrent.dim)
    columns, values = np.zeros(shape, np.int32), np.zeros(shape, np.float32)
    first = 0
    for there, known in sparse:
        at = slice(known.shape[1]), slice(first, first + len(known))
        columns[at], values[at] = there.T + first, known.T
        first += len(known)
    return DeviceWeights((), backend.to_device(columns), backend.to_device(values))


def _topology(backend: Backend, partition: Partition) -> Topology:
    weights = partition.weights
    weighted = weights is not None and len(weights) > 0
    return Topology(
        backend.to_device(partition.indptr),
        # Kernels do not accept an empty array, whose address is 0.
        _not_empty(backend, backend.to_device(partition.indices)),
        weights if weighted else backend.empty((1,)),
        weighted,
    )


def _not_empty(backend: Backend, array: Any) -> Any:
    """The array, or an array of one row, never read, if it is empty."""
    return array if array.size else backend.empty((1, *array.shape[1:]), array.dtype)


def _on_device(backend: Backend, states: Any) -> Any:
    """States on the device in its type; those of a checkpoint are float32."""
    if isinstance(states, np.ndarray) and states.dtype == np.float32:
        states = encode(states, backend.state_dtype)
    return backend.to_device(states)


def first_states(backend: Backend, drive: Any, resident: bool = True) -> Any:
    """States after superstep 1, tanh(drive); on the device if `resident`."""
    gpu = cast(GpuBackend, backend)
    if resident:
        return _first_block(gpu, drive)
    out = np.empty(drive.shape, backend.state_dtype)
    for rows in _row_blocks(len(drive)):
        out[rows] = backend.to_host(_first_block(gpu, backend.to_device(drive[rows])))
    return decode(out)


def _first_block(backend: GpuBackend, drive: Any) -> Any:
    out = backend.empty(drive.shape, backend.state_dtype)
    gpu_kernels.tanh_add(backend, backend.xp.zeros_like(drive), drive, out)
    return out


def superstep(
    backend: Backend,
    partition: Partition,
    owned: Any,
    halo: Any,
    drive: Any,
    weights: DeviceWeights,
) -> Any:
    """States after one more update, on the device.

    `owned` and `halo`, shapes (n_owned, d') and (n_halo, d'), are on the device in the
    backend's `state_dtype`, or on the host in float32; all else is on the device.
    """
    gpu = cast(GpuBackend, backend)
    topology = _topology(backend, partition)
    owned = _on_device(backend, owned)
    halo = _not_empty(backend, _on_device(backend, halo))
    out = backend.empty(drive.shape, backend.state_dtype)
    sparse = weights.columns, weights.values
    if not weights.dense and gpu_kernels.sparse_superstep(
        gpu, topology, owned, halo, *sparse, drive, out
    ):
        return out
    # One block of rows at a time stays in cache.
    sums = _sums(backend, drive.shape[1], weights)
    for rows in _row_blocks(len(out)):
        count = rows.stop - rows.start
        gpu_kernels.gather_add(
            gpu, topology, owned, halo, rows.start, rows.stop, sums[:count]
        )
        _update_block(gpu, sums, drive[rows], weights, out[rows])
    return out


def _row_blocks(count: int) -> Iterator[slice]:
    for first in range(0, count, GEMM_ROWS):
        yield slice(first, min(first + GEMM_ROWS, count))


def _sums(backend: Backend, dim: int, weights: DeviceWeights) -> Any:
    """Memory for the sums of a row block, in the type that its update reads."""
    # Zeros, because a dense product has all rows: one of another shape may differ in
    # the last bit.
    kind = backend.state_dtype if weights.dense else np.float32
    return backend.xp.zeros((GEMM_ROWS, dim), kind)


def _update_block(
    backend: GpuBackend, sums: Any, drive: Any, weights: DeviceWeights, out: Any
) -> None:
    """``out = tanh(sums W^T + drive)`` for the first rows of `sums`."""
    if not weights.dense:
        part = sums[: len(out)]
        gpu_kernels.sparse_update(
            backend, part, weights.columns, weights.values, drive, out
        )
        return
    mixed, first = backend.empty(sums.shape), 0
    for stack in weights.dense:
        columns = slice(first, first + stack.shape[0] * stack.shape[1])
        backend.multiply(sums[:, columns], stack, mixed[:, columns])
        first = columns.stop
    gpu_kernels.tanh_add(backend, mixed[: len(out)], drive, out)


def gather(
    backend: Backend, partition: Partition, owned: Any, halo: Any, out: Any
) -> None:
    """Write sums of in-neighbours' states in one column tile to `out` on the host.

    `owned` and `halo` are one tile of columns on the host; `out` is float32, shape
    (n_owned, w).
    """
    gpu = cast(GpuBackend, backend)
    sums = backend.empty(out.shape)
    gpu_kernels.gather_add(
        gpu,
        _topology(backend, partition),
        _on_device(backend, owned),
        _not_empty(backend, _on_device(backend, halo)),
        0,
        out.shape[0],
        sums,
    )
    out[...] = backend.to_host(sums)


def update(
    backend: Backend, gathered: Any, drive: Any, weights: DeviceWeights
) -> Floats32:
    """``tanh(gathered W^T + drive)`` in row blocks; on the host, float32."""
    gpu = cast(GpuBackend, backend)
    out = np.empty(gathered.shape, backend.state_dtype)
    for rows in _row_blocks(len(gathered)):
        sums = _sums(backend, gathered.shape[1], weights)
        part = gathered[rows]
        if weights.dense:
            part = encode(part, backend.state_dtype)
        sums[: len(part)] = backend.to_device(part)
        after = backend.empty(part.shape, backend.state_dtype)
        _update_block(gpu, sums, backend.to_device(drive[rows]), weights, after)
        out[rows] = backend.to_host(after)
    return decode(out)


def device_bytes(
    owned: float,
    halo: float,
    edges: float,
    dim: int,
    tile: int,
    matrix: int,
    itemsize: int,
) -> int:
    """Peak bytes of device memory for one partition's supersteps.

    `owned`, `halo`, `edges`: of the largest partition. `tile` below `dim`: states stay
    on the host. `matrix`: bytes of the recurrent matrix; `itemsize`: of a state's
    value.
    """
    topology = 8 * owned + 8 * edges
    block = GEMM_ROWS * dim * (4 + itemsize)
    if tile < dim:
        # A tile of states, halo and sums; later a block of rows for the product.
        streamed = (owned * (itemsize + 4) + halo * itemsize) * tile
        return int(topology + matrix + max(streamed, block + GEMM_ROWS * dim * 12))
    # States before and after, drive; the halo as received blocks and in local order.
    resident = owned * dim * (2 * itemsize + 4) + 2 * halo * dim * itemsize
    return int(topology + matrix + resident + block)
