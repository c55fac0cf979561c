"""The plan of a run, added up from counts and settings."""

from __future__ import annotations

from dataclasses import replace

from xnq_dist.core.config import Settings
from xnq_dist.core.quantifiers import record_of
from xnq_dist.core.sizes import parse_bytes
from xnq_dist.graph.clustering import PAIR
from xnq_dist.graph.gpu_ingest import planned_bytes
from xnq_dist.graph.partition import METIS_SHARE, metis_memory
from xnq_dist.graph.scratch_need import graph_scratch, sort_scratch
from xnq_dist.plan.needs import (
    described_by_plus,
    products_of,
    supersteps_of,
)
from xnq_dist.plan.passes import blocks_of, candidates_of, fits_of, sums_of
from xnq_dist.plan.seconds import Amounts, stage_seconds
from xnq_dist.plan.size import GraphSize, Plan, Workers
from xnq_dist.plan.unit_costs import Costs, load_costs
from xnq_dist.quantify.classic.giants import store_bytes
from xnq_dist.quantify.gpu.device_memory import quantified_bytes
from xnq_dist.readout.objective import DEVICE_VALUES, WIDEST
from xnq_dist.readout.plus.learning import MOST_ROWS
from xnq_dist.readout.select import UNITS
from xnq_dist.reservoir.checkpoint import KEPT, checkpoint_interval
from xnq_dist.reservoir.descriptors import SPARE
from xnq_dist.reservoir.device import device_bytes
from xnq_dist.reservoir.length import MOST, length_of
from xnq_dist.reservoir.propagation import COLUMNS
from xnq_dist.reservoir.volume import WORKER, disk_traffic, random_halo
from xnq_dist.selection.scored_rows import model_bytes

__all__ = ["make_plan"]


