"""Memory, disk and work of the stage ``embeddings``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from xnq_dist.core.config import Settings
from xnq_dist.core.inputs import set_scales
from xnq_dist.core.method_records import method_of
from xnq_dist.core.need import Need, RunSize, Work, added, scaled
from xnq_dist.graph.needs import halo_rows
from xnq_dist.reservoir.checkpoint import KEPT, checkpoint_interval
from xnq_dist.reservoir.descriptors import COMPONENTS, HOPS, RAW, sketch_width, widths
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
    "busiest",
    "embedding_item",
    "load_work",
    "moves_of",
    "needs",
    "reservoir_work",
    "sums_work",
    "supersteps_of",
]

EMBEDDER = 400 * 2**20
"""Bytes of a worker before it loads the readout's libraries; `WORKER` includes them
(measured: 306 to 385 MiB with states in memory)."""


EIGEN = 5.0
"""Time of a matrix's eigenvectors, as a multiple of its factor's and inverse's."""
BLOCK_COPIES = 4
"""Number of copies of a halo row: two to make its block, one on arrival, and one to
local order."""


@dataclass(frozen=True)
class Supersteps:
    """Needs of supersteps on a worker, with states in memory and on a disk."""

    engine: str
    """The engine, ``tasks`` or ``spmd``."""
    moves: Volume
    need: Mapping[str, int]
    """Bytes with states in ``memory`` and on ``disk``."""
    states: str
    """The chosen location of states, ``memory`` or ``disk``."""
    budget: int
    """Bytes of a row tile with states on a disk."""
    matrix: int
    """Bytes of the recurrent matrix."""
    tile: int
    """Columns exchanged at a time."""
    wire: int
    """Bytes of an exchanged value."""
    files: int
    """Bytes of files of states and input drives; 0: in memory."""
    traffic: int
    """Maximum bytes read from and written to them in one superstep."""
    length: int
    """Number of supersteps."""


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
    reservoir, engine = settings.reservoir, _engine(size, settings)
    dim, lanes, workers = reservoir.dim, size.lanes, size.workers
    wire = 2 if settings.exchange.dtype == "float16" else 4
    moves = moves_of(size, settings)
    tile = dim if reservoir.tile is None else min(dim, reservoir.tile)
    dense = reservoir.matrix == "dense"
    matrix = dim * dim * 8 if dense else dim * reservoir.nonzeros * 12
    both = matrix + lanes * moves.largest * size.features * 8
    budget = tile_memory(workers.memory, lanes)
    kept = _kept_item(wire, size)
    width = _drive_width(size, settings)
    stored, drive = 4 * (width == dim), moves.owned * width * 4
    of_disk = dim, stored, wire, lanes, budget
    need = {
        "memory": both + drive + memory_need(moves, dim, tile, wire, kept, lanes),
        "disk": both + (0 if stored else drive) + disk_need(moves, *of_disk),
    }
    states = settings.exchange.states
    if states == "auto":
        chosen = settings.exchange.engine != "spmd" and reservoir.tile is None
        possible = chosen and not workers.device
        fits = WORKER + need["memory"] <= workers.memory
        states = "disk" if possible and not fits else "memory"
    files = traffic = 0
    if states == "disk":
        engine = "tasks"
        files = size.nodes * dim * (stored + 2 * wire)
        counts = size.nodes, size.edges, halo_rows(size), size.partitions
        traffic = disk_traffic(*counts, dim, stored, wire, budget)
        moves = replace(moves, moved=0, held=0, exact=True)
    length: int | str = reservoir.supersteps
    if length == "auto":
        length = MAX_STEPS if size.diameter is None else length_of(size.diameter)
    held = engine, moves, need, states, budget, matrix, tile, wire
    return Supersteps(*held, files, traffic, int(length))


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
    descriptors = rounds = turns = sums_peak = 0
    if len(blocks) > 1:
        moves = moves_of(size, settings)
        columns_each = blocks[1] // (HOPS + 1) + 1
        descriptors = rounds = turns = size.nodes * 4 * (blocks[1] + HOPS + 1)
        if len(blocks) > 2:
            groups = _vector_groups(size, settings, blocks[2])
            one = size.nodes * 4 * (groups[-1].stop + EXTRA * len(groups))
            descriptors, rounds = descriptors + one, rounds + 3 * one
            turns += (DOUBLE_ROUNDS + 2) * one
            columns_each = max(columns_each, groups[0].stop + EXTRA)
        sums_peak = WORKER + sums_memory(columns_each, moves, size.lanes)
    # Files of states, in the run directory or in `scratch`, exist while the table is
    # written, except those of one superstep.
    files_here = steps.files if settings.scratch is None else 0
    base = EMBEDDER if steps.states == "memory" else WORKER
    device, _ = device_need(size, settings)
    written = {"disk": number * checkpoint + turns + table, "table": float(table)}
    sums = sums_work(size, settings, block_sums(size, settings))
    if len(blocks) > 1:
        sums = added(sums, _features_work(size, settings))
    if len(blocks) > 2:
        sums = added(sums, _turns_work(size, settings, blocks[2] + SPARE, len(groups)))
    return Need(
        worker=max(base + steps.need[steps.states], sums_peak),
        device=device,
        disk=max(
            descriptors + table + last, descriptors + checkpoints + files_here, rounds
        ),
        kept=table,
        scratch=steps.files - files_here,
        work={
            "supersteps": added(reservoir_work(size, settings, dim), sums),
            "write": scaled(written, 1 / size.slots),
        },
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


def busiest(size: RunSize, settings: Settings) -> tuple[int, int]:
    """Nodes and directed edges of the worker with the largest load."""
    moves = moves_of(size, settings)
    return min(size.nodes, moves.owned), min(size.edges, moves.edges)


def load_work(size: RunSize, settings: Settings) -> dict[str, float]:
    """Work of reading the partitions' edges once."""
    return {"load": busiest(size, settings)[1] * 4.0 / size.lanes}


def reservoir_work(size: RunSize, settings: Settings, dim: int) -> dict[str, float]:
    """Work of supersteps with `dim` units, including loading the partitions."""
    steps, reservoir = supersteps_of(size, settings), settings.reservoir
    share, sparse = dim / reservoir.dim, reservoir.matrix != "dense"
    products = _products(settings) * (1 if sparse else share)
    nodes, edges = busiest(size, settings)
    values, threads = float(nodes) * dim, size.workers.threads
    width = _drive_width(size, settings)
    stored = width == reservoir.dim
    made = 0.0 if stored else 2.0 * values * width
    superstep = {
        "visit": edges,
        "gather": edges * dim,
        "flop": made + (0.0 if sparse else 2.0 * values * products),
        "nonzero": 2.0 * values * products if sparse else 0.0,
        "value": values,
        "copy": values * 4.0,
    }
    if size.workers.device and steps.tile < reservoir.dim:
        # To the GPU: states, halo, gathered sums, drive; from it: sums, new states.
        item = 2 if reservoir.precision in ("float16", "bfloat16") else 4
        halos = float(steps.moves.picked * size.per_worker * dim)
        superstep["host"] = threads * (values * (3 * item + 8) + halos * item)
    row = reservoir.dim * steps.wire
    halo = 0 if steps.states == "disk" else halo_rows(size) * row
    exchange = {
        "copy": BLOCK_COPIES * share * halo / size.slots,
        # Each worker receives its share, in parallel with the others.
        "wire": share * steps.moves.moved * row / size.busy,
        "load": share * steps.traffic / size.busy,
        "task": 3.0 * (size.busy if steps.engine == "spmd" else size.partitions),
    }
    return added(
        load_work(size, settings),
        {
            "copy": stored * values * 4.0 / size.lanes,
            "flop": stored * 2.0 * values * size.features / threads,
        },
        scaled(added(scaled(superstep, 1 / threads), exchange), steps.length),
    )


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


def _features_work(size: RunSize, settings: Settings) -> Work:
    """Work of the features' components: a sketch of many, products, eigenvectors."""
    count, nodes = size.features, busiest(size, settings)[0]
    sketched = sketch_width(count)
    width = sketched or count
    # Three passes sketch the features. Products in float64 count twice.
    products = 3 * count * sketched + width * (width + min(width, COMPONENTS))
    cube = EIGEN * float(width) ** 3 if width > RAW else 0.0
    return {"flop": 4.0 * nodes * products / size.workers.threads, "cube": cube}


def _turns_work(size: RunSize, settings: Settings, width: int, groups: int) -> Work:
    """Work of the spectrum between its rounds: vectors turned, and their products."""
    values = (DOUBLE_ROUNDS + 1) * width * float(busiest(size, settings)[0])
    # Products in float64 count twice. Each group, peaks and products read all vectors.
    flops, read = (2.0 + 4.0) * values * width, 4.0 * values * (groups + 2)
    return {"flop": flops / size.workers.threads, "load": read / size.lanes}


def sums_work(
    size: RunSize, settings: Settings, rounds: tuple[NeighbourSums, ...]
) -> dict[str, float]:
    """Work of rounds of sums over neighbours, with one halo exchange each."""
    (nodes, edges), threads = busiest(size, settings), size.workers.threads
    # Each task reads the edges of its partition, for its rows and for its block.
    once = added(*2 * [load_work(size, settings)], {"task": 4.0 * size.partitions})
    moved = 4.0 * halo_rows(size)
    parts: list[Work] = []
    for sums in rounds:
        each: Work = {
            "visit": edges / threads,
            "gather": edges * sums.width / threads,
            "value": nodes * sums.width / size.lanes,
            "copy": BLOCK_COPIES * moved * sums.width / size.slots,
            "wire": moved * sums.width / size.busy if size.workers.count > 1 else 0.0,
        }
        parts.append(scaled(added(each, once), sums.rounds))
    return added(*parts)
