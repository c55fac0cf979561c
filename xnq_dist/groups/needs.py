"""Memory and disk of the graph's groups and of detected communities."""

from __future__ import annotations

from xnq_dist.core.need import Need, RunSize
from xnq_dist.core.settings import Settings
from xnq_dist.core.sizes import human
from xnq_dist.graph.needs import client_bytes
from xnq_dist.groups.detection import LEIDEN_EDGE, groups_by_all_edges, streams

__all__ = ["detection", "needs"]

ROW = 12
"""Bytes per edge of one partition while its edges are packed."""
TEMPORARY = {False: 20, True: 64}
"""Maximum bytes of temporary files per edge of a graph that is known to be symmetric
without weights, and of others: sorted runs, the edges, and the contracted graph's."""


def needs(size: RunSize, settings: Settings) -> Need:
    """Estimate what Leiden needs, on all edges or on a contracted graph."""
    small = groups_by_all_edges(size.edges)
    streamed = size.detects and streams(settings, size.edges)
    held = scratch = 0
    if small or (size.detects and not streamed):
        held = LEIDEN_EDGE * size.edges
    if streamed or not small:
        memory = settings.input.memory_bytes
        held = max(held, memory + size.edges // size.partitions * ROW)
        scratch = size.edges * TEMPORARY[size.weighted or settings.input.directed]
    return Need(client=client_bytes(size, held), scratch=scratch)


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
