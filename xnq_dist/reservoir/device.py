"""One superstep of one partition on a GPU, like `superstep` on CPUs.

Topology, weights, input drive and states stay on the device between supersteps, in
float32. Gather, sparse product and tanh have the bits of the CPU; a dense product is
that of cuBLAS, which has bits of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import numpy as np

from xnq_dist.core.backend import Backend, GpuBackend
from xnq_dist.core.errors import SettingsError
from xnq_dist.graph.halo import Partition
from xnq_dist.reservoir import gpu_kernels
from xnq_dist.reservoir.drive import FeatureDrive
from xnq_dist.reservoir.gpu_kernels import GEMM_ROWS, MAX_UNITS, Topology
from xnq_dist.reservoir.weights import Recurrent, side_by_side

__all__ = [
    "COLUMNS",
    "OnDevice",
    "device_bytes",
    "gather",
    "move_partition",
]

COLUMNS = 32
"""Columns of sums over neighbours at a time: fewer than a superstep's, so they fit."""


@dataclass(frozen=True)
class DeviceWeights:
    """Recurrent weights of all reservoirs on the device."""

    dense: tuple[Any, ...] = ()
    """Blocks of the diagonal, float32; equal ones together, (b, m, m)."""
    columns: Any = None
    """Columns of a sparse W's non-zeros, int32 (k, d'): those of neighbouring units are
    neighbours, so that a warp reads one line of memory."""
    values: Any = None
    """Their values, float32 (k, d')."""


class OnDevice:
    """Supersteps of a worker's partitions on a GPU, as `superstep.OnHost` on CPUs."""

    def __init__(self, backend: GpuBackend, recurrent: Sequence[Recurrent]) -> None:
        self._backend = backend
        self._weights = _move_weights(backend, side_by_side(recurrent))

    def drive(self, drive: FeatureDrive) -> Any:
        """The input drive, shape (n_owned, d')."""
        return self._backend.to_device(drive.stored())

    def first_states(self, drive: Any) -> Any:
        """States after superstep 1, tanh(drive)."""
        backend = self._backend
        out = backend.empty(drive.shape)
        gpu_kernels.tanh_add(backend, backend.xp.zeros_like(drive), drive, out)
        return out

    def superstep(
        self, partition: Partition, owned: Any, halo: Any, drive: Any, out: Any
    ) -> None:
        """Write the states after one more update to `out`; all are on the device.

        `owned`, `drive` and `out` have shape (n_owned, d'), `halo` (n_halo, d').
        """
        backend, weights = self._backend, self._weights
        topology = _topology(backend, partition)
        halo = _not_empty(backend, halo)
        if not weights.dense:
            sparse = weights.columns, weights.values
            gpu_kernels.sparse_superstep(
                backend, topology, owned, halo, *sparse, drive, out
            )
            return
        # One block of rows at a time stays in cache. It begins with zeros, because a
        # dense product has all rows: one of another shape may differ in the last bit.
        sums = backend.xp.zeros((GEMM_ROWS, drive.shape[1]), np.float32)
        for first in range(0, len(out), GEMM_ROWS):
            rows = slice(first, first + GEMM_ROWS)
            after = out[rows]
            last = first + len(after)
            gpu_kernels.gather_add(
                backend, topology, owned, halo, first, last, sums[: len(after)]
            )
            mixed, column = backend.empty(sums.shape), 0
            for stack in weights.dense:
                columns = slice(column, column + stack.shape[0] * stack.shape[1])
                backend.multiply(sums[:, columns], stack, mixed[:, columns])
                column = columns.stop
            gpu_kernels.tanh_add(backend, mixed[: len(after)], drive[rows], after)


def move_partition(backend: Backend, partition: Partition) -> Partition:
    """The partition with its topology in the backend's memory."""
    weights = partition.weights
    return replace(
        partition,
        indptr=backend.to_device(partition.indptr),
        indices=backend.to_device(partition.indices),
        weights=None if weights is None else backend.to_device(weights),
    )


def _move_weights(backend: GpuBackend, recurrent: Sequence[Recurrent]) -> DeviceWeights:
    """The recurrent weights (`side_by_side`) on the device, for few launches."""
    columns, values = recurrent[0].columns, recurrent[0].values
    if columns is None:
        equal = groupby((part.values for part in recurrent), len)
        stacks = [np.stack(list(values)) for _, values in equal]
        return DeviceWeights(tuple(map(backend.to_device, stacks)))
    if len(columns) > MAX_UNITS:
        raise SettingsError(
            f"a GPU runs a sparse W of up to {MAX_UNITS:,} units, and there are "
            f"{len(columns):,}: set backend = cpu, or a smaller reservoir.dim"
        )
    moved = backend.to_device(columns.T), backend.to_device(values.T)
    return DeviceWeights((), *moved)


def _topology(backend: GpuBackend, partition: Partition) -> Topology:
    weights = partition.weights
    weighted = weights is not None and len(weights) > 0
    return Topology(
        partition.indptr,
        # Kernels do not accept an empty array, whose address is 0.
        _not_empty(backend, partition.indices),
        weights if weighted else backend.empty((1,)),
        weighted,
    )


def _not_empty(backend: GpuBackend, array: Any) -> Any:
    """The array, or an array of one row, never read, if it is empty."""
    return array if array.size else backend.empty((1, *array.shape[1:]), array.dtype)


def gather(
    backend: GpuBackend, partition: Partition, owned: Any, halo: Any, out: Any
) -> None:
    """Write weighted sums of in-neighbours' values to `out`.

    `partition` is on the device; `owned`, `halo` and `out`, shapes (n_owned, w),
    (n_halo, w) and (n_owned, w), are float32 on the host.
    """
    sums = backend.empty(out.shape)
    gpu_kernels.gather_add(
        backend,
        _topology(backend, partition),
        backend.to_device(owned),
        _not_empty(backend, backend.to_device(halo)),
        0,
        len(out),
        sums,
    )
    out[...] = backend.to_host(sums)


def device_bytes(
    owned: float, halo: float, edges: float, dim: int, matrix: int, partitions: int
) -> int:
    """Peak bytes of device memory for the supersteps of a worker.

    `owned`, `halo`, `edges`: of the largest partition; `matrix`: bytes of the recurrent
    matrix; `partitions`: those of the worker.
    """
    # States before and after, and the input drive; lists of rows to send and to pick.
    resident = 8 * owned + 8 * edges + 12 * owned * dim + 16 * halo
    # Halo rows in local order, a block that is received or sent; sums and products of a
    # row block.
    block = min(owned, partitions * halo)
    shared = 4 * (halo + block) * dim + 8 * GEMM_ROWS * dim
    return int(partitions * resident + shared + matrix)
