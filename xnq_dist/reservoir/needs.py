"""Memory and disk of the stage ``embeddings``."""

from __future__ import annotations

from dataclasses import dataclass, replace

from xnq_dist.core.config import Settings
from xnq_dist.core.inputs import set_scales
from xnq_dist.core.method_records import method_of
from xnq_dist.core.need import Need, RunSize
from xnq_dist.graph.needs import halo_rows
from xnq_dist.reservoir.checkpoint import KEPT, checkpoint_interval
from xnq_dist.reservoir.descriptors import HOPS, widths
from xnq_dist.reservoir.device import device_bytes
from xnq_dist.reservoir.drive import drive_width
from xnq_dist.reservoir.length import MAX_STEPS, length_of
from xnq_dist.reservoir.propagation import COLUMNS
from xnq_dist.reservoir.spectrum import DOUBLE_ROUNDS, EXTRA, SPARE, groups_of
from xnq_dist.reservoir.volume import (
    WORKER,
    Volume,
    choose_engine,
    disk_need,
    disk_traffic,
    max_volume,
    memory_need,
    sums_columns,
    sums_memory,
    tile_memory,
    volume,
)
from xnq_dist.reservoir.weights import units_of_blocks

__all__ = [
    "NeighbourSums",
    "Supersteps",
    "block_sums",
    "blocks_of",
    "embedding_item",
    "moves_of",
    "needs",
    "supersteps_of",
]

EMBEDDER = 400 * 2**20
"""Bytes of a worker before it loads the readout's libraries; `WORKER` includes them
(measured: 306 to 385 MiB with states in memory)."""


@dataclass(frozen=True)
class Supersteps:
    """Needs of the supersteps."""

    engine: str
    """The engine, ``tasks`` or ``spmd``."""
    states: str
    """Location of states between supersteps, ``memory`` or ``disk``."""
    worker: int
    """Bytes of one worker's memory, without its libraries."""
    moves: Volume
    matrix: int
    """Bytes of the recurrent matrix."""
    tile: int
    """Columns exchanged at a time."""
    wire: int
    """Bytes of an exchanged value."""
    length: int
    """Number of supersteps."""
    files: int = 0
    """Bytes of files of states and input drives; 0: in memory."""
    traffic: int = 0
    """Maximum bytes read from and written to them in one superstep."""


@dataclass(frozen=True)
class NeighbourSums:
    """Rounds of sums over neighbours, with `width` values for each node."""

    rounds: int
    width: int


def _engine(size: RunSize, settings: Settings) -> str:
    on_device = bool(size.workers.device)
    return choose_engine(settings.exchange.engine, size.partitions, on_device)


def moves_of(size: RunSize, settings: Settings) -> Volume:
    """Rows that workers hold and exchange with states in memory."""
    engine, workers = _engine(size, settings), size.workers.count
    if size.partition_counts is not None:
        return volume(engine, size.partition_counts, workers)
    counts = size.nodes, size.edges, size.partitions, workers
    return max_volume(engine, *counts, size.halo)


def supersteps_of(size: RunSize, settings: Settings) -> Supersteps:
    """Needs of supersteps, and whether their states are kept on a disk."""
    steps, states = _in_memory(size, settings), settings.exchange.states
    if states == "auto":
        fits = WORKER + steps.worker <= size.workers.memory
        set_otherwise = settings.exchange.engine == "spmd" or settings.reservoir.tile
        states = "memory"
        if not (fits or set_otherwise or size.workers.device):
            states = "disk"
    return steps if states == "memory" else _on_disk(steps, size, settings)


def _in_memory(size: RunSize, settings: Settings) -> Supersteps:
    """Needs of supersteps with states in memory."""
    reservoir, moves = settings.reservoir, moves_of(size, settings)
    dim, wire = reservoir.dim, 2 if settings.exchange.dtype == "float16" else 4
    tile = dim if reservoir.tile is None else min(dim, reservoir.tile)
    dense = reservoir.matrix == "dense"
    matrix = dim * dim * 8 if dense else dim * reservoir.nonzeros * 12
    drive = moves.owned * _drive_width(size, settings) * 4
    states = memory_need(moves, dim, tile, wire, _kept_item(wire, size), size.lanes)
    length: int | str = reservoir.supersteps
    if length == "auto":
        length = MAX_STEPS if size.diameter is None else length_of(size.diameter)
    return Supersteps(
        engine=_engine(size, settings),
        states="memory",
        worker=matrix + _features(size, moves) + drive + states,
        moves=moves,
        matrix=matrix,
        tile=tile,
        wire=wire,
        length=int(length),
    )


def _on_disk(steps: Supersteps, size: RunSize, settings: Settings) -> Supersteps:
    """Needs of the same supersteps with states on a disk."""
    dim, moves, lanes = settings.reservoir.dim, steps.moves, size.lanes
    width, budget = (
        _drive_width(size, settings),
        tile_memory(size.workers.memory, lanes),
    )
    stored = 4 * (width == dim)
    drive = 0 if stored else moves.owned * width * 4
    states = disk_need(moves, dim, stored, steps.wire, lanes, budget)
    counts = size.nodes, size.edges, halo_rows(size), size.partitions
    return replace(
        steps,
        engine="tasks",
        states="disk",
        worker=steps.matrix + _features(size, moves) + drive + states,
        moves=replace(moves, moved=0, held=0, exact=True),
        files=size.nodes * dim * (stored + 2 * steps.wire),
        traffic=disk_traffic(*counts, dim, stored, steps.wire, budget),
    )


def _features(size: RunSize, moves: Volume) -> int:
    """Bytes of the features that tasks read in parallel."""
    return size.lanes * moves.largest * size.features * 8


