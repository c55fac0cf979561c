"""Routes of halo rows between workers, as pure functions of the send lists."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from xnq_dist.core.arrays import Ints
from xnq_dist.graph.halo import Partition, distinct

__all__ = ["find_routes"]


@dataclass(frozen=True)
class Routes:
    """Rows that one worker's partitions send, and the sources of their halo rows."""

    sends: Mapping[int, Mapping[str, Ints]]
    """Rows, ascending, that each other worker needs from each owned partition."""
    arrivals: Mapping[int, int]
    """Number of rows of the block from each partition of another worker."""
    picks: Mapping[int, Mapping[int, Ints]]
    """Positions of the halo rows of each owned partition, by owner, ascending: in the
    received block, or in the owner's states if the owner is on this worker."""


def find_routes(
    partitions: Mapping[int, Partition],
    offsets: Sequence[int],
    placement: Sequence[str],
) -> Routes:
    """The routes of the worker that holds these partitions.

    A row is sent once to a worker, even if several of its partitions need it. Both ends
    derive the same block, since send lists mirror halos. `offsets`: global id of each
    partition's first node, (P + 1,); `placement`: worker of each partition, (P,).
    """
    sends: dict[int, dict[str, Ints]] = {}
    needed: dict[int, dict[int, Ints]] = {}
    for number, partition in partitions.items():
        lists: dict[str, list[Ints]] = {}
        for reader in np.flatnonzero(np.diff(partition.send_offsets)).tolist():
            if reader not in partitions:
                rows = _part(partition.send_rows, partition.send_offsets, reader)
                lists.setdefault(placement[reader], []).append(rows)
        sends[number] = {to: distinct(np.concatenate(it)) for to, it in lists.items()}
        for owner in np.flatnonzero(np.diff(partition.halo_offsets)).tolist():
            rows = _part(partition.halo, partition.halo_offsets, owner)
            needed.setdefault(owner, {})[number] = rows - offsets[owner]
    arrivals: dict[int, int] = {}
    picks: dict[int, dict[int, Ints]] = {number: {} for number in partitions}
    for owner in sorted(needed):
        block = None
        if owner not in partitions:
            block = distinct(np.concatenate(list(needed[owner].values())))
            arrivals[owner] = len(block)
        for number, rows in needed[owner].items():
            picks[number][owner] = rows if block is None else block.searchsorted(rows)
    return Routes(sends, arrivals, picks)


def _part(rows: NDArray[np.integer], offsets: Ints, number: int) -> Ints:
    return rows[offsets[number] : offsets[number + 1]].astype(np.int64)
