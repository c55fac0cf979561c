"""Detection of communities by the engine that the settings and the graph call for."""

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

__all__ = ["LEIDEN_EDGE", "detect", "engine_of", "streams"]

log = logging.getLogger(__name__)

LEIDEN_EDGE = 130
"""Bytes per directed edge while Leiden runs (measured), adjacency included."""


def streams(settings: Settings, edges: int) -> bool:
    """Whether edges stay on disk: as set, or with auto if `input.memory` is less."""
    engine = settings.leiden.engine
    large = edges * LEIDEN_EDGE > settings.input.memory_bytes
    return engine == "streamed" or (engine == "auto" and large)


def engine_of(settings: Settings, edges: int) -> Literal["cpu", "cugraph", "streamed"]:
    """Return the engine: as set, or with auto cuGraph on a GPU cluster if installed.

    Otherwise auto is cpu, or streamed where `edges` do not fit; see `streams`.

    Raises
    ------
    SettingsError
        When `leiden.engine` is ``cugraph`` and the package or a device is missing.
    """
    engine = settings.leiden.engine
    if engine == "cugraph":
        cugraph()
        return engine
    if engine == "auto" and CLUSTERS.record_of(settings.cluster.kind).gpu:
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
