"""Partitions with their halos and send lists: pure functions of arrays.

Nodes have two numbers: the canonical index (rank of the id) and the global id after
relabelling, where partition p owns ``offsets[p]:offsets[p + 1]`` and nodes inside it
keep their canonical order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from xnq_dist.core.arrays import Bools, Floats32, Ints, Ints32, offsets_of
from xnq_dist.core.threads import map_threads

__all__ = [
    "Partition",
    "PartitionBook",
    "build_partition",
    "distinct",
    "find_halo",
    "send_lists",
    "split_rows",
]

PIECE = 1 << 18
"""Edges that a thread processes at a time."""


@dataclass(frozen=True)
class PartitionBook:
    """Partition of every node, and the relabelling that results."""

    part: Ints32
    """Partition of each canonical index, shape (N,)."""
    offsets: Ints
    """Partition p owns global ids offsets[p]:offsets[p + 1], shape (P + 1,)."""
    order: Ints32
    """Canonical index of each global id, shape (N,)."""
    relabelled: Ints32
    """Global id of each canonical index, shape (N,)."""

    @classmethod
    def of(cls, part: Ints32, partitions: int) -> PartitionBook:
        """The book for a partition of every node, shape (N,)."""
        sizes = np.bincount(part, minlength=partitions)
        offsets = offsets_of(sizes)
        order = np.argsort(part, kind="stable").astype(np.int32)
        relabelled = np.empty(len(part), np.int32)
        relabelled[order] = np.arange(len(part), dtype=np.int32)
        return cls(part, offsets, order, relabelled)

    @property
    def partitions(self) -> int:
        """Number of partitions, P."""
        return len(self.offsets) - 1

    def owned(self, number: int) -> Ints32:
        """Canonical indices of a partition's nodes, ascending."""
        return self.order[self.offsets[number] : self.offsets[number + 1]]


@dataclass(frozen=True)
class Partition:
    """One partition: in-neighbours of its nodes by local row, halo and send lists.

    Local rows are the owned nodes, then the halo grouped by owner, ascending, in the
    owner's row order. A row's neighbours are in canonical order of the source.
    """

    number: int
    indptr: Ints
    """Shape (n_owned + 1,)."""
    indices: Ints32
    """Local rows, shape (n_edges,)."""
    weights: Floats32 | None
    """Shape (n_edges,); None: all 1."""
    halo: Ints
    """Global ids of the halo rows, ascending, shape (n_halo,)."""
    halo_offsets: Ints
    """Owner q's rows are halo[halo_offsets[q]:halo_offsets[q + 1]], shape (P + 1,)."""
    send_rows: Ints32
    """Owned rows that other partitions read, reader by reader."""
    send_offsets: Ints
    """Reader q reads send_rows[send_offsets[q]:send_offsets[q + 1]], in the order of
    its halo, shape (P + 1,)."""

    @property
    def n_owned(self) -> int:
        """Number of nodes that the partition computes."""
        return len(self.indptr) - 1

    @property
    def n_halo(self) -> int:
        """Number of halo rows: copies of remote in-neighbours."""
        return len(self.halo)

    @property
    def n_edges(self) -> int:
        """Number of edges into owned nodes."""
        return len(self.indices)

    @property
    def boundary_rows(self) -> Ints32:
        """Owned rows that any other partition reads, ascending, once each."""
        return distinct(self.send_rows).astype(np.int32)


def distinct(rows: NDArray[np.integer]) -> Ints:
    """Ascending row numbers, once each, by a byte for each; `numpy.unique` hashes."""
    seen = np.zeros(rows.max(initial=-1) + 1, np.bool_)
    seen[rows] = True
    return np.flatnonzero(seen)


def find_halo(sources: Ints32, book: PartitionBook, number: int) -> tuple[Ints, Ints]:
    """Global ids of a partition's halo, ascending, and the offset of each owner's.

    `sources`: canonical index of the source of every edge into the partition.
    """
    # Mark nodes instead of sorting the sources: there may be many times N edges.
    is_halo = np.zeros(len(book.part), np.bool_)
    map_threads(lambda some: mark(some, is_halo), _pieces(sources))
    is_halo[book.owned(number)] = False
    halo = np.sort(book.relabelled[is_halo]).astype(np.int64)
    return halo, np.searchsorted(halo, book.offsets).astype(np.int64)


def send_lists(segments: Sequence[Ints], first: int) -> tuple[Ints32, Ints]:
    """`send_rows` and `send_offsets` of the owner whose first global id is `first`.

    `segments`: for each reader the owner's part of its halo, global ids.
    """
    sizes = [len(segment) for segment in segments]
    offsets = offsets_of(sizes)
    return (np.concatenate(segments) - first).astype(np.int32), offsets


def build_partition(
    number: int,
    indptr: Ints,
    sources: Ints32,
    weights: Floats32 | None,
    book: PartitionBook,
    halo: tuple[Ints, Ints],
    send: tuple[Ints32, Ints],
) -> Partition:
    """A partition from its incoming edges; `halo`: `find_halo`, `send`: `send_lists`.

    Rows and the canonical sources in each are ascending; `sources` becomes the
    partition's `indices`, in place.
    """
    owned = book.owned(number)
    local = np.full(len(book.part), -1, np.int32)
    local[owned] = np.arange(len(owned), dtype=np.int32)
    local[book.order[halo[0]]] = len(owned) + np.arange(len(halo[0]), dtype=np.int32)
    map_threads(lambda some: rename(some, local), _pieces(sources))
    return Partition(number, indptr, sources, weights, *halo, *send)


def _pieces(nodes: Ints32) -> list[Ints32]:
    """Views of some nodes, for a thread each."""
    return [nodes[at : at + PIECE] for at in range(0, len(nodes), PIECE)]


@njit(cache=True, nogil=True)
def mark(nodes: Ints32, marked: Bools) -> None:
    """``marked[nodes] = True``."""
    for i in range(nodes.shape[0]):
        marked[nodes[i]] = True


@njit(cache=True, nogil=True)
def rename(nodes: Ints32, names: Ints32) -> None:
    """``nodes[:] = names[nodes]``."""
    for i in range(nodes.shape[0]):
        nodes[i] = names[nodes[i]]


@njit(cache=True, nogil=True)
def split_rows(
    indptr: Ints, values: NDArray[Any], owner: Ints32, at: Ints, out: NDArray[Any]
) -> None:
    """Copy the values of rows to `out`, grouped by owner, in the order of rows.

    `at` is the next position of each owner in `out`, which is as long as `values`.
    """
    for row in range(indptr.shape[0] - 1):
        place = at[owner[row]]
        for edge in range(indptr[row], indptr[row + 1]):
            out[place] = values[edge]
            place += 1
        at[owner[row]] = place
