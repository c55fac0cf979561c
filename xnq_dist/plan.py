"""The plan: what a run will take, before anything runs; refused when it does not fit.

Counts come from the tables' footers, the cut is bounded by that of a random partition,
memory and disk are added up from the arrays that will exist, and times from costs that
were measured on a core (`xnq_dist.costs`), right to a factor of a few.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from xnq_dist.config import Settings
from xnq_dist.costs import Costs, Work, load_costs, stage_seconds
from xnq_dist.errors import DoesNotFitError
from xnq_dist.graph.clustering import PAIR
from xnq_dist.graph.gpu_ingest import planned_bytes
from xnq_dist.graph.partition import METIS_SHARE, metis_memory
from xnq_dist.quantify.gpu_bytes import MOST_MEMBERSHIPS, quantified_bytes
from xnq_dist.readout.blockwise import ROWS
from xnq_dist.readout.label_features import (
    HOPS,
    NEIGHBOUR_HOPS,
    feature_count,
)
from xnq_dist.readout.row_blocks import WIDEST
from xnq_dist.readout.select import plus_scales
from xnq_dist.reservoir.checkpoint import checkpoint_interval
from xnq_dist.reservoir.device import device_bytes
from xnq_dist.reservoir.length import MOST, length_of
from xnq_dist.reservoir.rounds import COLUMNS
from xnq_dist.reservoir.volume import (
    SLACK,
    WORKER,
    Cut,
    Volume,
    disk_need,
    disk_traffic,
    memory_need,
    most_volume,
    random_halo,
    tile_memory,
    volume,
)
from xnq_dist.reservoir.weights import units_of_blocks
from xnq_dist.sizes import human, parse_bytes

__all__ = [
    "MOST_MEMBERSHIPS",
    "GraphSize",
    "Plan",
    "Workers",
    "check_client_fits",
    "check_fits",
    "make_plan",
    "wanted_partitions",
]

CLIENT = 400 * 2**20
"""Bytes of the client's process with its libraries loaded and nothing else."""
SORT_PAIR = 40
"""Bytes that a pair takes while it is sorted, up to `input.memory`."""
LEIDEN_EDGE = 130
"""Bytes a directed edge takes while Leiden runs (measured), adjacency included."""
FIT_PASSES = 150
"""Passes over the labelled rows: some 15 for each of 5 folds at 2 values of C."""
BEYOND = 10
"""Times the edges that the costs were checked on, beyond which times are said to be
extrapolated."""


@dataclass(frozen=True)
class GraphSize:
    """Counts that a plan is made from."""

    nodes: int
    edges: int
    """Directed; an upper bound while reversed edges are not yet counted."""
    features: int
    classes: int = 2
    labelled: int | None = None
    halo: Sequence[int] | None = None
    """Halo rows of each partition, once the graph is partitioned."""
    node_bytes: int | None = None
    """Bytes that the node table takes on a disk, compressed; None: as if features did
    not compress."""
    cut: Cut | None = None
    """The partitions' counts, once there are partitions."""
    diameter: int | None = None
    """Effective diameter, once it is known and asked for; else as many supersteps as
    ``auto`` may take."""
    id_text: float = 0.0
    """Mean bytes of a node's id that is a string; 0: ids are integers."""


@dataclass(frozen=True)
class Workers:
    """Who will do the work."""

    count: int
    threads: int
    memory: int
    """Bytes one worker may use."""
    device: int = 0
    """Bytes of a GPU's memory that one worker may use; 0: CPUs do the work."""
    ingest: int = 0
    """Bytes of a GPU's memory that the reading of edges may use; 0: a CPU reads."""


