"""Makes plans from the user's tables or from counts, for this machine or a cluster.

A plan adds up the needs of the stages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, replace

from xnq_dist.core import cluster
from xnq_dist.core.backend import gpu_facts
from xnq_dist.core.clusters import CLUSTERS
from xnq_dist.core.errors import SettingsError
from xnq_dist.core.need import GraphSize, Need, RunSize, Workers, human, parse_bytes
from xnq_dist.core.settings import Settings
from xnq_dist.core.waiting import Heartbeats
from xnq_dist.graph import needs as graph
from xnq_dist.graph.head import count_tables
from xnq_dist.graph.needs import task_bytes
from xnq_dist.graph.sources import Sources
from xnq_dist.groups import needs as groups
from xnq_dist.groups.detection import groups_by_all_edges
from xnq_dist.plan.figures import Plan, expected_seconds, with_cluster
from xnq_dist.quantify import needs as quantify
from xnq_dist.readout import needs as readout
from xnq_dist.reservoir import needs as reservoir

__all__ = ["add_up", "estimate", "estimate_counts"]

MIN_EDGES = 300_000_000
"""Directed edges from which workers of many threads read in less time than the main
process: a minute less, by the times measured at 20 M edges."""

STAGES: Mapping[str, Callable[[RunSize, Settings], Need]] = {
    "graph": graph.needs,
    "embeddings": reservoir.needs,
    "groups": groups.needs,
    "readout": readout.needs,
    "quantify": quantify.needs,
}
"""Functions that return the needs of a stage, in the order of a run."""
GPU_BYTES = 72 * 2**30
"""Device memory of a hypothetical GPU: nine tenths of an H100's 80 GiB."""
SEVERAL_EDGES, SEVERAL_WORKERS = 10_000_000, 3
"""Directed edges and local workers from which worker processes take less time than one
process, whose tasks of one partition run on one thread."""


def add_up(
    graph_size: GraphSize,
    settings: Settings,
    partitions: int,
    workers: Workers,
    detects: bool = False,
) -> Plan:
    """Add up memory, disk and time of a run.

    Parameters
    ----------
    graph_size
        Counts of the graph.
    partitions
        Number of partitions.
    workers
        Workers that hold the partitions.
    detects
        Whether Leiden detects communities.
    """
    placed = {"partitions": partitions, "workers": workers, "detects": detects}
    size = RunSize(**{**vars(graph_size), **placed})
    needs = {name: stage(size, settings) for name, stage in STAGES.items()}
    steps = reservoir.supersteps_of(size, settings)
    moved = steps.moves.moved * steps.units * steps.wire
    run_disk = _disk(needs.values())
    return Plan(
        nodes=size.nodes,
        edges=size.edges,
        partitions=partitions,
        workers=workers.count,
        halo_rows=graph.halo_rows(size),
        halo_is_bound=size.partition_counts is None,
        bytes_per_superstep=moved,
        exchanged_bytes=steps.turns * (steps.length - 1) * moved,
        turns=steps.turns,
        worker_memory=max(need.worker for need in needs.values()),
        worker_limit=workers.memory,
        threads=workers.threads,
        client_memory=max(need.client for need in needs.values()),
        run_disk=run_disk,
        scratch_disk=max(need.scratch for need in needs.values())
        + graph.copies(size, settings),
        seconds=(
            None if workers.device else expected_seconds(size, settings, run_disk)
        ),
        device_memory=max(need.device for need in needs.values()),
        device_limit=workers.device,
        memberships=size.memberships,
        detects=detects,
        needs={name: asdict(need) for name, need in needs.items()},
    )


