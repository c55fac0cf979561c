"""Batches of rows, each processed by several threads.

If each node used the latest choice of every other node, only one could choose at a
time. Here the nodes of a batch use the choices made before the batch, so the result is
the same for any number of threads. A batch is a small part of the graph, so ignoring
the choices within it costs almost no quality.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise

import numpy as np

from xnq_dist.core.threads import map_threads, threads_here
from xnq_dist.graph.csr import Csr, CsrRows, spans

__all__ = ["batches", "max_batch_rows", "share_rows"]

BATCHES = 256
"""Minimum number of batches of a pass: with 64 batches the graph Tolokers had 6 % more
halo rows, with 1024 no fewer."""
SINGLE_THREAD = 1 << 17
"""Edges up to which a second thread is not worthwhile: communities of 10 M edges took
7.8 s instead of 10.2 with 1 << 15 (three runs each, alternating)."""


def batches(csr: Csr) -> Iterator[CsrRows]:
    """Yield all rows in order, in `BATCHES` batches or more.

    No batch has more than its share of the edges, unless a single row has, or of the
    rows: there are at most about twice `BATCHES` for any graph.
    """
    size = max(-(-int(csr.indptr[-1]) // BATCHES), 1)
    for span in spans(csr.indptr, size, max_batch_rows(csr)):
        yield csr.rows(*span)


def max_batch_rows(csr: Csr) -> int:
    """Maximum rows of a batch."""
    return max(-(-(len(csr.indptr) - 1) // BATCHES), 1)


def share_rows(rows: CsrRows, work: Callable[[int, CsrRows], object]) -> None:
    """Call ``work(low, piece)`` on threads for pieces of a batch, each row once.

    All pieces have about the same number of edges and rows. A piece starts at row
    `low` of the batch; its row pointers are offsets in the edges of the batch.
    """
    cost = rows.indptr + np.arange(len(rows.indptr))
    threads = 1 if cost[-1] < SINGLE_THREAD else threads_here()
    inner = np.linspace(0, cost[-1], threads + 1)[1:-1]
    marks = sorted({0, *np.searchsorted(cost, inner).tolist(), len(cost) - 1})

    def piece(span: tuple[int, int]) -> None:
        low, high = span
        indptr = rows.indptr[low : high + 1]
        work(low, CsrRows(rows.first + low, indptr, rows.indices, rows.weights))

    map_threads(piece, list(pairwise(marks)))
