"""One superstep of one partition on a GPU, like `superstep` on the host.

States, drive and weights stay on the device between supersteps. With column tiles
(`reservoir.tile`) they stay in the host's memory and are copied to the device, a tile
of columns for the sums and a block of rows for the product. The bits are the same; this
is for states that do not fit on the device.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
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

Weights = Recurrent | BlockDiagonal


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


def move_weights(backend: Backend, recurrent: Weights) -> Weights:
    """The recurrent weights on the device; a dense W in the states' type."""
    if isinstance(recurrent, BlockDiagonal):
        parts = [move_weights(backend, part) for part in recurrent.parts]
        return BlockDiagonal(tuple(cast(list[Recurrent], parts)))
    if recurrent.columns is None:
        values = backend.to_device(encode(recurrent.values, backend.state_dtype))
        return replace(recurrent, values=values)
    return replace(
        recurrent,
        values=backend.to_device(recurrent.values),
        columns=backend.to_device(recurrent.columns),
    )


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


def _parts(recurrent: Weights) -> Iterator[tuple[slice, Recurrent]]:
    if isinstance(recurrent, BlockDiagonal):
        yield from zip(recurrent.columns(), recurrent.parts, strict=True)
    else:
        yield slice(0, recurrent.dim), recurrent


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
    recurrent: Weights,
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
    for columns, part in _parts(recurrent):
        view = owned[:, columns], halo[:, columns], drive[:, columns], out[:, columns]
        if part.columns is None:
            _dense(gpu, topology, part, *view)
        else:
            _sparse(gpu, topology, part, *view)
    return out


def _row_blocks(count: int) -> Iterator[slice]:
    for first in range(0, count, GEMM_ROWS):
        yield slice(first, min(first + GEMM_ROWS, count))


def _dense(
    backend: GpuBackend,
    topology: Topology,
    part: Recurrent,
    owned: Any,
    halo: Any,
    drive: Any,
    out: Any,
) -> None:
    """Gather, multiply and add one block of rows at a time, which stays in cache."""
    # Pad with zeros: a product of another shape may differ in the last bit.
    sums = backend.xp.zeros((GEMM_ROWS, part.dim), backend.state_dtype)
    mixed = backend.empty((GEMM_ROWS, part.dim))
    for rows in _row_blocks(out.shape[0]):
        count = rows.stop - rows.start
        gpu_kernels.gather_add(
            backend, topology, owned, halo, rows.start, rows.stop, sums[:count]
        )
        backend.multiply(sums, part.values, mixed)
        gpu_kernels.tanh_add(backend, mixed[:count], drive[rows], out[rows])


def _sparse(
    backend: GpuBackend,
    topology: Topology,
    part: Recurrent,
    owned: Any,
    halo: Any,
    drive: Any,
    out: Any,
) -> None:
    weights = part.columns, part.values
    if gpu_kernels.sparse_superstep(
        backend, topology, owned, halo, *weights, drive, out
    ):
        return
    for rows in _row_blocks(out.shape[0]):
        sums = backend.empty((rows.stop - rows.start, part.dim))
        gpu_kernels.gather_add(
            backend, topology, owned, halo, rows.start, rows.stop, sums
        )
        gpu_kernels.sparse_update(backend, sums, *weights, drive[rows], out[rows])


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


def update(backend: Backend, gathered: Any, drive: Any, recurrent: Weights) -> Floats32:
    """``tanh(gathered W^T + drive)`` in row blocks; all on the host, float32."""
    gpu = cast(GpuBackend, backend)
    out = np.empty(gathered.shape, backend.state_dtype)
    for rows in _row_blocks(len(gathered)):
        count = rows.stop - rows.start
        pushed = backend.to_device(drive[rows])
        after = backend.empty(pushed.shape, backend.state_dtype)
        for columns, part in _parts(recurrent):
            sums = np.ascontiguousarray(gathered[rows, columns])
            view = pushed[:, columns], after[:, columns]
            if part.columns is None:
                padded = np.zeros((GEMM_ROWS, part.dim), backend.state_dtype)
                padded[:count] = encode(sums, backend.state_dtype)
                mixed = backend.empty((GEMM_ROWS, part.dim))
                gpu.multiply(backend.to_device(padded), part.values, mixed)
                gpu_kernels.tanh_add(gpu, mixed[:count], *view)
            else:
                moved = backend.to_device(sums)
                gpu_kernels.sparse_update(gpu, moved, part.columns, part.values, *view)
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
