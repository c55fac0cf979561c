"""Makes plans from the user's tables or from counts, for this machine or a cluster."""

from __future__ import annotations

from dataclasses import replace

from xnq_dist.core import cluster
from xnq_dist.core.backend import gpu_facts
from xnq_dist.core.clusters import CLUSTERS
from xnq_dist.core.config import Settings
from xnq_dist.core.need import GraphSize, PartitionCounts, Workers
from xnq_dist.core.sizes import parse_bytes
from xnq_dist.core.store import Manifest, Stage
from xnq_dist.core.waiting import first_worker
from xnq_dist.graph.gpu_ingest import ingest_limit, wants_cudf
from xnq_dist.graph.layout import halo_sizes
from xnq_dist.graph.tables import Sources
from xnq_dist.plan.adding import add_up, choose_partitions
from xnq_dist.plan.figures import Figures, Plan
from xnq_dist.plan.unit_costs import GPU_BYTES, Costs, Device, load_costs
from xnq_dist.reservoir.context import needed_rows
from xnq_dist.reservoir.volume import choose_engine

__all__ = [
    "count_tables",
    "estimate",
    "estimate_counts",
    "make_plan",
    "size_of",
]


def estimate(
    sources: Sources,
    settings: Settings,
    costs: Costs | None = None,
    partitions: int | None = None,
) -> Figures:
    """The figures of a run's plan (`make_plan`); nothing is run."""
    return make_plan(sources, settings, costs, partitions).planned