CLIENT = 400 * 2**20
"""Bytes of the client's process with its libraries loaded and nothing else."""
EMBEDDER = 400 * 2**20
"""Bytes of a worker before the readout's libraries are loaded, which take it to
`WORKER` (measured: 306 to 385 MiB beside states in memory)."""
SORT_PAIR = 40
"""Bytes that a pair takes while it is sorted, up to `input.memory`."""
LEIDEN_EDGE = 130
"""Bytes a directed edge takes while Leiden runs (measured), adjacency included."""
BEYOND = 10
"""Times the edges that the costs were checked on, beyond which times are said to be
extrapolated."""


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
    steps = supersteps_of(size, settings, partitions, workers)
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
    plus, blocks = settings.method == "xnq+", blocks_of(size, settings)
    columns = sum(blocks)
    fitted = min(labelled, MOST_ROWS) if plus else labelled
    readout = min(fitted * columns * 24, parse_bytes(settings.readout.memory) * 3)
    # Posteriors and neighbours' sums; `auto` holds one partition's edges beside them,
    # NACC the sums of all nodes.
    values = 36 if record_of(settings.quantifier).neighbours else 12
    quantify = size.nodes * (size.classes * values + 40) + edges * 24
    if settings.quantifier == "auto":
        quantify += model_bytes(size.nodes, size.classes, settings.readout.folds)
    memberships = size.nodes if size.memberships is None else size.memberships
    # One community may be as large as all memberships, and each thread may have one.
    giant = store_bytes(min(size.nodes, memberships), size.classes)
    quantify += workers.threads * giant
    plus_memory, rounds_disk, features_disk = described_by_plus(size, settings, fitted)
    later = max(readout, quantify, per_worker * owned * plus_memory)
    base = EMBEDDER if states == "memory" else WORKER
    worker_memory = int(max(base + steps.need[states], WORKER + later))

    device, device_tile = 0, 0
    if workers.device:
        halves = wanted.precision in ("float16", "bfloat16")
        weights = matrix // 2 if wanted.matrix == "dense" else matrix

        def on_device(columns: int) -> int:
            """Peak bytes with so many columns at a time."""
            resident = per_worker if columns == dim else 1
            one = (owned, largest_halo, edges, dim, columns, weights)
            return resident * device_bytes(*one, 2 if halves else 4)

        # Of every task that fits at a time the rows in float32; a block of them and
        # their covariance twice in float64.
        fits = min(workers.threads, settings.readout.folds)
        rows = min(4 * fits * labelled * dim, settings.readout.memory_bytes // 2)
        rows += fits * 8 * (DEVICE_VALUES + 2 * dim * min(dim, WIDEST))
        # Sums over neighbours, a few columns at a time, whatever tile was asked for.
        sums = device_bytes(owned, largest_halo, edges, 2 * COLUMNS, COLUMNS, 0, 4)
        many = size.nodes, size.classes, workers.threads
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
    leiden = size.edges <= settings.auto.reference_edges
    if detects or leiden:
        whole = max(whole, LEIDEN_EDGE * size.edges)
    # Sorting, partitioning and Leiden come one after the other.
    sort_memory = min(sort_memory, size.edges * SORT_PAIR)
    client_memory = int(CLIENT + size.nodes * 100 + max(sort_memory, whole))

    limit = 0 if size.halo is not None else workers.ingest
    read = size.nodes, size.edges, size.id_text, settings.input.memory_bytes
    ingest, least = planned_bytes(*read, limit)

    embedding = (
        size.nodes * columns * (2 if settings.embeddings.dtype == "float16" else 4)
    )
    node_disk = size.node_bytes
    if node_disk is None:
        node_disk = size.nodes * (size.features * 4 + 12)
    graph_disk = node_disk + size.nodes * 12 + size.edges * 4
    length = MOST if wanted.supersteps == "auto" else wanted.supersteps
    if wanted.supersteps == "auto" and size.diameter is not None:
        length = length_of(size.diameter)
    products = products_of(settings)
    every = checkpoint_interval(
        settings.checkpoint.every, size.nodes, size.edges, dim, products, length
    )
    # The last checkpoints stay until the next one is whole, and while the table is
    # written.
    checkpoint = size.nodes * dim * kept
    checkpoints = min(KEPT + 1, (length - 1) // every) * checkpoint
    last = min(checkpoints, KEPT * checkpoint)
    # Label features are made twice: with nodes and with whole groups as folds.
    described = size.nodes * (rounds_disk + 2 * features_disk)
    # Of the blocks beside the reservoir: what is written with the states, and before
    # that the hops of features and three rounds of the spectrum.
    beside = size.nodes * 4 * (columns - dim)
    rounds = beside
    if plus:
        spectral = 3 * (blocks[2] + SPARE + 2) if len(blocks) > 2 else 0
        rounds += size.nodes * 4 * (blocks[1] + 3 + spectral)
    # Three partitions of groups take 12 bytes a node; posteriors with whole groups left
    # out are few.
    posteriors = size.nodes * (size.classes * 4 + 24 + features_disk)
    # Labelled rows beyond the memory go through files, by partition and by group.
    beyond = not plus and labelled * dim * 8 > settings.readout.memory_bytes
    item = 2 if settings.embeddings.dtype == "float16" else 4
    spilled = 2 * labelled * dim * item if beyond else 0
    # Files of states, in the run directory or in `scratch`, are there while the table
    # is written, but for those of one superstep.
    files_here = on_disk if settings.scratch is None else 0
    before = beside + max(last, checkpoints + files_here - embedding)
    largest = max(before, rounds - embedding, described, posteriors, spilled)
    memory = settings.input.memory_bytes
    counts = size.nodes, size.edges, size.features, halo
    scratch_disk = max(
        graph_scratch(*counts, memory, size.weighted),
        sort_scratch(memberships, memory),
        on_disk - files_here,
    )
    run_disk = graph_disk + embedding + largest
    costs = costs or load_costs()
    written = (length - 1) // every * checkpoint + rounds + described + 2 * spilled
    stages = stage_seconds(
        Amounts(
            nodes=size.nodes,
            edges=size.edges,
            features=size.features,
            classes=size.classes,
            labelled=labelled,
            memberships=memberships,
            exchanged=moves.moved * dim * wire + file_bytes,
            halo_bytes=0 if states == "disk" else halo * dim * wire,
            partitions=partitions,
            most_nodes=min(size.nodes, moves.owned),
            most_edges=min(size.edges, moves.edges),
            workers=min(partitions, workers.count),
            threads=workers.threads,
            lanes=min(per_worker, workers.threads),
            dim=dim,
            columns=columns,
            products=products,
            sparse=wanted.matrix != "dense",
            supersteps=length,
            item=item,
            candidates=candidates_of(settings),
            candidate_dim=min(dim, UNITS),
            **fits_of(size, settings, workers),
            **sums_of(size, settings),
            auto=settings.quantifier == "auto",
            detects=detects,
            leiden=leiden,
            disk=int(written),
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
        scratch_disk=scratch_disk,
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
