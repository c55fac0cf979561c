"""The adjacency by rows, and the weights of edges.

It is in memory, or mapped from files. Row v holds the in-neighbours of node
v, ascending; rows and neighbours are canonical indices. Row pointers and one row must
fit in memory; the edges need not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from xnq_dist.core.arrays import Floats, Ints, Ints32, offsets_of
from xnq_dist.core.errors import InputError
from xnq_dist.core.sections import ColumnSettings
from xnq_dist.core.threads import map_threads
from xnq_dist.graph import scratch
from xnq_dist.graph.sort import SparseRows
from xnq_dist.graph.tables import Batch

__all__ = [
    "FOLDER",
    "HEAVIEST",
    "Csr",
    "csr_of",
    "shared_csr",
    "weights_of",
    "write_csr",
    "write_rows",
    "written_csr",
]

HEAVIEST = 1e15
"""The largest weight. Labels are counted over walks of two steps: such products, added
up over the neighbours of a hub, must stay finite in float32."""

CHUNK_EDGES = 1 << 20
"""Maximum number of edges of a chunk, unless a single row has more."""
FOLDER = "csr"
"""Folder of the adjacency that tasks read, in their own folder."""
R = TypeVar("R")


@dataclass(frozen=True)
class Csr:
    """An adjacency in memory (`csr_of`), or in files (`shared_csr`)."""

    indptr: Ints
    """Shape (N + 1,)."""
    weighted: bool
    arrays: Callable[[], tuple[Ints32, NDArray[Any]]]
    """All column indices, and weights: empty without. Files are mapped anew in each
    call, so that what was read does not stay in memory."""

    def rows(self, first: int, last: int) -> SparseRows:
        """Rows first to last - 1."""
        begin, end = self.indptr[first], self.indptr[last]
        indices, weights = self.arrays()
        indptr = self.indptr[first : last + 1] - begin
        return SparseRows(first, indptr, indices[begin:end], weights[begin:end])

    def chunks(self) -> Iterator[SparseRows]:
        """All rows in order, about `CHUNK_EDGES` edges at a time."""
        for span in _spans(self.indptr, CHUNK_EDGES):
            yield self.rows(*span)

    def map(self, work: Callable[[SparseRows], R], edges: int = CHUNK_EDGES) -> list[R]:
        """Results of a function of chunks of about `edges` edges, on threads."""
        passes = list(_spans(self.indptr, edges))
        return map_threads(lambda span: work(self.rows(*span)), passes)


def weights_of(batch: Batch, columns: ColumnSettings) -> Floats:
    """The weights of a batch, shape (rows,), 0 to `HEAVIEST`; 1 without."""
    if columns.weight not in batch.rows.schema.names:
        return np.ones(batch.rows.num_rows)
    rule = (
        "weights must be finite and between 0 and 1e15; set columns.weight to "
        "such a column, or to null to use edges without weights"
    )
    values = batch.numbers(
        str(columns.weight), lambda values: (values >= 0) & (values <= HEAVIEST), rule
    )
    # Adding zero turns -0.0 into 0.0: equal weights then have equal bits.
    return values + 0.0


def csr_of(indptr: Ints, indices: Ints32, weights: NDArray[Any]) -> Csr:
    """An adjacency in memory; `weights` are empty without."""
    return Csr(indptr, len(weights) > 0, lambda: (indices, weights))


def shared_csr(folder: Path, n: int, weighted: bool) -> Csr:
    """An adjacency of n rows that another process wrote, row pointers included.

    Raises
    ------
    StageError
        When a file is missing or has another size.
    """
    indptr = scratch.shared(folder / "indptr", np.int64, n + 1)
    for name in ("indices", "weights") if weighted else ("indices",):
        scratch.shared(folder / name, np.int32, int(indptr[-1]))

    def arrays() -> tuple[Ints32, NDArray[Any]]:
        indices = scratch.mapped(folder / "indices", np.int32)
        return indices, scratch.mapped(folder / "weights", np.float32)

    return Csr(indptr, weighted, arrays)


def write_csr(
    chunks: Iterable[SparseRows], n: int, folder: Path, weighted: bool
) -> Csr:
    """Write sorted pairs (major = row, minor = column) to an existing empty folder."""
    for chunk in chunks:
        write_rows(chunk, folder, weighted)
    return written_csr(n, folder, weighted)


def write_rows(chunk: SparseRows, folder: Path, weighted: bool) -> None:
    """Add the rows of a chunk to a folder."""
    scratch.append(folder / "degrees", np.diff(chunk.indptr))
    scratch.append(folder / "indices", chunk.indices.astype(np.int32))
    if weighted:
        largest = chunk.weights.max(initial=0)
        if largest > HEAVIEST:
            raise InputError(
                f"the weights of one edge add up to {largest:g}, which is more than "
                "1e15: scale the weights down"
            )
        scratch.append(folder / "weights", chunk.weights.astype(np.float32))


def written_csr(n: int, folder: Path, weighted: bool) -> Csr:
    """The adjacency whose n rows are in a folder, where `shared_csr` then opens it.

    Raises
    ------
    StageError
        As `shared_csr`: values were lost or cut.
    """
    degrees = scratch.shared(folder / "degrees", np.int64, n)
    scratch.append(folder / "indptr", offsets_of(degrees))
    return shared_csr(folder, n, weighted)


def _spans(indptr: Ints, edges: int) -> Iterator[tuple[int, int]]:
    """Row ranges of at most `edges` edges and rows, or of one row."""
    n, first = len(indptr) - 1, 0
    while first < n:
        # Bound the rows too: a chunk of rows without edges would be unlimited.
        last = int(np.searchsorted(indptr, indptr[first] + edges, "right")) - 1
        last = min(max(last, first + 1), first + edges, n)
        yield first, last
        first = last
