"""Groups of the graph's nodes, independent of partitions on disk and of workers.

One grouping is by degree. Others are by links: Leiden where one process can hold all
edges, else on a contracted graph. Each depends only on the graph and the seed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from xnq_dist.core import limits
from xnq_dist.core.arrays import Ints32
from xnq_dist.core.leftovers import scratch_folder
from xnq_dist.core.settings import Settings
from xnq_dist.core.store import Manifest
from xnq_dist.graph import layout
from xnq_dist.groups.detection import detect_streamed, groups_by_all_edges
from xnq_dist.groups.leiden import leiden

__all__ = ["FINE", "Groups", "degree_groups", "node_groups"]

RESOLUTION = 3.0
"""Resolution of Leiden for the coarse groups."""
FINE = 10.0
"""Resolution for the fine groups, where one process can hold all edges."""
DEGREES = 20
"""Maximum number of groups by degree."""


@dataclass(frozen=True, eq=False)
class Groups:
    """Groups of the graph's nodes by several criteria, shape (N,) each."""

    links: tuple[Ints32, ...]
    """By links, numbered by decreasing size; coarse groups, and fine ones where Leiden
    had all edges."""
    degree: Ints32
    """By the number of in-neighbours."""

    @property
    def stacked(self) -> Ints32:
        """All groupings, the coarse one first, shape (L, N)."""
        return np.stack([*self.links, self.degree])


def degree_groups(degree: NDArray[np.integer]) -> Ints32:
    """At most `DEGREES` groups of about equal size, nodes of a degree together.

    Examples
    --------
    >>> degree_groups(np.array([5, 1, 1, 9])).tolist()
    [1, 0, 0, 2]
    """
    ends = np.unique(np.quantile(degree, np.arange(1, DEGREES) / DEGREES))
    bins = np.searchsorted(ends, degree, side="left")
    return np.unique(bins, return_inverse=True)[1].astype(np.int32)


def node_groups(graph: Manifest, settings: Settings) -> Groups:
    """Compute the groups of the graph's nodes in this process.

    It holds all edges for Leiden, or beyond `detection.REFERENCE_EDGES` what
    `detection.detect_streamed` holds, with temporary files in `scratch`.
    """
    n_nodes, n_edges = int(graph.facts["n_nodes"]), int(graph.facts["n_edges"])
    if not n_edges:
        one_group = np.zeros(n_nodes, np.int32)
        return Groups((one_group,), one_group)
    limits.release()  # what METIS left
    if groups_by_all_edges(n_edges):
        adjacency = layout.read_adjacency(graph)
        links = [
            leiden(adjacency, resolution, settings.seed, quick=True)
            for resolution in (RESOLUTION, FINE)
        ]
    else:
        with scratch_folder(settings.scratch) as folder:
            more = settings.input.memory_bytes, RESOLUTION, settings.seed
            links = [detect_streamed(graph, folder, *more, quick=True)]
    degree = np.empty(n_nodes, np.int32)
    for number, rows in enumerate(layout.node_index(graph)):
        degree[rows] = np.diff(layout.load_partition(graph, number).indptr)
    by_links = tuple(found.astype(np.int32) for found in links)
    return Groups(by_links, degree_groups(degree))