def estimate(
    sources: Sources, settings: Settings, partitions: int | None = None
) -> Plan:
    """Make the plan from the tables' footers and the memory that is free now.

    Parameters
    ----------
    partitions
        Number of partitions of the existing graph, kept with ``partitions = auto``.

    Raises
    ------
    InputError
        When a table is missing, empty or lacks a column.
    """
    free, size = cluster.free_memory(), count_tables(sources, settings)
    detects = _detects(settings, size.edges, sources.memberships is not None)

    def planned(settings: Settings) -> Plan:
        """The figures on one kind of cluster."""

        def figures(memory: int) -> Plan:
            """The figures with `memory` bytes for all local workers."""
            workers = _workers(settings, memory)
            count = _partitions(settings, size, workers, partitions)
            total = add_up(size, settings, count, workers, detects)
            return replace(total, client_limit=free, kind=settings.cluster.kind)

        late = figures(free)
        if not CLUSTERS[settings.cluster.kind].shares:
            return _ingest_on_workers(late, settings)
        # Workers that read the edges leave the client its memory. If the rest is not
        # enough for them, they start when the client has read, and may use all memory.
        early = late
        if settings.cluster.memory_limit == "auto":
            early = figures(max(free - late.client_memory, free // 10))
        if early.worker_memory > early.worker_limit:
            return late
        return _ingest_on_workers(early, settings)

    return _placed(settings, planned)


def estimate_counts(size: GraphSize, settings: Settings) -> Plan:
    """The figures of a hypothetical graph, from its counts.

    Parameters
    ----------
    size
        Nodes, directed edges, features, classes and labelled nodes.
    settings
        `cluster.workers`, `.threads` and `.memory_limit` describe the workers, which
        need not exist; with `backend` = ``gpu``, or a `cluster.kind` of GPUs, each has
        a GPU.
    """
    on_gpus = settings.backend == "gpu" or CLUSTERS[settings.cluster.kind].gpu
    if on_gpus and settings.cluster.device_memory == "auto":
        settings = with_cluster(settings, device_memory=GPU_BYTES)

    def planned(settings: Settings) -> Plan:
        """The figures on one kind of cluster."""
        workers = _workers(settings)
        if on_gpus:
            share = parse_bytes(settings.cluster.device_memory)
            workers = replace(workers, threads=1, device=share)
        else:
            workers = replace(workers, device=0)
        partitions = _partitions(settings, size, workers)
        detects = _detects(settings, size.edges)
        total = add_up(size, settings, partitions, workers, detects)
        return _ingest_on_workers(total, settings)

    return _placed(settings, planned)


def _ingest_on_workers(plan: Plan, settings: Settings) -> Plan:
    """The plan with the edges read by the workers, if there are many.

    Workers without GPUs that have enough memory read them. For workers that run in
    parallel with the main process only.
    """
    threads = plan.workers * plan.threads
    # Two threads of workers take the time of the main process.
    many = plan.edges * (1 - 2 / threads) >= MIN_EDGES
    gpu = CLUSTERS[settings.cluster.kind].gpu
    if plan.workers < 2 or not many or gpu:
        return plan
    edges = plan.edges // plan.partitions
    needed = task_bytes(plan.nodes, edges, plan.threads)
    if needed > plan.worker_limit:
        return plan
    return replace(plan, ingest_workers=plan.workers)


def _disk(needs: Iterable[Need]) -> int:
    """Peak bytes of the run directory; stages run one after the other."""
    kept = largest = 0
    for need in needs:
        largest = max(largest, kept + need.disk)
        kept += need.kept
    return max(largest, kept)


def _placed(settings: Settings, planned: Callable[[Settings], Plan]) -> Plan:
    """The figures on the kind of cluster that is set, or that ``auto`` chooses."""
    count = settings.cluster.workers
    if settings.cluster.kind != "auto":
        return planned(settings)
    several = planned(with_cluster(settings, kind="local"))
    others = f"{several.workers} worker processes"
    if count not in ("auto", 1):
        return replace(several, choice=f"{others}, set by cluster.workers")
    alone = planned(with_cluster(settings, workers=1))
    # After the embedding both the main process and a worker hold arrays.
    later = alone.of("readout", "quantify").worker_memory + alone.client_memory
    need = max(alone.worker_memory, later)
    limits = f"{human(need)} of {human(alone.worker_limit)}"
    chosen, why = alone, f"one process, which needs {limits}"
    fits = several.worker_memory <= several.worker_limit
    many = alone.edges >= SEVERAL_EDGES and several.workers >= SEVERAL_WORKERS
    if need > alone.worker_limit:
        chosen, why = several, f"{others}, since one process would need {limits}"
    elif count == "auto" and fits and many:
        chosen, less = several, f"less time from {SEVERAL_EDGES:,} directed edges on"
        why = f"{others}, which take {less}"
    return replace(chosen, choice=why)


def _workers(settings: Settings, free: int | None = None) -> Workers:
    kind, limit = settings.cluster.kind, settings.cluster.device_memory
    record, module = CLUSTERS[kind], CLUSTERS.module_of(kind)
    on_cpus = settings.backend == "cpu" or settings.exchange.on_cpus
    if not record.running:
        size: Workers = module.size(settings.cluster, free)
        device = size.device
        if not device and not on_cpus:
            # Local workers without dask-cuda share the machine's first GPU.
            device = int(gpu_facts().memory * cluster.DEVICE_SHARE) // size.count
        if settings.backend == "gpu" and not device:
            if limit == "auto":
                raise SettingsError(
                    f"backend = gpu but this machine has no GPU ({gpu_facts().reason})"
                    ": set cluster.device_memory to plan for workers that have one, or "
                    "set backend = cpu"
                )
            device = parse_bytes(limit)
        return replace(size, device=device)
    connection = module.connection_to(settings.cluster)
    with cluster.connect(connection, settings.cluster.timeout) as client:
        Heartbeats(client).wait_for_one()
        return cluster.workers_of(client, settings)


def _detects(settings: Settings, edges: int, named: bool = True) -> bool:
    """Whether Leiden may detect communities, to estimate or to learn intervals from.

    Parameters
    ----------
    named
        Whether there is a table of memberships.
    """
    small = settings.quantifier == "auto" and groups_by_all_edges(edges)
    unnamed = settings.communities == "auto" and not named
    return small or unnamed or settings.communities == "leiden"


def _partitions(
    settings: Settings, size: GraphSize, workers: Workers, existing: int | None = None
) -> int:
    """The number as set; ``auto``: as it exists, else one for each worker."""
    count = settings.partitions
    if count == "auto":
        count = existing or min(workers.count, size.nodes // 64)
    return max(1, min(count, size.nodes))
