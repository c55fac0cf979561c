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

from xnq_dist.core.limits import processors
from xnq_dist.graph.ahead import ahead
from xnq_dist.graph.csr import CHUNK_EDGES, Csr, CsrRows, spans

__all__ = ["ThreadPool", "batches", "max_batch_rows"]

BATCHES = 256
"""Minimum number of batches of a pass: with 64 batches the graph Tolokers had 6 % more
halo rows, with 1024 no fewer."""
MAX_THREADS = 8
"""Each thread may need its own working memory."""
SINGLE_THREAD = 1 << 15
"""Edges up to which a second thread is not worthwhile."""


def batches(csr: Csr, minimum: int = BATCHES) -> Iterator[CsrRows]:
    """Yield all rows in order, in `minimum` batches or more, with read-ahead.

    The rows of a batch depend on the graph and `minimum` alone.
    """
    edges = int(csr.indptr[-1])
    size = max(min(-(-edges // minimum), CHUNK_EDGES), 1)
    each = (
        csr.rows(*span)
        for span in spans(csr.indptr, size, max_batch_rows(csr, minimum))
    )
    yield from each if size <= SINGLE_THREAD else ahead(each)


def max_batch_rows(csr: Csr, minimum: int = BATCHES) -> int:
    """Maximum rows of a batch."""
    return max(min(-(-(len(csr.indptr) - 1) // minimum), CHUNK_EDGES), 1)


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
        cost = rows.indptr + np.arange(count + 1)
        inner = np.linspace(0, cost[-1], self.threads + 1)[1:-1]
        self._each([0, *np.searchsorted(cost, inner).tolist(), count], piece)

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
