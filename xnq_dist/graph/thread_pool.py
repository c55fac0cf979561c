"""Batches of rows that are processed in parallel by a pool of threads.

If each node used the latest choice of every other node, only one could choose at a
time. Here the nodes of a batch use the choices made before the batch, so the result is
the same for any number of threads. A batch is a small part of the graph, so ignoring
the choices within it costs almost no quality.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import numpy as np

from xnq_dist.core.arrays import Ints
from xnq_dist.core.limits import processors
from xnq_dist.graph.ahead import ahead
from xnq_dist.graph.csr import Csr, CsrRows, spans

__all__ = ["ThreadPool", "batches", "max_batch_rows"]

BATCHES = 256
"""Minimum number of batches of a pass: with 64 batches the graph Tolokers had 6 % more
halo rows, with 1024 no fewer."""
MAX_THREADS = 8
"""Each thread may need its own working memory."""
SINGLE_THREAD = 1 << 15
"""Edges up to which a second thread is not worthwhile."""


def batch_spans(csr: Csr, minimum: int = BATCHES) -> list[tuple[int, int]]:
    """Row ranges of `minimum` batches or more, of the row pointers and `minimum` alone.

    No range has more than its share of the edges, unless a single row has, or of the
    rows: there are at most about twice `minimum` for any graph.
    """
    size = max(-(-int(csr.indptr[-1]) // minimum), 1)
    return list(spans(csr.indptr, size, max_batch_rows(csr, minimum)))


def batches(csr: Csr, minimum: int = BATCHES) -> Iterator[CsrRows]:
    """Yield all rows in order, in the batches of `batch_spans`, with read-ahead."""
    each = (csr.rows(*span) for span in batch_spans(csr, minimum))
    small = int(csr.indptr[-1]) <= minimum * SINGLE_THREAD
    yield from each if small else ahead(each)


def max_batch_rows(csr: Csr, minimum: int = BATCHES) -> int:
    """Maximum rows of a batch."""
    return max(-(-(len(csr.indptr) - 1) // minimum), 1)


def even_marks(indptr: Ints, parts: int) -> list[int]:
    """Bounds of consecutive ranges of rows, each with as many edges and rows."""
    cost = indptr + np.arange(len(indptr))
    inner = np.linspace(cost[0], cost[-1], parts + 1)[1:-1]
    return [0, *np.searchsorted(cost, inner).tolist(), len(indptr) - 1]


class ThreadPool:
    """Threads that share the rows of a batch; a context manager."""

    def __init__(self, threads: int | None = None) -> None:
        available = min(processors(), MAX_THREADS)
        self.threads = available if threads is None else threads
        """Number of threads; None: the processors that this process may use."""
        self._pool = ThreadPoolExecutor(self.threads)

    def __enter__(self) -> ThreadPool:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown()

    def share(self, rows: CsrRows, work: Callable[[int, int, CsrRows], object]) -> None:
        """Call ``work(thread, low, piece)`` for pieces of a batch, each row once.

        All pieces have about the same number of edges and rows. A piece starts at row
        `low` of the batch; its row pointers are offsets in the edges of the batch.
        """
        count, edges = len(rows.indptr) - 1, int(rows.indptr[-1])

        def piece(thread: int, low: int, high: int) -> None:
            indptr = rows.indptr[low : high + 1]
            part = CsrRows(rows.first + low, indptr, rows.indices, rows.weights)
            work(thread, low, part)

        if self.threads == 1 or count + edges < SINGLE_THREAD:
            piece(0, 0, count)
            return
        self._each(even_marks(rows.indptr, self.threads), piece)

    def divide(self, n: int, edges: int, work: Callable[[int, int], object]) -> None:
        """Call ``work(low, high)`` for ranges of n items with `edges` edges in all."""
        if self.threads == 1 or edges < SINGLE_THREAD:
            work(0, n)
            return
        marks = [n * thread // self.threads for thread in range(self.threads + 1)]
        self._each(marks, lambda _, low, high: work(low, high))

    def _each(self, marks: list[int], work: Callable[[int, int, int], object]) -> None:
        done = [
            self._pool.submit(work, thread, low, high)
            for thread, (low, high) in enumerate(pairwise(marks))
            if low < high
        ]
        for future in done:
            future.result()
