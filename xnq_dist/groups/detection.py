"""Detection of communities: Leiden on all edges, or on a contracted graph."""

from __future__ import annotations

from pathlib import Path

from xnq_dist.core.arrays import Ints
from xnq_dist.core.inputs import streams
from xnq_dist.core.settings import Settings
from xnq_dist.core.store import Manifest

__all__ = ["detect", "groups_by_all_edges"]

REFERENCE_EDGES = 5_000_000
"""Edges up to which Leiden finds the groups that intervals are learnt on from all of
them, in 800 MB; larger graphs are contracted first."""


def groups_by_all_edges(edges: int) -> bool:
    """Whether Leiden holds all edges for the groups that intervals are learnt on."""
    return edges <= REFERENCE_EDGES


def detect(graph: Manifest, settings: Settings, folder: Path) -> Ints:
    """Community of every node of a stage ``graph``, numbered by decreasing size.

    `folder`: for temporary files where edges do not fit in memory.
    """
    from xnq_dist.graph.layout import read_adjacency
    from xnq_dist.groups import leiden, streamed

    chosen = settings.leiden.resolution, settings.seed
    if streams(settings, int(graph.facts["n_edges"])):
        memory = settings.input.memory_bytes
        return streamed.detect(graph, folder, memory, *chosen)
    return leiden.leiden(read_adjacency(graph), *chosen)