@dataclass(frozen=True)
class Plan:
    """What a run will take."""

    nodes: int
    edges: int
    partitions: int
    workers: int
    halo_rows: int
    """Rows received by all partitions a superstep; a bound until it is partitioned."""
    halo_is_bound: bool
    engine: str
    """Of the exchange: what crosses, and what is held, hangs on it."""
    bytes_per_superstep: int
    """Bytes that cross between workers in one superstep."""
    bytes_are_bound: bool
    """Whether they are at most that, and not exactly."""
    exchanged_bytes: int
    """The same of all supersteps; the first one starts from zeros, and nothing
    crosses."""
    block_memory: int
    """Bytes of blocks, own and received, that one worker holds at a time."""
    states: str
    """Where they are between supersteps: ``memory``, or ``disk``."""
    state_disk: int
    """Bytes of files of states and input drives; 0: in memory."""
    state_bytes: int
    """Bytes read from and written to them in one superstep, at most."""
    worker_memory: int
    """Peak bytes of one worker."""
    worker_limit: int
    """Bytes one worker may use."""
    client_memory: int
    """Peak bytes of the process that ingests, partitions and detects communities."""
    run_disk: int
    """Bytes of the run directory at its largest, checkpoints included."""
    scratch_disk: int
    """Bytes of temporary files during ingest."""
    seconds: float
    """Expected time, right to a factor of a few."""
    stages: dict[str, float]
    """The same by stage."""
    basis: str
    """Where the costs behind the times come from."""
    extrapolated: bool
    """Whether nothing of this size, or on such a device, was ever measured."""
    device_memory: int = 0
    """Peak bytes of one worker's GPU; 0: CPUs do the work."""
    device_limit: int = 0
    """Bytes of a GPU's memory that one worker may use."""
    device_tile: int = 0
    """Largest `reservoir.tile` whose streamed states fit the device; 0: none does."""
    ingest_memory: int = 0
    """Peak bytes of a GPU while edges are read and sorted on it; 0: a CPU does."""
    ingest_least: int = 0
    """Bytes of a GPU's memory below which they are not."""
    ingest_limit: int = 0
    """Bytes of a GPU's memory that they may use."""
    ingest_asked: bool = False
    """Whether a GPU is to do it by `input.engine`, not only where it can."""

    def lines(self) -> list[tuple[str, str]]:
        """Name and value of each figure, for people."""
        bound = "at most " if self.halo_is_bound else ""
        files = ""
        if self.states == "disk":
            files = (
                f": {human(self.state_disk)} of files, at most "
                f"{human(self.state_bytes)} read and written a superstep"
            )
        most = "at most " if self.bytes_are_bound else ""
        per_node = self.halo_rows / max(1, self.nodes)
        device = f"{human(self.device_memory)} of {human(self.device_limit)}"
        gpu = [("memory of a GPU", device)] if self.device_limit else []
        if self.ingest_limit:
            reads = f"{human(self.ingest_memory)} of {human(self.ingest_limit)}"
            if self.ingest_least > self.ingest_limit:
                reads = f"{human(self.ingest_least)} of {human(self.ingest_limit)}"
                reads += " will not do" if self.ingest_asked else ": a CPU reads"
            gpu.insert(0, ("memory of a GPU, stage graph", reads))
        return [
            ("nodes", f"{self.nodes:,}"),
            (
                "directed edges",
                f"{'at most ' if self.halo_is_bound else ''}{self.edges:,}",
            ),
            ("partitions on workers", f"{self.partitions} on {self.workers}"),
            ("halo rows", f"{bound}{self.halo_rows:,} ({per_node:.2f} a node)"),
            (
                f"exchanged a superstep ({self.engine})",
                f"{most}{human(self.bytes_per_superstep)}, in all "
                f"{human(self.exchanged_bytes)}",
            ),
            ("of it held by a worker", most + human(self.block_memory)),
            ("states", self.states + files),
            (
                "memory of a worker",
                f"{human(self.worker_memory)} of {human(self.worker_limit)}",
            ),
            *gpu,
            ("memory of ingest, cut, Leiden", human(self.client_memory)),
            ("disk, run directory", human(self.run_disk)),
            ("disk, temporary", human(self.scratch_disk)),
            (
                "time",
                f"{self.seconds:,.0f} s, "
                + (
                    "extrapolated, never measured"
                    if self.extrapolated
                    else "within a factor of a few"
                ),
            ),
            (
                "of it",
                ", ".join(f"{name} {s:,.0f} s" for name, s in self.stages.items()),
            ),
            ("costs", self.basis),
        ]

    def to_dict(self) -> dict[str, Any]:
        """All figures, JSON-able."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


def make_plan(
    size: GraphSize,
    settings: Settings,
    partitions: int,
    workers: Workers,
    detects: bool = False,
    costs: Costs | None = None,
) -> Plan:
    """Add up what a run takes.

    Parameters
    ----------
    size
        Counts of the graph.
    partitions
        Number of partitions.
    workers
        Workers that hold them.
    detects
        Whether Leiden detects the communities, with all edges in one process.
    costs
        What work costs; None: as recorded.
    """
    wanted = settings.reservoir
    dim = wanted.dim
    wire = 2 if settings.exchange.dtype == "float16" else 4
    if size.halo is None:
        halo = random_halo(size.nodes, size.edges, partitions)
    else:
        halo = sum(size.halo)
    steps = _supersteps(size, settings, partitions, workers)
    moves, matrix, tile = steps.moves, steps.matrix, steps.tile
    kept = 4 if workers.device else wire
    per_worker = -(-partitions // workers.count)
    owned, edges, largest_halo = moves.largest, moves.edges / per_worker, moves.picked
    states, on_disk, file_bytes = steps.states, 0, 0
    if states == "disk":
        on_disk = size.nodes * dim * (4 + 2 * wire)
        counts = size.nodes, size.edges, halo, partitions
        file_bytes = disk_traffic(*counts, dim, wire, steps.budget)
        moves = replace(moves, moved=0, held=0, exact=True)
    labelled = size.labelled if size.labelled is not None else size.nodes
    readout = min(labelled * dim * 24, parse_bytes(settings.readout.memory) * 3)
    # Posteriors and neighbours' sums; `auto` holds one partition's edges beside them,
    # NACC the sums of all nodes.
    values = 36 if settings.quantifier in ("nacc", "npacc") else 12
    quantify = size.nodes * (size.classes * values + 40) + edges * 24
    plus_memory, rounds_disk, features_disk = _plus(size, settings)
    worker_memory = int(
        WORKER
        + max(steps.need[states], readout, quantify, per_worker * owned * plus_memory)
    )

    device, device_tile = 0, 0
    if workers.device:
        halves = wanted.precision in ("float16", "bfloat16")
        weights = matrix // 2 if wanted.matrix == "dense" else matrix

        def on_device(columns: int) -> int:
            """Peak bytes with so many columns at a time."""
            resident = per_worker if columns == dim else 1
            one = (owned, largest_halo, edges, dim, columns, weights)
            return resident * device_bytes(*one, 2 if halves else 4)

        # Of every fold that is fitted at a time its rows in float32; a block of them
        # and their covariance twice in float64.
        fits = min(workers.threads, settings.readout.folds)
        rows = min(4 * fits * labelled * dim, settings.readout.memory_bytes // 2)
        rows += fits * 8 * dim * (ROWS + 2 * min(dim, WIDEST))
        # Sums over neighbours, a few columns at a time, whatever tile was asked for.
        sums = device_bytes(owned, largest_halo, edges, 2 * COLUMNS, COLUMNS, 0, 4)
        many = size.nodes, size.classes, settings.quantifier, workers.threads
        device = int(max(on_device(tile), rows, sums, quantified_bytes(*many)))
        fitting = [2**k for k in range(17) if 2**k < dim]
        fitting = [k for k in fitting if on_device(k) <= workers.device]
        device_tile = max(fitting, default=0)
    sort_memory = settings.input.memory_bytes
    whole = 0
    if partitions > 1 and settings.partitioner in ("auto", "metis"):
        symmetric = not settings.input.directed
        whole = metis_memory(size.nodes, size.edges, symmetric)
        if settings.partitioner == "auto" and whole > METIS_SHARE * sort_memory:
            whole = 0
    if partitions > 1 and not whole and settings.partitioner in ("auto", "stream"):
        table, pairs = size.nodes * partitions, size.edges * PAIR
        whole = min(sort_memory, max(table, pairs))
    if detects:
        whole = max(whole, LEIDEN_EDGE * size.edges)
    # Sorting, partitioning and Leiden come one after the other.
    sort_memory = min(sort_memory, size.edges * SORT_PAIR)
    client_memory = int(CLIENT + size.nodes * 100 + max(sort_memory, whole))

    limit = 0 if size.halo is not None else workers.ingest
    read = size.nodes, size.edges, size.id_text, settings.input.memory_bytes
    ingest, least = planned_bytes(*read, limit)

    embedding = size.nodes * dim * (2 if settings.embeddings.dtype == "float16" else 4)
    node_disk = size.node_bytes
    if node_disk is None:
        node_disk = size.nodes * (size.features * 4 + 12)
    graph_disk = node_disk + size.nodes * 12 + size.edges * 4
    length = MOST if wanted.supersteps == "auto" else wanted.supersteps
    if wanted.supersteps == "auto" and size.diameter is not None:
        length = length_of(size.diameter)
    products = _products(settings)
    every = checkpoint_interval(
        settings.checkpoint.every, size.nodes, size.edges, dim, products, length
    )
    # The last checkpoint stays until the next one is whole, and while the table is
    # written.
    checkpoint = size.nodes * dim * kept
    checkpoints = min(2, (length - 1) // every) * checkpoint
    last = min(checkpoints, checkpoint)
    described = size.nodes * (rounds_disk + features_disk)
    posteriors = size.nodes * (size.classes * 4 + 12 + features_disk)
    # Labelled rows beyond the memory go through files, by partition and by group.
    beyond = labelled * dim * 8 > settings.readout.memory_bytes
    item = 2 if settings.embeddings.dtype == "float16" else 4
    spilled = 2 * labelled * dim * item if beyond else 0
    # Files of states, in the run directory or in `scratch`, are there while the table
    # is written, but for those of one superstep.
    files_here = on_disk if settings.scratch is None else 0
    before = max(last, checkpoints + files_here - embedding)
    later = max(before, described, posteriors, spilled)
    sorting = size.edges * 24 + size.nodes * size.features * 4
    run_disk = graph_disk + embedding + later
    costs = costs or load_costs()
    stages = stage_seconds(
        Work(
            nodes=size.nodes,
            edges=size.edges,
            exchanged=moves.moved * dim * wire + file_bytes,
            partitions=partitions,
            cores=min(partitions, workers.count) * workers.threads,
            workers=min(partitions, workers.count),
            dim=dim,
            products=products,
            sparse=wanted.matrix != "dense",
            detects=detects,
            supersteps=length,
            labelled=labelled,
            passes=FIT_PASSES,
            classes=size.classes,
            features=(rounds_disk + features_disk) // 4,
            disk=int(run_disk),
        ),
        costs,
    )
    return Plan(
        nodes=size.nodes,
        edges=size.edges,
        partitions=partitions,
        workers=workers.count,
        halo_rows=halo,
        halo_is_bound=size.halo is None,
        engine=settings.exchange.engine,
        bytes_per_superstep=moves.moved * dim * wire,
        bytes_are_bound=not moves.exact,
        exchanged_bytes=(length - 1) * moves.moved * dim * wire,
        block_memory=moves.held * tile * wire,
        states=states,
        state_disk=on_disk,
        state_bytes=file_bytes,
        worker_memory=worker_memory,
        worker_limit=workers.memory,
        client_memory=client_memory,
        run_disk=int(run_disk),
        scratch_disk=int(max(sorting, on_disk - files_here)),
        seconds=sum(stages.values()),
        stages=stages,
        basis=costs.basis,
        extrapolated=size.edges > BEYOND * costs.edges_measured,
        device_memory=device,
        device_limit=workers.device,
        device_tile=device_tile,
        ingest_memory=ingest,
        ingest_least=least,
        ingest_limit=limit,
        ingest_asked=settings.input.engine == "cudf",
    )


@dataclass(frozen=True)
class _Supersteps:
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


def _supersteps(
    size: GraphSize, settings: Settings, partitions: int, workers: Workers
) -> _Supersteps:
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
    return _Supersteps(moves, need, states, budget, matrix, tile)


def wanted_partitions(size: GraphSize, settings: Settings, workers: Workers) -> int:
    """Number of partitions when nobody says it.

    One per worker; with states on a disk as many more as make the states of those that
    are worked on at a time fit.
    """
    count = max(1, min(workers.count, size.nodes // 64))
    most = max(count, size.nodes // 64)
    while True:
        steps = _supersteps(size, settings, count, workers)
        # A little room: partitions are not all of one size.
        fits = WORKER + SLACK * steps.need["disk"] <= workers.memory
        if steps.states == "memory" or fits or count == most:
            return count
        if workers.memory <= WORKER:  # no number of partitions will do
            return count
        more = max(1, count // workers.count // 8)
        count = min(most, count + more * workers.count)


def _products(settings: Settings) -> int:
    """Values of a state that one new value is made from."""
    wanted = settings.reservoir
    if wanted.matrix != "dense":
        return wanted.nonzeros
    scales = wanted.recurrent_scale
    if settings.method == "xnq+":
        scales, _ = plus_scales(settings)
    beside = len(scales) if isinstance(scales, tuple) else 1
    return units_of_blocks(wanted.dim, beside)[0]


def _plus(size: GraphSize, settings: Settings) -> tuple[int, int, int]:
    """Bytes that a node takes in memory while xnq+ describes it, and on the disk.

    There for the kept rounds, which are removed, and for what is made of them.
    """
    if settings.method != "xnq+":
        return 0, 0, 0
    folds, wanted = settings.readout.folds, settings.plus
    means = len(set(wanted.rounds)) + NEIGHBOUR_HOPS
    features = folds * feature_count(size.classes, means)
    trees = size.classes == 2 and wanted.boosting == "auto"
    if trees and size.features <= wanted.node_features:
        features += (NEIGHBOUR_HOPS + 1) * size.features
    rounds = (HOPS + means) * folds * size.classes
    # Kept rounds and what is made of them, float64 on the way.
    return 4 * rounds + 12 * features, 4 * rounds, 4 * features


def check_client_fits(plan: Plan, limit: int) -> None:
    """Refuse an ingest, cut or detection of communities that does not fit.

    Parameters
    ----------
    plan
        The plan.
    limit
        Bytes of memory that are free where they run.

    Raises
    ------
    DoesNotFitError
        Naming need, limit and setting.
    """
    _check_ingest_fits(plan)
    if plan.client_memory > limit:
        raise DoesNotFitError(
            f"ingest, cut and Leiden need {human(plan.client_memory)} but "
            f"{human(limit)} are free: set partitioner=stream, give communities by "
            "--memberships with auto.reference_edges=0, or a smaller input.memory"
        )


def _check_ingest_fits(plan: Plan) -> None:
    if plan.ingest_asked and plan.ingest_least > plan.ingest_limit:
        raise DoesNotFitError(
            f"reading the edges of {plan.nodes:,} nodes on a GPU needs "
            f"{human(plan.ingest_least)} of its memory but may use "
            f"{human(plan.ingest_limit)}: set input.engine=cpu, a smaller "
            "input.memory, or a larger cluster.device_memory"
        )


def check_fits(plan: Plan, out: str | None = None, used: int = 0) -> None:
    """Refuse what does not fit, with both numbers and the setting to change.

    Parameters
    ----------
    plan
        The plan.
    out
        Local folder whose disk must hold the run; None: not checked.
    used
        Bytes of the run that are on the disk already.

    Raises
    ------
    DoesNotFitError
        Naming need, limit and setting.
    """
    _check_ingest_fits(plan)
    if plan.worker_memory > plan.worker_limit:
        more = "more partitions"
        if plan.states == "memory":
            more = "more workers with partitions set to their number"
        raise DoesNotFitError(
            f"a worker needs {human(plan.worker_memory)} but may use "
            f"{human(plan.worker_limit)} ({plan.nodes:,} nodes in {plan.partitions} "
            f"partitions on {plan.workers} workers, states: {plan.states}): set a "
            "smaller reservoir.dim or readout.memory, raise cluster.memory_limit, or "
            f"use {more}"
        )
    if plan.device_memory > plan.device_limit:
        tile = f"reservoir.tile={plan.device_tile}, " if plan.device_tile else ""
        raise DoesNotFitError(
            f"a worker needs {human(plan.device_memory)} of its GPU's memory but may "
            f"use {human(plan.device_limit)}: set {tile}reservoir.precision=float16 or "
            "a smaller reservoir.dim, raise cluster.device_memory, use more GPUs, or "
            "set backend=cpu"
        )
    if out is None:
        return
    folder = Path(out)
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    if plan.run_disk - used > free:
        raise DoesNotFitError(
            f"the run directory needs {human(plan.run_disk - used)} but {folder} has "
            f"{human(free)} free: set embeddings.dtype=float16 or a smaller "
            "reservoir.dim, or choose another --out"
        )
