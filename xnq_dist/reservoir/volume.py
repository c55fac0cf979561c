"""Volume of the halo exchange and its memory, as pure functions of counts.

With the engine ``tasks`` a partition's complete boundary block is sent to every other
worker with a reader; with ``spmd`` a row is sent once to each worker that needs it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from xnq_dist.core.arrays import Floats, Ints
from xnq_dist.core.need import PartitionCounts
from xnq_dist.graph.needs import random_boundary, random_halo
from xnq_dist.reservoir.context import place_on

__all__ = [
    "GROUP",
    "SLACK",
    "WORKER",
    "Volume",
    "choose_engine",
    "disk_need",
    "disk_traffic",
    "max_volume",
    "memory_need",
    "sums_columns",
    "sums_memory",
    "tile_memory",
    "volume",
]

WORKER = 500 * 2**20
"""Bytes of a worker process with its libraries and compiled kernels loaded (527 MiB in
all on Cora)."""
Counts = Ints | Floats

GROUP = 32 << 20
"""Bytes of states written to or read from a table at a time."""
MIN_TILE, MAX_TILE = 8 << 20, 1 << 30
"""Minimum and maximum bytes of a row tile of states on a disk."""
SLACK = 1.1
"""Assumed largest partition over the mean, before partitioning."""


SUMS_SHARE = 0.75
"""Share of a worker's remaining memory for sums over neighbours."""
MANY = 16
"""Partitions from which ``exchange.engine = auto`` is ``spmd``. Scheduler and client
spend 5 instead of 680 ms a superstep with 128 partitions."""


@dataclass(frozen=True)
class Volume:
    """Rows of states that supersteps on several workers hold and exchange."""

    moved: int
    """Rows exchanged between all workers in one superstep."""
    held: int
    """Maximum rows of sent and received blocks that one worker holds at a time."""
    picked: int
    """Maximum halo rows of a partition, in local order."""
    owned: int
    """Maximum nodes of one worker."""
    largest: int
    """Maximum nodes of one partition."""
    edges: int
    """Maximum edges of one worker."""
    exact: bool
    """Whether `moved` is exact instead of an upper bound."""


def choose_engine(engine: str, partitions: int, on_device: bool = False) -> str:
    """The engine ``tasks`` or ``spmd`` for a setting that may be ``auto``."""
    if engine != "auto":
        return engine
    return "spmd" if partitions >= MANY and not on_device else "tasks"


def volume(engine: str, counts: PartitionCounts, workers: int) -> Volume:
    """The volume of a known partitioning, with the engines' placement on workers.

    With ``spmd`` several partitions of a worker may need the same rows: then `moved` is
    an upper bound, unless `PartitionCounts.needed` is known.
    """
    at = place_on(counts.edges, workers)
    sizes: Ints = np.asarray(counts.halo_sizes, np.int64)
    rows: Ints = np.asarray(counts.boundary, np.int64)
    arriving, sent, exact = (
        np.zeros(workers, np.int64),
        np.zeros(workers, np.int64),
        True,
    )
    for worker in range(workers):
        local = at == worker
        received = sizes[:, local].sum(axis=1)
        received[local] = 0
        if engine == "spmd" and counts.needed is not None:
            received = np.asarray(counts.needed, np.int64)[:, worker]
        elif engine == "spmd":
            readers = np.count_nonzero(sizes[:, local], axis=1)
            exact &= bool((readers[~local] <= 1).all())
            received = np.minimum(received, rows)
        else:
            received = np.where(received > 0, rows, 0)
        arriving[worker] = received.sum()
        if engine == "spmd":
            np.add.at(sent, at, received)
        else:
            sent[worker] = rows[local].sum()
    return Volume(
        int(arriving.sum()),
        _held(engine, sent, arriving, len(at) > workers),
        int(sizes.sum(axis=0).max(initial=0)),
        int(np.bincount(at, counts.owned, workers).max(initial=0)),
        max(counts.owned),
        int(np.bincount(at, counts.edges, workers).max(initial=0)),
        exact,
    )


