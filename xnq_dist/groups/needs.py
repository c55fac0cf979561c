"""Memory and disk of the graph's groups and of detected communities."""

from __future__ import annotations

from xnq_dist.core.need import Need, RunSize
from xnq_dist.core.settings import Settings
from xnq_dist.core.stages import LEIDEN_EDGE, streams
from xnq_dist.graph.needs import client_bytes
from xnq_dist.groups.detection import groups_by_all_edges

__all__ = ["needs"]

ROW = 12
"""Bytes per edge of one partition while its edges are packed."""
SYMMETRIC, ANY = 20, 64
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
        packed = size.edges // size.partitions * ROW
        held = max(held, settings.input.memory_bytes + packed)
        both = size.weighted or settings.input.directed
        scratch = size.edges * (ANY if both else SYMMETRIC)
    return Need(client=client_bytes(size, held), scratch=scratch)