def _drive_width(size: RunSize, settings: Settings) -> int:
    """Values that a worker keeps of a node's input drive; d' if it is stored."""
    dim = settings.reservoir.dim
    return dim if size.workers.device else drive_width(size.features, dim)


def _kept_item(wire: int, size: RunSize) -> int:
    """Bytes of a stored value of the states; CPUs store them as they are exchanged."""
    return 4 if size.workers.device else wire


def needs(size: RunSize, settings: Settings) -> Need:
    """Needs of supersteps, checkpoints and the embedding's other blocks."""
    steps = supersteps_of(size, settings)
    dim, blocks = settings.reservoir.dim, blocks_of(size, settings)
    columns = sum(blocks)
    table = size.nodes * columns * embedding_item(settings)
    counts = size.nodes, size.edges, dim, _products(settings), steps.length
    every = checkpoint_interval(settings.checkpoint.every, *counts)
    # The last checkpoints are kept until the next one is complete, and while the table
    # is written.
    number = (steps.length - 1) // every
    checkpoint = size.nodes * dim * _kept_item(steps.wire, size)
    checkpoints = min(KEPT + 1, number) * checkpoint
    last = min(checkpoints, KEPT * checkpoint)
    # Files of the descriptors stay until the table is written; in the spectrum's
    # iteration there are three sets of vectors at a time.
    descriptors = rounds = sums_peak = 0
    if len(blocks) > 1:
        moves = moves_of(size, settings)
        columns_each = blocks[1] // (HOPS + 1) + 1
        descriptors = rounds = size.nodes * 4 * (blocks[1] + HOPS + 1)
        if len(blocks) > 2:
            groups = _vector_groups(size, settings, blocks[2])
            one = size.nodes * 4 * (groups[-1].stop + EXTRA * len(groups))
            descriptors, rounds = descriptors + one, rounds + 3 * one
            columns_each = max(columns_each, groups[0].stop + EXTRA)
        sums_peak = WORKER + sums_memory(columns_each, moves, size.lanes)
    # Files of states, in the run directory or in `scratch`, exist while the table is
    # written, except those of one superstep.
    files_here = steps.files if settings.scratch is None else 0
    base = EMBEDDER if steps.states == "memory" else WORKER
    device, _ = device_need(size, settings)
    return Need(
        worker=max(base + steps.worker, sums_peak),
        device=device,
        disk=max(
            descriptors + table + last, descriptors + checkpoints + files_here, rounds
        ),
        kept=table,
        scratch=steps.files - files_here,
    )


def embedding_item(settings: Settings) -> int:
    """Bytes of a value of the embeddings' table."""
    return 2 if settings.embeddings.dtype == "float16" else 4


def device_need(size: RunSize, settings: Settings) -> tuple[int, int]:
    """Bytes of a worker's GPU, and the largest `reservoir.tile` that fits there.

    Both are 0 if the work runs on CPUs; the tile is 0 if none fits.
    """
    limit, reservoir = size.workers.device, settings.reservoir
    if not limit:
        return 0, 0
    steps = supersteps_of(size, settings)
    dim, moves = reservoir.dim, steps.moves
    of_partition = moves.largest, moves.picked, moves.edges / size.per_worker
    item = 2 if reservoir.precision in ("float16", "bfloat16") else 4
    matrix = steps.matrix // 2 if reservoir.matrix == "dense" else steps.matrix

    def streamed(tile: int) -> int:
        """Peak bytes with `tile` columns at a time."""
        resident = size.per_worker if tile == dim else 1
        return resident * device_bytes(*of_partition, dim, tile, matrix, item)

    # Sums over neighbours use a few columns at a time, independent of the tile.
    sums = device_bytes(*of_partition, 2 * COLUMNS, COLUMNS, 0, 4)
    tiles = [2**k for k in range(17) if 2**k < dim and streamed(2**k) <= limit]
    return int(max(streamed(steps.tile), sums)), max(tiles, default=0)


def blocks_of(size: RunSize, settings: Settings) -> tuple[int, ...]:
    """Columns of each block of the embedding."""
    dim = settings.reservoir.dim
    if not method_of(settings.method).descriptors:
        return (dim,)
    more = widths(size.nodes, size.features, not settings.input.directed)
    return tuple(width for width in (dim, more.features, more.spectrum) if width)


def _products(settings: Settings) -> int:
    """Number of values of a state that one new value is computed from."""
    reservoir = settings.reservoir
    if reservoir.matrix != "dense":
        return reservoir.nonzeros
    scales = reservoir.recurrent_scale
    if not method_of(settings.method).searches:
        scales, _ = set_scales(settings)
    blocks = len(scales) if isinstance(scales, tuple) else 1
    return units_of_blocks(reservoir.dim, blocks)[0]


def block_sums(size: RunSize, settings: Settings) -> tuple[NeighbourSums, ...]:
    """Sums over neighbours for the descriptors of xnq+."""
    blocks = blocks_of(size, settings)
    if len(blocks) == 1:
        return ()
    sums = [NeighbourSums(HOPS, blocks[1] // (HOPS + 1) + 1)]
    if len(blocks) > 2:
        for each in _vector_groups(size, settings, blocks[2]):
            width = each.stop - each.start + EXTRA
            sums.append(NeighbourSums(2 * DOUBLE_ROUNDS + 1, width))
    return tuple(sums)


def _vector_groups(size: RunSize, settings: Settings, width: int) -> tuple[slice, ...]:
    """Columns of each of the spectrum's rounds."""
    fit = sums_columns(moves_of(size, settings), size.lanes, size.workers.memory)
    return groups_of(width + SPARE, fit)
