"""Memory and work of the graph's groups and of detected communities."""

from __future__ import annotations

from xnq_dist.core.config import Settings
from xnq_dist.core.need import Need, RunSize, Work, added, scaled
from xnq_dist.core.sizes import human
from xnq_dist.graph.needs import client_bytes
from xnq_dist.groups.detection import LEIDEN_EDGE, streams
from xnq_dist.groups.own_groups import ROUNDS
from xnq_dist.reservoir.needs import busiest, load_work

__all__ = ["detection", "needs"]

ROW = 12
"""Bytes per edge of one partition while its edges are packed."""
TEMPORARY = {False: 20, True: 64}
"""Maximum bytes of temporary files per edge of a graph that is known to be symmetric
without weights, and of others: sorted runs, the edges, and the contracted graph's."""
STREAMED_EDGE = 0.3
"""Time of streamed detection per edge, as a multiple of Leiden's (measured)."""


def needs(size: RunSize, settings: Settings) -> Need:
    """Estimate what Leiden needs, or label propagation for groups of large graphs."""
    small = size.edges <= settings.auto.reference_edges
    leiden: Work = {"leiden": size.edges}
    groups = scaled(leiden, 2)  # coarse and fine groups
    if not small:
        visited = {"visit": busiest(size, settings)[1] / size.workers.threads}
        groups = scaled(added(visited, load_work(size, settings)), ROUNDS)
    held = LEIDEN_EDGE * size.edges if small else 0
    detection: Work = {}
    scratch = 0
    if size.detects and streams(settings, size.edges):
        memory = settings.input.memory_bytes
        held = max(held, memory + size.edges // size.partitions * ROW)
        scratch = size.edges * TEMPORARY[size.weighted or settings.input.directed]
        detection = scaled(leiden, STREAMED_EDGE)
    elif size.detects:
        held, detection = LEIDEN_EDGE * size.edges, leiden
    return Need(
        client=client_bytes(size, held) if held else 0,
        scratch=scratch,
        work={"readout": groups, "quantify": detection},
    )


def detection(size: RunSize, settings: Settings) -> str:
    """How Leiden detects communities, and why; empty: it does not."""
    if not size.detects:
        return ""
    needed = human(LEIDEN_EDGE * size.edges)
    if streams(settings, size.edges):
        memory = human(settings.input.memory_bytes)
        return (
            f"streamed, on a contracted graph (all edges need {needed}; input.memory "
            f"is {memory})"
        )
    return f"on all edges, {needed}"
