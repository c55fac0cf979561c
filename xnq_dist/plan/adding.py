"""Adds up the plan of a run from the needs of its stages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict

from xnq_dist.core.need import GraphSize, Need, RunSize, Workers
from xnq_dist.core.settings import Settings
from xnq_dist.graph import needs as graph
from xnq_dist.groups import needs as groups
from xnq_dist.plan.figures import Plan
from xnq_dist.plan.seconds import expected_seconds
from xnq_dist.quantify import needs as quantify
from xnq_dist.readout import needs as readout
from xnq_dist.reservoir import needs as reservoir

__all__ = ["add_up"]

STAGES: Mapping[str, Callable[[RunSize, Settings], Need]] = {
    "graph": graph.needs,
    "embeddings": reservoir.needs,
    "groups": groups.needs,
    "readout": readout.needs,
    "quantify": quantify.needs,
}
"""Functions that return the needs of a stage, in the order of a run."""


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
        scratch_disk=max(need.scratch for need in needs.values()),
        seconds=(
            None if workers.device else expected_seconds(size, settings, run_disk)
        ),
        device_memory=max(need.device for need in needs.values()),
        device_limit=workers.device,
        memberships=size.memberships,
        detects=detects,
        needs={name: asdict(need) for name, need in needs.items()},
    )


def _disk(needs: Iterable[Need]) -> int:
    """Peak bytes of the run directory; stages run one after the other."""
    kept = largest = 0
    for need in needs:
        largest = max(largest, kept + need.disk)
        kept += need.kept
    return max(largest, kept)