def make_plan(
    sources: Sources,
    settings: Settings,
    costs: Costs | None = None,
    partitions: int | None = None,
) -> Plan:
    """Make the plan from the tables' footers and the memory that is free now.

    Parameters
    ----------
    costs
        Costs of a unit of work; None: those in ``costs.json``.
    partitions
        Number of partitions of the existing graph, kept with ``partitions = auto``.

    Raises
    ------
    InputError
        When a table is missing, empty or lacks a column.
    """
    if settings.cluster.kind == "auto":
        if settings.cluster.workers in ("auto", 1):
            alone = make_plan(sources, _on("single", settings), costs, partitions)
            if _fits_alone(alone.planned):
                return alone
        settings = _on("local", settings)
    free = cluster.free_memory()
    size = count_tables(sources, settings)
    detects = _detects(settings, size.edges, sources.memberships is not None)
    ingest = ingest_limit(settings)

    def figures(memory: int) -> Figures:
        """The figures with `memory` bytes for all local workers."""
        workers = replace(_workers(settings, memory), ingest=ingest)
        count = partitions
        if count is None or settings.partitions != "auto":
            count = _partitions(settings, size, workers)
        count = min(count, size.nodes)
        total = add_up(size, settings, count, workers, detects, costs)
        return replace(total, client_limit=free, kind=settings.cluster.kind)

    planned = figures(free)
    if CLUSTERS.record_of(settings.cluster.kind).ahead:
        # Workers that start while tables are read leave the client its memory. If the
        # rest is not enough for them, they start later and may use all memory.
        early = planned
        if settings.cluster.memory_limit == "auto":
            early = figures(max(free - planned.client_memory, free // 10))
        if early.worker_memory <= early.worker_limit:
            planned = replace(early, starts_early=True)
    return Plan(planned)


def estimate_counts(
    size: GraphSize, settings: Settings, device: Device = "cpu", costs: str = ""
) -> Figures:
    """The figures of a hypothetical graph, from its counts.

    Parameters
    ----------
    size
        Nodes, directed edges, features, classes and labelled nodes.
    settings
        `cluster.workers`, `.threads` and `.memory_limit` describe the workers, which
        need not exist.
    device
        ``gpu``: one GPU for each worker, extrapolated from a data sheet.
    costs
        Path of a file of costs; empty: ``costs.json``.

    Raises
    ------
    InputError
        When the file cannot be read.
    """
    if settings.cluster.kind == "auto":
        if settings.cluster.workers in ("auto", 1):
            alone = estimate_counts(size, _on("single", settings), device, costs)
            if _fits_alone(alone):
                return alone
        settings = _on("local", settings)
    workers = _workers(settings)
    if device == "gpu":
        limit = settings.cluster.device_memory
        share = GPU_BYTES if limit == "auto" else parse_bytes(limit)
        reads = share if wants_cudf(settings) else 0
        workers = Workers(workers.count, 1, workers.memory, share, reads)
    else:
        workers = replace(workers, device=0)
    partitions = _partitions(settings, size, workers)
    known = load_costs(costs) if costs else load_costs()
    detects = _detects(settings, size.edges)
    return add_up(size, settings, partitions, workers, detects, known.on(device))


def size_of(
    graph: Manifest,
    settings: Settings,
    workers: int,
    stage: Stage,
    labels: Manifest | None = None,
) -> GraphSize:
    """The counts for a plan, once the graph is partitioned.

    Parameters
    ----------
    graph, stage
        Manifest and folder of the stage ``graph``.
    labels
        Manifest of the stage ``labels``; None: labels and classes are assumed.
    """
    facts, needed = graph.facts, None
    engine = choose_engine(settings.exchange.engine, facts["partitions"])
    if facts["partitions"] > workers and engine == "spmd":
        needed = needed_rows(stage, graph, workers)
    size = GraphSize(
        nodes=facts["n_nodes"],
        edges=facts["n_edges"],
        features=facts["n_features"],
        weighted=facts["weighted"],
        halo=facts["halo"],
        diameter=facts.get("effective_diameter"),
        partition_counts=PartitionCounts(
            facts["owned"],
            facts["edges"],
            facts["boundary"],
            halo_sizes(stage, graph),
            needed,
        ),
        node_bytes=sum(record.bytes for record in graph.named("nodes-")),
    )
    if labels is None:
        return size
    known = labels.facts
    return replace(size, classes=len(known["classes"]), labelled=known["n_labelled"])


def count_tables(sources: Sources, settings: Settings) -> GraphSize:
    """The counts for a plan, from the tables' footers.

    Raises
    ------
    InputError
        When a table is missing, empty or lacks a column.
    """
    from xnq_dist.graph.head import (
        class_count,
        has_weights,
        id_text,
        labelled_rows,
        node_bytes,
        table_size,
    )

    nodes, features = table_size(sources.nodes, settings, "nodes")
    edges, _ = table_size(sources.edges, settings, "edges")
    return GraphSize(
        nodes,
        edges if settings.input.directed else 2 * edges,
        features,
        class_count(sources.nodes, settings),
        labelled=labelled_rows(sources.nodes, settings),
        weighted=has_weights(sources.edges, settings),
        memberships=(
            table_size(sources.memberships, settings, "memberships")[0]
            if sources.memberships is not None
            else None
        ),
        node_bytes=node_bytes(sources.nodes, settings),
        id_text=id_text(sources.nodes, settings) if wants_cudf(settings) else 0.0,
    )


def _workers(settings: Settings, free: int | None = None) -> Workers:
    kind = settings.cluster.kind
    module = CLUSTERS.module_of(kind)
    if not CLUSTERS.record_of(kind).running:
        size = module.size(settings.cluster, free)
        device = size.device
        on_cpus = settings.backend == "cpu" or settings.exchange.on_cpus
        if not device and not on_cpus:
            # Local workers without dask-cuda share the machine's first GPU.
            device = int(gpu_facts().memory * cluster.DEVICE_SHARE) // size.workers
        return Workers(size.workers, size.threads, size.memory, device)
    connection = module.connection_to(settings.cluster)
    with cluster.connect(connection, settings.cluster.timeout) as client:
        threads = first_worker(client)  # `open_cluster` reports if there is none
        memory = cluster.smallest_memory(client)
    return Workers(max(1, len(threads)), max(threads.values(), default=1), memory)


def _on(kind: str, settings: Settings) -> Settings:
    cluster = settings.cluster.model_copy(update={"kind": kind})
    return settings.model_copy(update={"cluster": cluster})


def _fits_alone(alone: Figures) -> bool:
    """Whether one process has memory for both the tables and a worker's states."""
    return alone.client_memory + alone.worker_memory <= alone.worker_limit


def _detects(settings: Settings, edges: int, named: bool = True) -> bool:
    """Whether Leiden may detect communities, to estimate or to learn intervals from.

    Parameters
    ----------
    named
        Whether there is a table of memberships.
    """
    small = settings.quantifier == "auto" and edges <= settings.auto.reference_edges
    unnamed = settings.communities == "auto" and not named
    return small or unnamed or settings.communities == "leiden"


def _partitions(settings: Settings, size: GraphSize, workers: Workers) -> int:
    if settings.partitions == "auto":
        return choose_partitions(size, settings, workers)
    return settings.partitions
