"""The figures of a run, added up from what its stages need."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from xnq_dist.core.config import Settings
from xnq_dist.core.need import GraphSize, Need, RunSize, Work, Workers
from xnq_dist.graph import needs as graph
from xnq_dist.graph.gpu_ingest import planned_bytes
from xnq_dist.groups import needs as groups
from xnq_dist.plan.figures import Figures
from xnq_dist.plan.unit_costs import Costs, load_costs
from xnq_dist.quantify import needs as quantify
from xnq_dist.readout import needs as readout
from xnq_dist.reservoir import needs as reservoir
from xnq_dist.reservoir.volume import SLACK, WORKER

__all__ = ["add_up", "wanted_partitions"]

STAGES: Mapping[str, Callable[[RunSize, Settings], Need]] = {
    "graph": graph.needs,
    "embeddings": reservoir.needs,
    "groups": groups.needs,
    "readout": readout.needs,
    "quantify": quantify.needs,
}
"""Who states what a stage takes, in the order of a run."""
LINES = ("ingest", "supersteps", "readout", "quantify", "write")
"""Parts of the time."""
BEYOND = 10
"""Times the edges that the costs were checked on, beyond which times are said to be
extrapolated."""


def add_up(
    graph_size: GraphSize,
    settings: Settings,
    partitions: int,
    workers: Workers,
    detects: bool = False,
    costs: Costs | None = None,
) -> Figures:
    """Add up what a run takes.

    Parameters
    ----------
    graph_size
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
    size = RunSize.of(graph_size, partitions, workers, detects)
    needs = {name: stage(size, settings) for name, stage in STAGES.items()}
    steps, costs = reservoir.supersteps_of(size, settings), costs or load_costs()
    moved = steps.moves.moved * settings.reservoir.dim * steps.wire
    stages = _seconds(needs.values(), costs)
    return Figures(
        nodes=size.nodes,
        edges=size.edges,
        partitions=partitions,
        workers=workers.count,
        halo_rows=graph.halo_rows(size),
        halo_is_bound=size.halo is None,
        engine=settings.exchange.engine,
        bytes_per_superstep=moved,
        bytes_are_bound=not steps.moves.exact,
        exchanged_bytes=(steps.length - 1) * moved,
        block_memory=steps.moves.held * steps.tile * steps.wire,
        states=steps.states,
        state_disk=steps.files,
        state_bytes=steps.traffic,
        worker_memory=max(need.worker for need in needs.values()),
        worker_limit=workers.memory,
        threads=workers.threads,
        client_memory=max(need.client for need in needs.values()),
        run_disk=_disk(needs.values()),
        scratch_disk=max(need.scratch for need in needs.values()),
        seconds=sum(stages.values()),
        stages=stages,
        basis=costs.basis,
        extrapolated=size.edges > BEYOND * costs.edges_measured,
        device_memory=max(need.device for need in needs.values()),
        device_limit=workers.device,
        device_tile=reservoir.device_need(size, settings)[1],
        memberships=size.memberships,
        detects=detects,
        needs={name: need.to_dict() for name, need in needs.items()},
        **_reading(size, settings),
    )


def _reading(size: RunSize, settings: Settings) -> dict[str, Any]:
    """What reading edges takes of a GPU; nothing once they are read."""
    limit = 0 if size.halo is not None else size.workers.ingest
    read = size.nodes, size.edges, size.id_text, settings.input.memory_bytes
    memory, least = planned_bytes(*read, limit)
    return {
        "ingest_memory": memory,
        "ingest_least": least,
        "ingest_limit": limit,
        "ingest_asked": settings.input.engine == "cudf",
    }


def _disk(needs: Iterable[Need]) -> int:
    """Bytes of the run directory at its largest; stages come one after the other."""
    kept = largest = 0
    for need in needs:
        largest = max(largest, kept + need.disk)
        kept += need.kept
    return max(largest, kept)


def _seconds(needs: Collection[Need], costs: Costs) -> dict[str, float]:
    """Seconds by line: work times what a unit of it costs."""
    found = {"fixed": costs.fixed}
    for line in LINES:
        works = (need.work.get(line, {}) for need in needs)
        found[line] = sum(_priced(work, costs) for work in works)
    return found


def _priced(work: Work, costs: Costs) -> float:
    return sum(units * float(getattr(costs, cost)) for cost, units in work.items())


def wanted_partitions(
    graph_size: GraphSize, settings: Settings, workers: Workers
) -> int:
    """Number of partitions when nobody sets it.

    One per worker; with states on a disk as many more as make the states of those that
    are worked on at a time fit.
    """
    nodes = graph_size.nodes
    count = max(1, min(workers.count, nodes // 64))
    most = max(count, nodes // 64)
    while True:
        size = RunSize.of(graph_size, count, workers)
        steps = reservoir.supersteps_of(size, settings)
        # A little room: partitions are not all of one size.
        fits = WORKER + SLACK * steps.need["disk"] <= workers.memory
        if steps.states == "memory" or fits or count == most:
            return count
        if workers.memory <= WORKER:  # no number of partitions is enough
            return count
        more = max(1, count // workers.count // 8)
        count = min(most, count + more * workers.count)
