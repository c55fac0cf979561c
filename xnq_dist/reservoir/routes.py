"""Which halo rows go from which worker to which: pure functions of the send lists."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from xnq_dist.graph.arrays import Ints
from xnq_dist.graph.halo import Partition

__all__ = ["find_routes", "pick_rows"]


@dataclass(frozen=True)
class Routes:
    """What the partitions of one worker send, and where their halo rows come from."""

    sends: Mapping[int, Mapping[str, Ints]]
    """Owned partition -> other worker -> rows that it needs, ascending, once each."""
    arrivals: Mapping[int, int]
    """Partition of another worker -> rows of the block that comes from it."""
    picks: Mapping[int, Mapping[int, Ints]]
    """Owned partition -> owner of halo rows, ascending -> their places: in the block
    that arrives, or in the owner's states where the owner is on this worker."""

    @property
    def rows_sent(self) -> int:
        """Ints that leave the worker in one superstep."""
        return sum(len(rows) for to in self.sends.values() for rows in to.values())


def find_routes(
    partitions: Mapping[int, Partition],
    offsets: Sequence[int],
    placement: Sequence[str],
) -> Routes:
    """The routes of the worker that holds these partitions.

    A row goes once to a worker however many of its partitions need it. Both ends find
    the same block by themselves, since send lists mirror halos. `offsets`: global id of
    each partition's first node, (P + 1,); `placement`: worker of each partition, (P,).
    """
    sends: dict[int, dict[str, Ints]] = {}
    wanted: dict[int, dict[int, Ints]] = {}
    for number, partition in partitions.items():
        lists: dict[str, list[Ints]] = {}
        for reader, worker in enumerate(placement):
            rows = _part(partition.send_rows, partition.send_offsets, reader)
            if reader not in partitions and len(rows):
                lists.setdefault(worker, []).append(rows)
        sends[number] = {worker: _union(found) for worker, found in lists.items()}
        for owner in range(len(placement)):
            rows = _part(partition.halo, partition.halo_offsets, owner)
            if len(rows):
                wanted.setdefault(owner, {})[number] = rows - offsets[owner]
    arrivals: dict[int, int] = {}
    picks: dict[int, dict[int, Ints]] = {number: {} for number in partitions}
    for owner in sorted(wanted):
        block = None
        if owner not in partitions:
            block = _union(list(wanted[owner].values()))
            arrivals[owner] = len(block)
        for number, rows in wanted[owner].items():
            picks[number][owner] = rows if block is None else block.searchsorted(rows)
    return Routes(sends, arrivals, picks)


def pick_rows(
    picks: Ints, block: NDArray[np.floating], columns: slice, out: NDArray[np.floating]
) -> None:
    """Ints `picks` of a block, shape (n,), into ``out``, (n, w), in its precision."""
    whole = columns.start == 0 and columns.stop == block.shape[1]
    if whole and block.dtype == out.dtype:
        # Without a copy in between; indices are in range, so nothing is clipped.
        np.take(block, picks, 0, out, "clip")
    else:
        out[...] = block[picks, columns]


def _part(rows: NDArray[np.integer], offsets: Ints, number: int) -> Ints:
    return rows[offsets[number] : offsets[number + 1]].astype(np.int64)


def _union(lists: Sequence[Ints]) -> Ints:
    return np.unique(np.concatenate(lists))
