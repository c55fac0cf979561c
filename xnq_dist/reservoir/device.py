"""One superstep of one partition on a GPU, like `superstep` on CPUs.

Topology, weights, input drive and states stay on the device between supersteps, in
float32; the kernels are those of ``superstep.cu``. Gather, sparse product and tanh have
the bits of the CPU. A dense W is a sparse one with all its columns: it rounds each
product, where the CPU uses fused multiply-adds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from xnq_dist.core.backend import Backend, GpuBackend, Kernel
from xnq_dist.core.errors import SettingsError
from xnq_dist.graph.halo import Partition
from xnq_dist.reservoir.kernels import TANH_DENOMINATOR, TANH_NUMERATOR
from xnq_dist.reservoir.weights import Recurrent, side_by_side

__all__ = [
    "COLUMNS",
    "OnDevice",
    "defines",
    "device_bytes",
    "gather",
    "move_partition",
    "superstep_source",
]

COLUMNS = 32
"""Columns of sums over neighbours at a time: fewer than a superstep's, so they fit."""
ROWS_OF_BLOCK = (8, 4, 2, 1)
"""Possible rows of a block of a superstep; the largest that fits is used."""
SHARED = 48 * 1024
"""Bytes of shared memory of a block on every CUDA device."""
MAX_UNITS = SHARED // 4
"""Units for which a row's sums fit there."""
WARP, WARPS = 32, 8


class OnDevice:
    """Supersteps of a worker's partitions on a GPU, as `superstep.OnHost` on CPUs."""

    def __init__(self, backend: GpuBackend, recurrent: Sequence[Recurrent]) -> None:
        self._backend = backend
        weights = side_by_side([_as_sparse(part) for part in recurrent])[0]
        if weights.dim > MAX_UNITS:
            raise SettingsError(
                f"a GPU runs up to {MAX_UNITS:,} units, and there are {weights.dim:,}: "
                "set backend = cpu, or a smaller reservoir.dim"
            )
        # Non-zeros of neighbouring units are neighbours, (k, d'): a warp reads one
        # line of memory.
        self._columns = backend.to_device(np.asarray(weights.columns).T)
        self._values = backend.to_device(weights.values.T)

    def superstep(
        self, partition: Partition, owned: Any, halo: Any, drive: Any, out: Any
    ) -> None:
        """Write the states after one more update to `out`; all are on the device.

        `owned`, `drive` and `out` have shape (n_owned, d'), `halo` (n_halo, d').
        """
        count, dim = owned.shape
        rows = next(rows for rows in ROWS_OF_BLOCK if rows * dim * 4 <= SHARED)
        weights = self._columns, self._values, np.int32(len(self._columns))
        args = (*_sources(self._backend, partition, owned, halo), *weights, drive, out)
        if count:
            kernel = _kernel(self._backend, "sparse_superstep", rows, _vector(dim))
            grid, block = (-(-count // rows),), (WARP, WARPS)
            kernel(grid, block, args, shared_mem=rows * dim * 4)


def move_partition(backend: Backend, partition: Partition) -> Partition:
    """The partition with its topology in the backend's memory."""
    weights = partition.weights
    return replace(
        partition,
        indptr=backend.to_device(partition.indptr),
        indices=backend.to_device(partition.indices),
        weights=None if weights is None else backend.to_device(weights),
    )


def gather(
    backend: GpuBackend, partition: Partition, owned: Any, halo: Any, out: Any
) -> None:
    """Write weighted sums of in-neighbours' values to `out`.

    `partition` is on the device; `owned`, `halo` and `out`, shapes (n_owned, w),
    (n_halo, w) and (n_owned, w), are float32 on the host.
    """
    count, width = out.shape
    sums, vector = backend.empty(out.shape), _vector(width)
    there = backend.to_device(owned), backend.to_device(halo)
    if count:
        kernel = _kernel(backend, "gather_add", vector=vector)
        grid = -(-count // WARPS), -(-width // (WARP * vector))
        kernel(grid, (WARP, WARPS), (*_sources(backend, partition, *there), sums))
    out[...] = backend.to_host(sums)


def _as_sparse(part: Recurrent) -> Recurrent:
    """The same matrix with the columns of its non-zeros."""
    if part.columns is not None:
        return part
    columns = np.tile(np.arange(part.dim, dtype=np.int32), (part.dim, 1))
    return Recurrent(part.values, columns)


def _sources(
    backend: GpuBackend, partition: Partition, owned: Any, halo: Any
) -> tuple[Any, ...]:
    """A kernel's arguments for the in-neighbours of owned rows and their values."""

    def pointer(array: Any) -> Any:
        # Kernels do not accept an empty array, whose address is 0.
        return array if array.size else backend.empty((1,), array.dtype)

    weights = partition.weights
    weighted = weights is not None and len(weights) > 0
    return (
        partition.indptr,
        pointer(partition.indices),
        weights if weighted else backend.empty((1,)),
        np.int32(weighted),
        owned,
        pointer(halo),
        np.int32(partition.n_owned),
        np.int32(owned.shape[1]),
    )


@cache
def superstep_source() -> str:
    """The CUDA source, with definitions that differ between a device and a CPU."""
    text = Path(__file__).with_name("superstep.cu").read_text(encoding="utf-8")
    head = (
        "#ifndef XNQ_EMULATED\n"
        "#define SHARED_FLOATS(name) extern __shared__ float name[]\n"
        "#endif\n"
    )
    for letter, values in (("P", TANH_NUMERATOR), ("Q", TANH_DENOMINATOR)):
        for power, value in enumerate(values):
            # Nine significant digits identify a float32 exactly.
            head += f"#define {letter}{power} {float(value):.9e}f\n"
    return head + text


def defines(rows: int = 1, vector: int = 4) -> tuple[str, ...]:
    """Compiler options of the source."""
    return (f"-DROWS={rows}", f"-DVECTOR={vector}")


def _kernel(backend: GpuBackend, name: str, rows: int = 1, vector: int = 4) -> Kernel:
    return backend.kernel(superstep_source(), name, defines(rows, vector))


def _vector(width: int) -> int:
    """Columns that a thread loads at once: every row must begin at a multiple."""
    return 1 if width % 4 else 4


def device_bytes(
    owned: float, halo: float, edges: float, dim: int, matrix: int, partitions: int
) -> int:
    """Peak bytes of device memory for the supersteps of a worker.

    `owned`, `halo`, `edges`: of the largest partition; `matrix`: bytes of the recurrent
    matrix; `partitions`: those of the worker.
    """
    # States before and after, and the input drive; lists of rows to send and to pick.
    resident = 8 * owned + 8 * edges + 12 * owned * dim + 16 * halo
    # Halo rows in local order, and a block that is received or sent.
    block = min(owned, partitions * halo)
    return int(partitions * resident + 4 * (halo + block) * dim + matrix)
