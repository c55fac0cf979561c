"""Memory and disk of the stage ``embeddings``."""

from __future__ import annotations

from dataclasses import dataclass

from xnq_dist.core.need import Need, RunSize
from xnq_dist.core.records import METHODS
from xnq_dist.core.settings import Settings
from xnq_dist.core.stages import set_scales
from xnq_dist.reservoir.context import number_of_supersteps
from xnq_dist.reservoir.descriptors import HOPS, widths
from xnq_dist.reservoir.device import COLUMNS, device_bytes
from xnq_dist.reservoir.message_passing import KEPT, checkpoint_interval
from xnq_dist.reservoir.spectrum import EXTRA, SPARE
from xnq_dist.reservoir.superstep import drive_width
from xnq_dist.reservoir.volume import (
    WORKER,
    Volume,
    max_volume,
    memory_need,
    volume,
)
from xnq_dist.reservoir.weights import NONZEROS, units_of_blocks

__all__ = [
    "EMBEDDING_ITEM",
    "Supersteps",
    "blocks_of",
    "moves_of",
    "needs",
    "supersteps_of",
]

EMBEDDING_ITEM = 4
"""Bytes of a value of the embeddings' table."""

EMBEDDER = 400 * 2**20
"""Bytes of a worker before it loads the readout's libraries; `WORKER` includes them
(measured: 306 to 385 MiB with states in memory)."""


@dataclass(frozen=True)
class Supersteps:
    """Needs of the supersteps."""

    worker: int
    """Bytes of one worker's memory, without its libraries."""
    device: int
    """Bytes of one worker's GPU; 0: the work runs on CPUs."""
    moves: Volume
    turns: int
    """Runs of independent reservoirs, one after the other; 1: all together."""
    units: int
    """Units that run together."""
    wire: int
    """Bytes of a stored and exchanged value."""
    length: int
    """Number of supersteps of a run."""
    every: int
    """Supersteps between two checkpoints."""


def moves_of(size: RunSize) -> Volume:
    """Rows that workers hold and exchange."""
    workers = size.workers.count
    if size.partition_counts is not None:
        return volume(size.partition_counts, workers)
    return max_volume(size.nodes, size.edges, size.partitions, workers)


def supersteps_of(size: RunSize, settings: Settings) -> Supersteps:
    """Needs of the supersteps.

    Independent reservoirs run together, or, where these need more memory of a worker
    or its GPU than there is, one after the other.
    """
    units = _units(settings)
    together = _supersteps(size, settings, settings.reservoir.dim, 1)
    fits = EMBEDDER + together.worker <= size.workers.memory
    if len(units) == 1 or (fits and together.device <= size.workers.device):
        return together
    return _supersteps(size, settings, units[0], len(units))


def _units(settings: Settings) -> list[int]:
    """Units of each of the independent reservoirs, the largest first."""
    scales = settings.reservoir.recurrent_scale
    if not METHODS[settings.method].searches:
        scales, _ = set_scales(settings)
    count = len(scales) if isinstance(scales, tuple) else 1
    return units_of_blocks(settings.reservoir.dim, count)


def _supersteps(
    size: RunSize, settings: Settings, units: int, turns: int
) -> Supersteps:
    reservoir, moves = settings.reservoir, moves_of(size)
    wire = 2 if settings.exchange.dtype == "float16" else 4
    dense = reservoir.matrix == "dense"
    matrix = units * units * 8 if dense else units * NONZEROS * 12
    # Features of the partition that is loaded.
    features = moves.largest * size.features * 8
    on_device = bool(size.workers.device)
    width = units if on_device else drive_width(size.features, units)
    states = memory_need(moves, units, wire, 1)
    length = number_of_supersteps(settings, size.diameter)
    device = 0
    if on_device:
        counts = moves.largest, moves.picked, moves.edges / size.per_worker
        device = device_bytes(*counts, units, matrix, size.per_worker)
    products = _units(settings)[0] if dense else NONZEROS
    every = checkpoint_interval(
        settings.checkpoint.every, size.nodes, size.edges, units, products, length
    )
    return Supersteps(
        worker=matrix + features + moves.owned * width * 4 + states,
        device=device,
        moves=moves,
        turns=turns,
        units=units,
        wire=wire,
        length=length,
        every=every,
    )


def needs(size: RunSize, settings: Settings) -> Need:
    """Needs of supersteps, checkpoints and the embedding's other blocks."""
    steps = supersteps_of(size, settings)
    dim, blocks = settings.reservoir.dim, blocks_of(size, settings)
    table = size.nodes * sum(blocks) * EMBEDDING_ITEM
    # The last checkpoints are kept until the next one is complete, and while the table
    # is written. So are the final states of reservoirs that run in turn.
    number = (steps.length - 1) // steps.every
    checkpoint = size.nodes * steps.units * steps.wire
    checkpoints = min(KEPT + 1, number) * checkpoint
    last = min(checkpoints, KEPT * checkpoint)
    if steps.turns > 1:
        last = size.nodes * dim * steps.wire
        checkpoints += last
    # Files of the descriptors stay until the table is written; in the spectrum's
    # iteration there are three sets of vectors at a time.
    descriptors = rounds = sums_peak = sums_device = 0
    if len(blocks) > 1:
        columns_each = blocks[1] // (HOPS + 1) + 1
        descriptors = rounds = size.nodes * 4 * (blocks[1] + HOPS + 1)
        if len(blocks) > 2:
            vectors = blocks[2] + SPARE + EXTRA
            one = size.nodes * 4 * vectors
            descriptors, rounds = descriptors + one, rounds + 3 * one
            columns_each = max(columns_each, vectors)
        sums_peak = WORKER + memory_need(steps.moves, columns_each, 4, size.lanes)
        if size.workers.device:
            # A few columns at a time.
            rows = 2 * steps.moves.largest + steps.moves.picked
            topology = 8 * (steps.moves.owned + steps.moves.edges)
            sums_device = topology + size.lanes * rows * COLUMNS * 4
    return Need(
        worker=max(EMBEDDER + steps.worker, sums_peak),
        device=max(steps.device, sums_device),
        disk=max(descriptors + table + last, descriptors + checkpoints, rounds),
        kept=table,
    )


def blocks_of(size: RunSize, settings: Settings) -> tuple[int, ...]:
    """Columns of each block of the embedding."""
    dim = settings.reservoir.dim
    if not METHODS[settings.method].second_stage:
        return (dim,)
    more = widths(size.nodes, size.features, not settings.input.directed)
    return tuple(width for width in (dim, *more) if width)
