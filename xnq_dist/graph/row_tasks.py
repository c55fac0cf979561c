"""Passes over the adjacency by ranges of its rows, on threads: products and distances.

The result of a row is computed in the order of the edges, so rho(A) and distances have
the same bits for any ranges and threads.
"""

from __future__ import annotations

from collections.abc import Callable

from xnq_dist.core.arrays import Floats, Ints32, Words
from xnq_dist.core.threads import map_threads
from xnq_dist.graph.csr import CHUNK_EDGES, CsrRows, FileCsr, spans
from xnq_dist.graph.distances import spread_kernel
from xnq_dist.graph.spectral import multiply

__all__ = ["RowPasses"]


class RowPasses:
    """Passes over an adjacency, on one thread for each processor."""

    def __init__(self, csr: FileCsr) -> None:
        self._csr, self._spans = csr, list(spans(csr.indptr, CHUNK_EDGES))

    def times(self, x: Floats, y: Floats, component: Ints32) -> None:
        """``y = A x``, for `spectral.adjacency_radius`."""
        column = x.reshape(-1, 1)
        self._pass(
            lambda rows: multiply(*rows.edges, rows.weights, component, column, y)
        )

    def spread(self, before: Words, after: Words) -> None:
        """A step of `distances.effective_diameter`."""
        self._pass(lambda rows: spread_kernel(*rows.edges, before, after))

    def _pass(self, kernel: Callable[[CsrRows], None]) -> None:
        map_threads(lambda span: kernel(self._csr.rows(*span)), self._spans)