def max_volume(
    engine: str,
    nodes: int,
    edges: int,
    partitions: int,
    workers: int,
    halo: Sequence[int] | None = None,
) -> Volume:
    """Upper bound before partitioning: the volume of a random partitioning.

    Better partitionings stay below it. All degrees are assumed equal to their mean,
    which gives an upper bound because both counts are concave in the degree (Jensen).
    `halo`: halo rows of each partition, if only these are known.
    """
    per_worker = -(-partitions // workers)
    busy = min(workers, partitions)
    largest = int(nodes / partitions * SLACK)
    max_edges = int(edges / partitions * SLACK)
    if halo is None:
        picked = random_halo(nodes, edges, partitions) // partitions
        sent = random_boundary(nodes, edges, partitions)
        moved = sent * (busy - 1)
        if engine == "spmd":
            # Workers act as partitions: a row is sent once to each.
            sent = moved = random_halo(nodes, edges, busy)
    else:
        picked, sent, moved = max(halo), min(nodes, sum(halo)), sum(halo)
    counts = np.array([sent / busy]), np.array([moved / busy])
    held = _held(engine, *counts, partitions > workers)
    owned, on_worker = per_worker * largest, per_worker * max_edges
    return Volume(moved, held, picked, owned, largest, on_worker, False)


def tile_memory(limit: int, threads: int) -> int:
    """Bytes of a task's row tile: its share of half of a worker's remaining memory.

    `threads`: tasks that run in the worker in parallel.
    """
    return min(MAX_TILE, max(MIN_TILE, (limit - WORKER) // 2 // threads))


def memory_need(
    moves: Volume, dim: int, columns: int, wire: int, kept: int, at_once: int
) -> int:
    """Bytes of a worker's supersteps with states in memory, without the input drive.

    `columns`: units exchanged at a time, of `dim`. `wire`, `kept`: bytes of a value as
    exchanged and as stored. `at_once`: partitions processed in parallel.
    """
    # States before and after; with tiles also a copy that is assembled from the tiles.
    # Halo rows exist as blocks and in local order.
    states = moves.owned * dim * (2 * kept if columns == dim else 8 + kept)
    halo = (moves.held + at_once * moves.picked) * wire
    return states + halo * columns + _topology(moves)


def disk_need(
    moves: Volume, dim: int, stored: int, wire: int, at_once: int, budget: int
) -> int:
    """Bytes of a worker's supersteps with states on a disk and tiles of `budget`.

    `stored`: bytes of a value of the input drive, 0 if it is computed.
    """
    sources, rows = moves.largest + moves.picked, moves.largest
    tile = min(budget, dim * (sources * wire + rows * (stored + wire)))
    # A partition's last states are completely in memory while its table is written.
    written = rows * dim * wire + 2 * min(GROUP, rows * dim * 4)
    return at_once * max(tile, written) + _topology(moves)


def disk_traffic(
    nodes: int,
    edges: int,
    halo: int,
    partitions: int,
    dim: int,
    stored: int,
    wire: int,
    budget: int,
) -> int:
    """Maximum bytes of states and input drive read and written in one superstep.

    Each row tile reads its distinct in-neighbours once. `stored` as in `disk_need`.
    """
    column = (nodes + halo) * wire + nodes * (stored + wire)
    tiles = -(-column * dim // (budget * partitions))
    rows = min(tiles * (nodes + halo), max(edges, nodes + halo if tiles == 1 else 0))
    return dim * (rows * wire + nodes * (stored + wire))


def sums_memory(columns: int, moves: Volume, at_once: int) -> int:
    """Bytes of a worker's rounds of sums over neighbours, of values in float32.

    `at_once`: partitions processed in parallel.
    """
    # Values before and after a round; halo rows as blocks and in local order.
    rows = 2 * moves.owned + moves.held + at_once * moves.picked
    return 4 * columns * rows + _topology(moves)


def sums_columns(moves: Volume, at_once: int, memory: int) -> int:
    """Columns of sums over neighbours that fit into a worker's memory, at least one."""
    fixed = sums_memory(0, moves, at_once)
    column = max(1, sums_memory(1, moves, at_once) - fixed)
    return max(int(SUMS_SHARE * (memory - WORKER - fixed)) // column, 1)


def _topology(moves: Volume) -> int:
    return moves.edges * 8 + moves.owned * 16 + moves.picked * 16


def _held(engine: str, sent: Counts, arriving: Counts, several: bool) -> int:
    """Maximum rows of blocks that a worker holds.

    With ``tasks`` a worker's blocks stay until their last reader has its halo rows; if
    readers have several partitions, this may be after the next blocks were published.
    With ``spmd`` a message to each other worker may be under way, at most all that is
    sent, and senders may be one superstep ahead of the reader.
    """
    if engine == "spmd":
        return int(np.max(sent + 2 * arriving, initial=0))
    return int(np.max((2 if several else 1) * sent + arriving, initial=0))
