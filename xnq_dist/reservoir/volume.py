"""How much the halo exchange moves and holds, by the engine: pure functions of counts.

With the engine ``tasks`` a partition's whole boundary block goes to every other worker
that has a reader of it; with ``spmd`` a row goes once to each worker that needs it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from xnq_dist.core.need import Cut
from xnq_dist.graph.arrays import Floats, Ints
from xnq_dist.graph.needs import random_boundary, random_halo
from xnq_dist.reservoir.context import place_on

__all__ = [
    "GROUP",
    "SLACK",
    "WORKER",
    "Volume",
    "disk_need",
    "disk_traffic",
    "memory_need",
    "most_volume",
    "tile_memory",
    "volume",
]

WORKER = 500 * 2**20
"""Bytes of a worker process with its libraries and compiled kernels loaded (527 MiB in
all on Cora)."""
Counts = Ints | Floats

GROUP = 32 << 20
"""Bytes of states written to a table, and read back from it, at a time."""
LEAST_TILE, MOST_TILE = 8 << 20, 1 << 30
"""Bytes that a row tile of states on a disk may take, whatever the limit."""
SLACK = 1.1
"""Largest partition over the mean, while the partitioning is not known."""


@dataclass(frozen=True)
class Volume:
    """What supersteps on some workers hold and exchange, in rows of states."""

    moved: int
    """Rows that cross between workers in one superstep, all together."""
    held: int
    """Most rows of blocks that one worker holds at a time, its own and those that it
    received."""
    picked: int
    """Most halo rows of a partition, which are put in local order."""
    owned: int
    """Most nodes of one worker."""
    largest: int
    """Most nodes of one partition."""
    edges: int
    """Most edges of one worker."""
    exact: bool
    """Whether `moved` is what will cross; else it is at most that."""


def volume(engine: str, cut: Cut, workers: int) -> Volume:
    """The volume of a known partitioning, placed as the engines place it.

    With ``spmd`` several readers on one worker may want the same rows: then `moved` is
    an upper bound, unless `Cut.needed` is known.
    """
    at = place_on(cut.edges, workers)
    sizes: Ints = np.asarray(cut.halo_sizes, np.int64)
    rows: Ints = np.asarray(cut.boundary, np.int64)
    arriving, own, exact = (
        np.zeros(workers, np.int64),
        np.zeros(workers, np.int64),
        True,
    )
    for worker in range(workers):
        there = at == worker
        wanted = sizes[:, there].sum(axis=1)
        wanted[there] = 0
        if engine == "spmd" and cut.needed is not None:
            wanted = np.asarray(cut.needed, np.int64)[:, worker]
        elif engine == "spmd":
            readers = np.count_nonzero(sizes[:, there], axis=1)
            exact &= bool((readers[~there] <= 1).all())
            wanted = np.minimum(wanted, rows)
        else:
            wanted = np.where(wanted > 0, rows, 0)
        arriving[worker] = wanted.sum()
        own[worker] = rows[there].sum()
    return Volume(
        int(arriving.sum()),
        _held(engine, own, arriving),
        int(sizes.sum(axis=0).max(initial=0)),
        int(np.bincount(at, cut.owned, workers).max(initial=0)),
        max(cut.owned),
        int(np.bincount(at, cut.edges, workers).max(initial=0)),
        exact,
    )


def most_volume(
    engine: str,
    nodes: int,
    edges: int,
    partitions: int,
    workers: int,
    halo: Sequence[int] | None = None,
) -> Volume:
    """An upper bound before the graph is partitioned: what a random partitioning gives.

    Better ones stay below it. Degrees are taken for their mean, which bounds what any
    degrees of that mean give: both counts are concave in the degree (Jensen). `halo`:
    rows of each partition, where they are known and no more is.
    """
    per_worker = -(-partitions // workers)
    busy = min(workers, partitions)
    largest = int(nodes / partitions * SLACK)
    most = int(edges / partitions * SLACK)
    if halo is None:
        picked = random_halo(nodes, edges, partitions) // partitions
        own = random_boundary(nodes, edges, partitions)
        moved = own * (busy - 1)
        if engine == "spmd":
            # A worker is to another what a partition is: a row goes once to each.
            moved = random_halo(nodes, edges, busy)
    else:
        picked, own, moved = max(halo), min(nodes, sum(halo)), sum(halo)
    counts = np.array([own / busy]), np.array([moved / busy])
    held = _held(engine, *counts)
    owned, on_worker = per_worker * largest, per_worker * most
    return Volume(moved, held, picked, owned, largest, on_worker, False)


def tile_memory(limit: int, threads: int) -> int:
    """Bytes that a task's row tile may take: half of what a worker's limit leaves.

    `threads`: tasks that may run in the worker at a time.
    """
    return min(MOST_TILE, max(LEAST_TILE, (limit - WORKER) // 2 // threads))


def memory_need(
    moves: Volume, dim: int, columns: int, wire: int, kept: int, at_once: int
) -> int:
    """Bytes that a worker's supersteps take, states in memory.

    `columns`: units exchanged at a time, of `dim`. `wire`, `kept`: bytes of a value
    that is exchanged, and kept. `at_once`: partitions worked on at a time.
    """
    # States before and after, the input drive; with tiles one more copy is put
    # together from the tiles. Halo rows exist as blocks and in local order.
    states = moves.owned * dim * (4 + 2 * kept if columns == dim else 12 + kept)
    halo = moves.held * wire + at_once * moves.picked * 4
    return states + halo * columns + _topology(moves)


def disk_need(moves: Volume, dim: int, wire: int, at_once: int, budget: int) -> int:
    """Bytes that a worker's supersteps take, states on a disk, tiles of `budget`."""
    sources, rows = moves.largest + moves.picked, moves.largest
    tile = min(budget, dim * (sources * wire + rows * (4 + wire)))
    # A partition's last states are whole in memory while its table is written.
    written = rows * dim * wire + 2 * min(GROUP, rows * dim * 4)
    return at_once * max(tile, written) + _topology(moves)


def disk_traffic(
    nodes: int, edges: int, halo: int, partitions: int, dim: int, wire: int, budget: int
) -> int:
    """Bytes of states and input drive read and written in one superstep, at most.

    Each row tile reads its distinct in-neighbours once.
    """
    whole = (nodes + halo) * wire + nodes * (4 + wire)
    tiles = -(-whole * dim // (budget * partitions))
    rows = min(tiles * (nodes + halo), max(edges, nodes + halo if tiles == 1 else 0))
    return dim * (rows * wire + nodes * (4 + wire))


def _topology(moves: Volume) -> int:
    return moves.edges * 8 + moves.owned * 16 + moves.picked * 16


def _held(engine: str, own: Counts, arriving: Counts) -> int:
    """Rows of blocks that the fullest worker holds.

    With ``tasks`` its own blocks stay until their last reader is done, while the next
    ones are published; with ``spmd`` own rows are cut as they are sent, a few at a
    time, and senders may be one superstep ahead of the reader.
    """
    if engine == "spmd":
        return int(np.max(2 * arriving, initial=0))
    return int(np.max(2 * own + arriving, initial=0))
