"""Detection of communities by the engine that the cluster and the graph call for."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Literal

from xnq_dist.core.arrays import Ints
from xnq_dist.core.backend import cugraph
from xnq_dist.core.clusters import CLUSTERS
from xnq_dist.core.errors import SettingsError
from xnq_dist.core.settings import Settings
from xnq_dist.core.store import Manifest, Stage

__all__ = ["LEIDEN_EDGE", "detect", "engine_of", "groups_by_all_edges", "streams"]

log = logging.getLogger(__name__)

LEIDEN_EDGE = 160
"""Bytes per directed edge while Leiden runs, adjacency included (measured: 104 to 155,
most with loops)."""
REFERENCE_EDGES = 5_000_000
"""Edges up to which Leiden finds the groups that intervals are learnt on from all of
them, in 800 MB; larger graphs are contracted first."""


def groups_by_all_edges(edges: int) -> bool:
    """Whether Leiden holds all edges for the groups that intervals are learnt on."""
    return edges <= REFERENCE_EDGES


def streams(settings: Settings, edges: int) -> bool:
    """Whether edges stay on disk because `input.memory` does not hold them."""
    return edges * LEIDEN_EDGE > settings.input.memory_bytes


def engine_of(settings: Settings, edges: int) -> Literal["cpu", "cugraph", "streamed"]:
    """Return the engine: cuGraph on a GPU cluster if it is installed.

    Otherwise cpu, or streamed where `edges` do not fit; see `streams`.
    """
    if CLUSTERS.record_of(settings.cluster.kind).gpu:
        try:
            cugraph()
        except SettingsError as error:
            log.warning("communities are detected on the CPU: %s", error)
        else:
            return "cugraph"
    return "streamed" if streams(settings, edges) else "cpu"


def detect(stage: Stage, graph: Manifest, settings: Settings, folder: Path) -> Ints:
    """Community of every node of a stage ``graph``, numbered by decreasing size.

    `folder`: for temporary files of the engine ``streamed``.
    """
    from xnq_dist.graph.layout import read_adjacency
    from xnq_dist.groups import leiden, streamed

    engine = engine_of(settings, int(graph.facts["n_edges"]))
    chosen = settings.leiden.resolution, settings.seed
    if engine == "streamed":
        memory = settings.input.memory_bytes
        return streamed.detect(stage, graph, folder, memory, *chosen)
    on_gpu = engine == "cugraph"
    by = leiden.leiden_on_gpu if on_gpu else leiden.leiden
    return by(read_adjacency(stage, graph), *chosen)
