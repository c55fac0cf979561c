"""Launches the superstep kernels of ``superstep.cu`` on a GPU.

The bits of a row depend only on its neighbours and are those of
`xnq_dist.reservoir.kernels`. The dense product uses cuBLAS in row blocks of one fixed
shape, so that its bits do not depend on the partitioning of rows either.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from xnq_dist.core.backend import GpuBackend, Kernel
from xnq_dist.reservoir.kernels import TANH_DENOMINATOR, TANH_NUMERATOR

__all__ = [
    "GEMM_ROWS",
    "MAX_UNITS",
    "Topology",
    "defines",
    "gather_add",
    "sparse_superstep",
    "tanh_add",
]

GEMM_ROWS = 8192
"""Rows of every dense product; the last block is padded."""
ROWS_OF_BLOCK = (8, 4, 2, 1)
"""Possible rows of a block of `sparse_superstep`; the largest that fits is used."""
SHARED = 48 * 1024
"""Bytes of shared memory of a block on every CUDA device."""
MAX_UNITS = SHARED // 4
"""Units of a sparse W for which a row's sums fit there."""
WARP, WARPS, THREADS = 32, 8, 256


@dataclass(frozen=True)
class Topology:
    """In-neighbours of owned rows, on the device."""

    indptr: Any
    """int64 (n_owned + 1,)."""
    indices: Any
    """int32 (n_edges,); below n_owned a row of the owned states, else of the halo."""
    weights: Any
    """float32 (n_edges,); one unused value if not `weighted`."""
    weighted: bool


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
    options = defines(rows, vector)
    return backend.kernel(superstep_source(), name, options)


def _vector(width: int) -> int:
    """Columns that a thread loads at once: every row must begin at a multiple."""
    return 1 if width % 4 else 4


def _stride(array: Any) -> np.int64:
    """Values from one row to the next; columns must be contiguous."""
    return np.int64(array.strides[0] // array.itemsize if array.shape[0] > 1 else 0)


def _sources(topology: Topology, owned: Any, halo: Any) -> tuple[Any, ...]:
    return (
        topology.indptr,
        topology.indices,
        topology.weights,
        np.int32(topology.weighted),
        owned,
        halo,
        np.int32(len(topology.indptr) - 1),
        np.int32(owned.shape[1]),
    )


def _blocks(count: int, size: int) -> int:
    return max(1, -(-count // size))


def gather_add(
    backend: GpuBackend,
    topology: Topology,
    owned: Any,
    halo: Any,
    first: int,
    last: int,
    out: Any,
) -> None:
    """Weighted sums of in-neighbours' states for owned rows first:last.

    `owned` and `halo`: states, (n_owned, w) and (n_halo, w). `out`: (last - first, w).
    All are float32 and C-contiguous.
    """
    if last <= first:
        return
    vector = _vector(owned.shape[1])
    grid = (_blocks(last - first, WARPS), _blocks(owned.shape[1], WARP * vector))
    sources = _sources(topology, owned, halo)
    args = (*sources, np.int64(first), np.int64(last), out)
    _kernel(backend, "gather_add", vector=vector)(grid, (WARP, WARPS), args)


def tanh_add(backend: GpuBackend, product: Any, drive: Any, out: Any) -> None:
    """``out = tanh(product + drive)``, shapes (n, w).

    All are float32; `product` is C-contiguous, `drive` and `out` may be columns of
    wider arrays.
    """
    count = product.shape[0] * product.shape[1]
    if not count:
        return
    width = np.int32(product.shape[1])
    args = (product, drive, _stride(drive), out, _stride(out), width, np.int64(count))
    _kernel(backend, "tanh_add")((_blocks(count, THREADS),), (THREADS,), args)


def sparse_superstep(
    backend: GpuBackend,
    topology: Topology,
    owned: Any,
    halo: Any,
    columns: Any,
    values: Any,
    drive: Any,
    out: Any,
) -> None:
    """``out = tanh(sums W^T + drive)`` for all owned rows and a sparse W, in one pass.

    `owned`, `halo`: as in `gather_add`. `columns` and `values`, (k, d'), at most
    `MAX_UNITS` units: the non-zeros of W, of all units the first, then of all the
    second, and so on. `drive`, `out`: (n_owned, d').
    """
    dim, count = owned.shape[1], owned.shape[0]
    if not count:
        return
    rows = next(rows for rows in ROWS_OF_BLOCK if rows * dim * 4 <= SHARED)
    sources = _sources(topology, owned, halo)
    weights = (columns, values, np.int32(len(columns)))
    args = (*sources, np.int64(0), np.int64(count), *weights, drive, out)
    _kernel(backend, "sparse_superstep", rows, _vector(dim))(
        (_blocks(count, rows),), (WARP, WARPS), args, shared_mem=rows * dim * 4
    )
