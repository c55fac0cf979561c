"""What parts of a run need of memory and disk, in bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from xnq_dist.core.config import Settings
from xnq_dist.core.inputs import set_scales
from xnq_dist.plan.size import GraphSize, Workers
from xnq_dist.readout.plus.label_features import HOPS, feature_count
from xnq_dist.readout.plus.variants import Variants
from xnq_dist.reservoir.volume import (
    SLACK,
    WORKER,
    Volume,
    disk_need,
    memory_need,
    most_volume,
    tile_memory,
    volume,
)
from xnq_dist.reservoir.weights import units_of_blocks

__all__ = [
    "Supersteps",
    "described_by_plus",
    "products_of",
    "supersteps_of",
    "wanted_partitions",
]


@dataclass(frozen=True)
class Supersteps:
    """What supersteps take of a worker, states in memory and on a disk."""

    moves: Volume
    need: Mapping[str, int]
    """Bytes with states in ``memory`` and on ``disk``."""
    states: str
    """The one of these that is chosen."""
    budget: int
    """Bytes of a row tile of states on a disk."""
    matrix: int
    """Bytes of the recurrent matrix."""
    tile: int
    """Columns exchanged at a time."""


def supersteps_of(
    size: GraphSize, settings: Settings, partitions: int, workers: Workers
) -> Supersteps:
    """What supersteps take, and whether their states go to a disk."""
    wanted, engine = settings.reservoir, settings.exchange.engine
    dim = wanted.dim
    wire = 2 if settings.exchange.dtype == "float16" else 4
    if size.cut is None:
        counts = size.nodes, size.edges, partitions, workers.count
        moves = most_volume(engine, *counts, size.halo)
    else:
        moves = volume(engine, size.cut, workers.count)
    tile = dim if wanted.tile is None else min(dim, wanted.tile)
    # Processors keep states as they are exchanged.
    kept = 4 if workers.device else wire
    at_once = min(workers.threads, -(-partitions // workers.count))
    matrix = dim * dim * 8 if wanted.matrix == "dense" else dim * wanted.nonzeros * 12
    both = matrix + at_once * moves.largest * size.features * 8
    budget = tile_memory(workers.memory, at_once)
    need = {
        "memory": both + memory_need(moves, dim, tile, wire, kept, at_once),
        "disk": both + disk_need(moves, dim, wire, at_once, budget),
    }
    states = settings.exchange.states
    if states == "auto":
        whole_rows = engine == "tasks" and wanted.tile is None and not workers.device
        fits = WORKER + need["memory"] <= workers.memory
        states = "disk" if whole_rows and not fits else "memory"
    return Supersteps(moves, need, states, budget, matrix, tile)


def wanted_partitions(size: GraphSize, settings: Settings, workers: Workers) -> int:
    """Number of partitions when nobody says it.

    One per worker; with states on a disk as many more as make the states of those that
    are worked on at a time fit.
    """
    count = max(1, min(workers.count, size.nodes // 64))
    most = max(count, size.nodes // 64)
    while True:
        steps = supersteps_of(size, settings, count, workers)
        # A little room: partitions are not all of one size.
        fits = WORKER + SLACK * steps.need["disk"] <= workers.memory
        if steps.states == "memory" or fits or count == most:
            return count
        if workers.memory <= WORKER:  # no number of partitions will do
            return count
        more = max(1, count // workers.count // 8)
        count = min(most, count + more * workers.count)


def products_of(settings: Settings) -> int:
    """Values of a state that one new value is made from."""
    wanted = settings.reservoir
    if wanted.matrix != "dense":
        return wanted.nonzeros
    scales = wanted.recurrent_scale
    if settings.method == "xnq+":
        scales, _ = set_scales(settings)
    beside = len(scales) if isinstance(scales, tuple) else 1
    return units_of_blocks(wanted.dim, beside)[0]


def described_by_plus(
    size: GraphSize, settings: Settings, most: int
) -> tuple[int, int, int]:
    """Bytes that a node takes in memory while xnq+ describes it, and on the disk.

    There for the kept rounds, which are removed, and for what is made of them; models
    are fitted to `most` nodes.
    """
    if settings.method != "xnq+":
        return 0, 0, 0
    variants = Variants(settings.readout.folds)
    own = feature_count(size.classes)
    # The nodes that models are fitted to, described once more for each fold, are few.
    features = own + min(1.0, most / max(1, size.nodes)) * variants.folds * own
    kept = HOPS * ((variants.folds + len(variants)) * size.classes + 1)
    return 4 * int(kept + features), 4 * kept, 4 * int(features)
