"""Makes plans from the user's tables or from counts, for this machine or a cluster."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from xnq_dist.core import cluster
from xnq_dist.core.backend import gpu_facts
from xnq_dist.core.clusters import CLUSTERS
from xnq_dist.core.errors import SettingsError
from xnq_dist.core.need import GraphSize, Workers
from xnq_dist.core.settings import Settings
from xnq_dist.core.sizes import human, parse_bytes
from xnq_dist.core.waiting import Heartbeats
from xnq_dist.graph.head import count_tables
from xnq_dist.graph.tables import Sources
from xnq_dist.groups.detection import groups_by_all_edges
from xnq_dist.plan.adding import add_up
from xnq_dist.plan.figures import Plan
from xnq_dist.plan.ingest import ingest_on_workers

__all__ = [
    "estimate",
    "estimate_counts",
]

GPU_BYTES = 72 * 2**30
"""Device memory of a hypothetical GPU: nine tenths of an H100's 80 GiB."""
SEVERAL_EDGES, SEVERAL_WORKERS = 10_000_000, 3
"""Directed edges and local workers from which worker processes take less time than one
process, whose tasks of one partition run on one thread."""


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
            return ingest_on_workers(late, settings)
        # Workers that read the edges leave the client its memory. If the rest is not
        # enough for them, they start when the client has read, and may use all memory.
        early = late
        if settings.cluster.memory_limit == "auto":
            early = figures(max(free - late.client_memory, free // 10))
        if early.worker_memory > early.worker_limit:
            return late
        return ingest_on_workers(early, settings)

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
        settings = _on(settings, device_memory=GPU_BYTES)

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
        return ingest_on_workers(total, settings)

    return _placed(settings, planned)


def _placed(settings: Settings, planned: Callable[[Settings], Plan]) -> Plan:
    """The figures on the kind of cluster that is set, or that ``auto`` chooses."""
    count = settings.cluster.workers
    if settings.cluster.kind != "auto":
        return planned(settings)
    several = planned(_on(settings, kind="local"))
    others = f"{several.workers} worker processes"
    if count not in ("auto", 1):
        return replace(several, choice=f"{others}, set by cluster.workers")
    alone = planned(_on(settings, workers=1))
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


def _on(settings: Settings, **changed: Any) -> Settings:
    cluster = settings.cluster.model_copy(update=changed)
    return settings.model_copy(update={"cluster": cluster})


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
