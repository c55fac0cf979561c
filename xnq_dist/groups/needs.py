"""Memory and work of the graph's groups and of detected communities."""

from __future__ import annotations

from xnq_dist.core.config import Settings
from xnq_dist.core.need import Need, RunSize, Work, added, scaled
from xnq_dist.graph.needs import client_bytes
from xnq_dist.groups.own_groups import ROUNDS
from xnq_dist.reservoir.needs import busiest, load_work

__all__ = ["needs"]

LEIDEN_EDGE = 130
"""Bytes per directed edge while Leiden runs (measured), adjacency included."""


def needs(size: RunSize, settings: Settings) -> Need:
    """Estimate what Leiden needs, or label propagation for groups of large graphs."""
    small = size.edges <= settings.auto.reference_edges
    leiden: Work = {"leiden": size.edges}
    groups = scaled(leiden, 2)  # coarse and fine groups
    if not small:
        visited = {"visit": busiest(size, settings)[1] / size.lanes}
        groups = scaled(added(visited, load_work(size, settings)), ROUNDS)
    held = client_bytes(size, LEIDEN_EDGE * size.edges)
    return Need(
        client=held if small or size.detects else 0,
        work={"readout": groups, "quantify": leiden if size.detects else {}},
    )
