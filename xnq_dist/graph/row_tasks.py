"""Passes over the adjacency by tasks for ranges of its rows: products and distances.

The result of a row is computed in one task, in the order of the edges, as in one
process: rho(A) and distances have the same bits for any ranges and workers.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xnq_dist.core.arrays import Floats, Ints32, Words
from xnq_dist.core.worker_tasks import Tasks
from xnq_dist.graph import scratch
from xnq_dist.graph.csr import CHUNK_EDGES, CsrRows, FileCsr, shared_csr, spans
from xnq_dist.graph.distances import spread_kernel
from xnq_dist.graph.loaded import loaded
from xnq_dist.graph.spectral import multiply

__all__ = ["RowPasses"]

RANGES = 4
"""Ranges of rows for each task that runs at a time."""
EDGES = 1 << 24
"""Minimum edges of a range: a tenth of a second, and 3 ms of the main process."""

Vector = NDArray[Any]
Kernel = Callable[[CsrRows, Vector, Ints32, Vector], None]
"""Computes some rows of the last vector from all of the first, both of shape (N,), and
from the components of nodes, or none."""
NO_COMPONENTS = np.empty(0, np.int32)


class RowPasses:
    """Passes over an adjacency that `csr.shared_csr` opens on workers."""

    def __init__(self, csr: FileCsr, tasks: Tasks) -> None:
        self._tasks = tasks
        n, edges = len(csr.indptr) - 1, int(csr.indptr[-1])
        size = max(edges // (RANGES * tasks.slots) + 1, EDGES)
        self._ranges = list(spans(csr.indptr, size, n))
        self._job = RowTask(csr.folder, n, csr.weighted)

    def times(self, x: Floats, y: Floats, component: Ints32) -> None:
        """``y = A x``, for `spectral.adjacency_radius`."""
        self._pass(_times, x, component, y)

    def spread(self, before: Words, after: Words) -> None:
        """A step of `distances.effective_diameter`."""
        self._pass(_spread, before, NO_COMPONENTS, after)

    def _pass(self, kernel: Kernel, x: Vector, component: Ints32, y: Vector) -> None:
        path = self._tasks.folder / f"vector-{uuid.uuid4().hex}"
        scratch.append(path, x)
        scratch.append(_components(path), component)
        vectors = path, x.dtype, len(component)
        work = partial(self._job.compute, kernel, vectors)
        files = self._tasks.map(work, self._ranges)
        for (first, last), file in zip(self._ranges, files, strict=True):
            y[first:last] = scratch.shared(file, x.dtype, last - first)
            file.unlink()
        path.unlink()
        _components(path).unlink()


@dataclass(frozen=True)
class RowTask:
    """The task of a range of rows; small and picklable."""

    folder: Path
    """Of the adjacency."""
    nodes: int
    weighted: bool

    def compute(
        self,
        kernel: Kernel,
        vectors: tuple[Path, np.dtype[Any], int],
        rows: tuple[int, int],
    ) -> Path:
        """File of rows first to last - 1 of the result.

        `vectors`: path and type of the vector, and the length of the components.
        """
        path, dtype, length = vectors
        x, component = loaded(_read_vectors, path, dtype, self.nodes, length)
        csr = shared_csr(self.folder, self.nodes, self.weighted)
        first, last = rows
        y = np.empty(self.nodes, dtype)  # other rows are never touched
        for begin, end in spans(csr.indptr[first : last + 1], CHUNK_EDGES):
            kernel(csr.rows(first + begin, first + end), x, component, y)
        file = path.with_name(f"rows-{uuid.uuid4().hex}")
        scratch.append(file, y[first:last])
        return file


def _times(rows: CsrRows, x: Floats, component: Ints32, y: Floats) -> None:
    multiply(*rows.edges, rows.weights, component, x.reshape(-1, 1), y)


def _spread(rows: CsrRows, before: Words, _: Ints32, after: Words) -> None:
    spread_kernel(*rows.edges, before, after)


def _components(path: Path) -> Path:
    """File of the components, next to a vector's."""
    return path.with_suffix(".components")


def _read_vectors(
    path: Path, dtype: np.dtype[Any], n: int, length: int
) -> tuple[Vector, Ints32]:
    component = scratch.shared(_components(path), np.int32, length)
    return np.array(scratch.shared(path, dtype, n)), np.array(component)
