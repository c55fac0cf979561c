"""Products of the adjacency with a vector, by tasks for ranges of its rows.

The sum of a row runs in one task, in the order of the edges, as in one process: the
product, and with it rho(A), has the same bits for any ranges and workers.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from xnq_dist.core.arrays import Floats
from xnq_dist.core.worker_tasks import Tasks
from xnq_dist.graph import scratch
from xnq_dist.graph.csr import CHUNK_EDGES, FileCsr, shared_csr, spans
from xnq_dist.graph.loaded import loaded
from xnq_dist.graph.spectral import multiply

__all__ = ["product_by_tasks"]

RANGES = 4
"""Ranges of rows for each task that runs at a time."""


def product_by_tasks(csr: FileCsr, tasks: Tasks) -> Callable[[Floats, Floats], None]:
    """``times(x, y)`` for `spectral.adjacency_radius`; `csr` as `csr.shared_csr`."""
    n, edges = len(csr.indptr) - 1, int(csr.indptr[-1])
    parts = RANGES * tasks.slots
    ranges = list(spans(csr.indptr, edges // parts + 1, n // parts + 1))
    job = RowProducts(csr.folder, n, csr.weighted)

    def times(x: Floats, y: Floats) -> None:
        vector = tasks.folder / f"vector-{uuid.uuid4().hex}"
        scratch.append(vector, x)
        files = tasks.map(partial(job.multiply, vector), ranges)
        for (first, last), file in zip(ranges, files, strict=True):
            y[first:last] = scratch.shared(file, np.float64, last - first)
            file.unlink()
        vector.unlink()

    return times


@dataclass(frozen=True)
class RowProducts:
    """The tasks; small and picklable."""

    folder: Path
    """Of the adjacency."""
    nodes: int
    weighted: bool

    def multiply(self, vector: Path, rows: tuple[int, int]) -> Path:
        """File of the product's rows first to last - 1."""
        x = loaded(_read_vector, vector, self.nodes).reshape(-1, 1)
        csr = shared_csr(self.folder, self.nodes, self.weighted)
        first, last = rows
        y = np.empty(last - first)
        for begin, end in spans(csr.indptr[first : last + 1], CHUNK_EDGES):
            some = csr.rows(first + begin, first + end)
            everywhere = np.empty(0, np.int32)
            multiply(begin, some.indptr, some.indices, some.weights, everywhere, x, y)
        file = vector.with_name(f"product-{uuid.uuid4().hex}")
        scratch.append(file, y)
        return file


def _read_vector(path: Path, n: int) -> Floats:
    values: Floats = scratch.shared(path, np.float64, n)
    return np.array(values)
