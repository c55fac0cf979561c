"""The plan of tables that are there, or of counts, on the machine or cluster there."""

from __future__ import annotations

from dataclasses import replace

from xnq_dist.core import cluster
from xnq_dist.core.backend import gpu_facts
from xnq_dist.core.config import Settings
from xnq_dist.core.need import Cut, GraphSize, Workers
from xnq_dist.core.sizes import parse_bytes
from xnq_dist.core.store import Manifest, Stage
from xnq_dist.core.waiting import first_worker
from xnq_dist.graph.gpu_ingest import ingest_limit, wants_cudf
from xnq_dist.graph.tables import Sources
from xnq_dist.plan.adding import add_up, wanted_partitions
from xnq_dist.plan.figures import Figures
from xnq_dist.plan.unit_costs import GPU_BYTES, Costs, Device, load_costs
from xnq_dist.reservoir.context import needed_rows

__all__ = [
    "count_tables",
    "estimate",
    "estimate_counts",
    "free_memory",
    "plan_of",
    "size_of",
]


def estimate(
    sources: Sources,
    settings: Settings,
    costs: Costs | None = None,
    partitions: int | None = None,
) -> Figures:
    """The plan from the tables' footers; nothing is run.

    Parameters
    ----------
    costs
        What work costs; None: as recorded.
    partitions
        Into how many the graph was cut before, kept where `partitions` is ``auto``.

    Raises
    ------
    InputError
        When a table is missing, empty or lacks a column.
    """
    size = count_tables(sources, settings)
    workers = replace(_workers(settings), ingest=ingest_limit(settings))
    if partitions is None or settings.partitions != "auto":
        partitions = _partitions(settings, size, workers)
    partitions = min(partitions, size.nodes)
    detects = _detects(sources, settings, size.edges)
    return add_up(size, settings, partitions, workers, detects, costs)


def estimate_counts(
    size: GraphSize, settings: Settings, device: Device = "cpu", costs: str = ""
) -> Figures:
    """The plan of a graph that is not there: from its counts alone.

    Parameters
    ----------
    size
        Nodes, directed edges, features, classes and labelled nodes.
    settings
        `cluster.workers`, `.threads` and `.memory_limit` say who would do it, wherever
        that is.
    device
        ``gpu``: one GPU a worker, extrapolated from a data sheet.
    costs
        A file of costs, empty: as recorded.

    Raises
    ------
    InputError
        When the file cannot be read.
    """
    workers = _workers(settings)
    if device == "gpu":
        told = settings.cluster.device_memory
        share = GPU_BYTES if told == "auto" else parse_bytes(told)
        reads = share if wants_cudf(settings) else 0
        workers = Workers(workers.count, 1, workers.memory, share, reads)
    else:
        workers = replace(workers, device=0)
    partitions = _partitions(settings, size, workers)
    known = load_costs(costs) if costs else load_costs()
    detects = _is_detected(settings, size.edges)
    return add_up(size, settings, partitions, workers, detects, known.on(device))


def free_memory() -> int:
    """Bytes of memory that are free on this machine now."""
    import psutil

    return int(psutil.virtual_memory().available)


def plan_of(
    sources: Sources,
    settings: Settings,
    graph: Manifest,
    stage: Stage | None = None,
    labels: Manifest | None = None,
) -> Figures:
    """The plan once the graph is cut: counts and halo are those of the stage.

    Parameters
    ----------
    graph
        Of the stage ``graph``.
    stage
        The stage, to look into its files where the manifest leaves a bound.
    labels
        Of the stage ``labels``; None: labels and classes are assumed.
    """
    facts = graph.facts
    detects = _detects(sources, settings, facts["n_edges"])
    workers = _workers(settings)
    size = size_of(graph, settings, workers.count, stage, labels)
    size = replace(size, memberships=_memberships(sources, settings))
    return add_up(size, settings, facts["partitions"], workers, detects)


def size_of(
    graph: Manifest,
    settings: Settings,
    workers: int,
    stage: Stage | None = None,
    labels: Manifest | None = None,
) -> GraphSize:
    """The counts that a plan is made from, once the graph is cut.

    Parameters
    ----------
    graph, stage
        Of the stage ``graph``; without the stage bytes of the engine ``spmd`` are a
        bound where workers have several partitions.
    labels
        Of the stage ``labels``; None: labels and classes are assumed.
    """
    facts, needed = graph.facts, None
    several = facts["partitions"] > workers
    if stage is not None and several and settings.exchange.engine == "spmd":
        needed = needed_rows(stage, graph, workers)
    size = GraphSize(
        nodes=facts["n_nodes"],
        edges=facts["n_edges"],
        features=facts["n_features"],
        weighted=facts["weighted"],
        halo=facts["halo"],
        diameter=facts.get("effective_diameter"),
        cut=Cut(
            facts["owned"],
            facts["edges"],
            facts["boundary"],
            facts["halo_sizes"],
            needed,
        ),
        node_bytes=sum(record.bytes for record in graph.named("nodes-")),
    )
    if labels is None:
        return size
    known = labels.facts
    return replace(size, classes=len(known["classes"]), labelled=known["n_labelled"])


def count_tables(sources: Sources, settings: Settings) -> GraphSize:
    """The counts that a plan is made from, by the tables' footers.

    Raises
    ------
    InputError
        When a table is missing, empty or lacks a column.
    """
    from xnq_dist.graph.head import (
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
        labelled=labelled_rows(sources.nodes, settings),
        weighted=has_weights(sources.edges, settings),
        memberships=_memberships(sources, settings),
        node_bytes=node_bytes(sources.nodes, settings),
        id_text=id_text(sources.nodes, settings) if wants_cudf(settings) else 0.0,
    )


def _memberships(sources: Sources, settings: Settings) -> int | None:
    from xnq_dist.graph.head import table_size

    if sources.memberships is None:
        return None
    return table_size(sources.memberships, settings, "memberships")[0]


def _workers(settings: Settings) -> Workers:
    if settings.cluster.kind != "address":
        size = cluster.local_size(settings.cluster)
        device = size.device
        on_cpus = settings.backend == "cpu" or settings.exchange.on_cpus
        if not device and not on_cpus:
            # Workers of one machine without dask-cuda share its first GPU.
            device = int(gpu_facts().memory * cluster.DEVICE_SHARE) // size.workers
        return Workers(size.workers, size.threads, size.memory, device)
    connection = cluster.connection_to(settings.cluster)
    with cluster.connect(connection, settings.cluster.timeout) as client:
        threads = first_worker(client)  # none: `open_cluster` says so
        memory = cluster.smallest_memory(client)
    return Workers(max(1, len(threads)), max(threads.values(), default=1), memory)


def _is_detected(settings: Settings, edges: int) -> bool:
    """Whether it is asked for whatever the tables."""
    small = settings.quantifier == "auto" and edges <= settings.auto.reference_edges
    return small or settings.communities == "leiden"


def _detects(sources: Sources, settings: Settings, edges: int) -> bool:
    """Whether Leiden may be asked for communities: to answer for or to learn from."""
    if _is_detected(settings, edges):
        return True
    return settings.communities == "leiden" or (
        settings.communities == "auto" and sources.memberships is None
    )


def _partitions(settings: Settings, size: GraphSize, workers: Workers) -> int:
    if settings.partitions == "auto":
        return wanted_partitions(size, settings, workers)
    return settings.partitions
