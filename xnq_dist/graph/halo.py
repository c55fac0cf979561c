"""Partitions with their halos and send lists.

Nodes have two numbers: the canonical index (rank of the id) and the global id after
relabelling, where partition p owns ``offsets[p]:offsets[p + 1]`` and nodes inside it
keep their canonical order.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from xnq_dist.core.arrays import Floats32, Ints, Ints32, offsets_of

__all__ = ["Partition", "PartitionBook", "distinct"]


@dataclass(frozen=True)
class PartitionBook:
    """The partitions of all nodes, as the relabelling that they result in."""

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
        return cls(offsets, order, relabelled)

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


def distinct(rows: NDArray[np.integer]) -> Ints:
    """Ascending row numbers, once each, by a byte for each; `numpy.unique` hashes."""
    seen = np.zeros(rows.max(initial=-1) + 1, np.bool_)
    seen[rows] = True
    return np.flatnonzero(seen)
