"""Passes over the adjacency by tasks for ranges of its rows: products and distances.

The result of a row is computed in one task, in the order of the edges, as in one
process: rho(A) and distances have the same bits for any ranges and workers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xnq_dist.core.arrays import Floats, Ints32, Words
from xnq_dist.core.tasks import Shared, Tasks
from xnq_dist.graph.csr import CHUNK_EDGES, CsrRows, FileCsr, shared_csr, spans
from xnq_dist.graph.distances import spread_kernel
from xnq_dist.graph.spectral import multiply

__all__ = ["RowPasses"]

RANGES = 4
"""Ranges of rows for each task that runs at a time."""
EDGES = 1 << 24
"""Minimum edges of a range on workers: a tenth of a second, and 3 ms of the main
process."""

Vector = NDArray[Any]
Kernel = Callable[[CsrRows, Vector, Ints32, Vector], None]
"""Computes some rows of the last vector from all of the first, both of shape (N,), and
from the components of nodes, or none."""
NO_COMPONENTS = np.empty(0, np.int32)


class RowPasses:
    """Passes over an adjacency that `csr.shared_csr` opens in tasks."""

    def __init__(self, csr: FileCsr, tasks: Tasks) -> None:
        self._tasks = tasks
        n, edges = len(csr.indptr) - 1, int(csr.indptr[-1])
        least = CHUNK_EDGES if tasks.here else EDGES
        size = max(edges // (RANGES * tasks.slots) + 1, least)
        self._ranges = list(spans(csr.indptr, size, n))
        self._job = RowTask(csr.folder, n, csr.weighted)

    def times(self, x: Floats, y: Floats, component: Ints32) -> None:
        """``y = A x``, for `spectral.adjacency_radius`."""
        self._pass(_times, x, component, y)

    def spread(self, before: Words, after: Words) -> None:
        """A step of `distances.effective_diameter`."""
        self._pass(_spread, before, NO_COMPONENTS, after)

    def _pass(self, kernel: Kernel, x: Vector, component: Ints32, y: Vector) -> None:
        with self._tasks.share((x, component), tuple, _together) as vectors:
            work = partial(self._job.compute, kernel, vectors)
            parts = self._tasks.map(work, self._ranges)
        for (first, last), part in zip(self._ranges, parts, strict=True):
            y[first:last] = part


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
        vectors: Shared[tuple[Vector, Ints32]],
        rows: tuple[int, int],
    ) -> Vector:
        """Rows first to last - 1 of the result."""
        x, component = vectors()
        csr = shared_csr(self.folder, self.nodes, self.weighted)
        first, last = rows
        y = np.empty_like(x)  # other rows are never touched
        for begin, end in spans(csr.indptr[first : last + 1], CHUNK_EDGES):
            kernel(csr.rows(first + begin, first + end), x, component, y)
        return y[first:last].copy()


def _together(x: Vector, component: Ints32) -> tuple[Vector, Ints32]:
    return x, component


def _times(rows: CsrRows, x: Floats, component: Ints32, y: Floats) -> None:
    multiply(*rows.edges, rows.weights, component, x.reshape(-1, 1), y)


def _spread(rows: CsrRows, before: Words, _: Ints32, after: Words) -> None:
    spread_kernel(*rows.edges, before, after)
