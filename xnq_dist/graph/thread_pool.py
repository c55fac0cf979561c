"""Nodes that choose at the same time: batches of rows, shared among processors.

Where each node sees the latest choice of every other, only one can choose at a time.
Here those of a batch see what was chosen before it, and any number of threads can share
it with the same answer. A batch is a small part of the graph: what its nodes do not see
of each other costs hardly anything.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import numpy as np

from xnq_dist.graph.ahead import ahead
from xnq_dist.graph.csr import CHUNK_EDGES, Csr, CsrRows, spans

__all__ = ["Crew", "batches", "most_rows"]

BATCHES = 256
"""Batches of a pass, at least, while there are so many nodes: with 64 of them Tolokers
had 6 % more halo rows, with 1024 no fewer."""
MOST_THREADS = 8
"""Each may need memory of its own."""
ALONE = 1 << 15
"""Edges that are not worth a second thread."""


def batches(csr: Csr, least: int = BATCHES) -> Iterator[CsrRows]:
    """All rows in order by `least` batches or more; the next one is read meanwhile.

    Which rows are in a batch depends on the graph and `least` alone.
    """
    edges = int(csr.indptr[-1])
    size = max(min(-(-edges // least), CHUNK_EDGES), 1)
    each = (csr.rows(*span) for span in spans(csr.indptr, size, most_rows(csr, least)))
    yield from each if size <= ALONE else ahead(each)


def most_rows(csr: Csr, least: int = BATCHES) -> int:
    """Rows of a batch, at most."""
    return max(min(-(-(len(csr.indptr) - 1) // least), CHUNK_EDGES), 1)


class Crew:
    """Threads that share the rows of a batch; a context manager."""

    def __init__(self, threads: int | None = None) -> None:
        there = min(len(os.sched_getaffinity(0)), MOST_THREADS)
        self.threads = there if threads is None else threads
        """How many; None: the processors that this process may use."""
        self._pool = ThreadPoolExecutor(self.threads)

    def __enter__(self) -> Crew:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown()

    def share(self, rows: CsrRows, work: Callable[[int, int, CsrRows], object]) -> None:
        """Call ``work(thread, low, piece)`` for pieces of a batch, each row once.

        Pieces have about as many edges and rows as one another, and begin with row
        `low` of the batch; their row pointers are places in the edges of the batch.
        """
        count, edges = len(rows.indptr) - 1, int(rows.indptr[-1])

        def piece(thread: int, low: int, high: int) -> None:
            indptr = rows.indptr[low : high + 1]
            part = CsrRows(rows.first + low, indptr, rows.indices, rows.weights)
            work(thread, low, part)

        if self.threads == 1 or count + edges < ALONE:
            piece(0, 0, count)
            return
        cost = rows.indptr + np.arange(count + 1)
        inner = np.linspace(0, cost[-1], self.threads + 1)[1:-1]
        self._each([0, *np.searchsorted(cost, inner).tolist(), count], piece)

    def divide(self, n: int, edges: int, work: Callable[[int, int], object]) -> None:
        """Call ``work(low, high)`` for ranges of n things; it takes so many edges."""
        if self.threads == 1 or edges < ALONE:
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
