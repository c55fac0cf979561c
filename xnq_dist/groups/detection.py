"""Which Leiden detects communities: igraph's on the CPU, or cuGraph's on a GPU."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from xnq_dist.core.backend import cugraph
from xnq_dist.core.config import Settings
from xnq_dist.core.errors import SettingsError

if TYPE_CHECKING:
    import scipy.sparse as sp

__all__ = ["detect", "engine_of"]

log = logging.getLogger(__name__)


def engine_of(settings: Settings) -> Literal["igraph", "cugraph"]:
    """The engine: as set; with auto, cuGraph on a cluster of GPUs that has it.

    Raises
    ------
    SettingsError
        When `leiden.engine` is ``cugraph`` and the package or a device is missing.
    """
    wanted = settings.leiden.engine
    if wanted == "cugraph":
        cugraph()
        return wanted
    if wanted == "auto" and settings.cluster.kind == "cuda":
        try:
            cugraph()
        except SettingsError as error:
            log.warning("communities are detected on the CPU: %s", error)
        else:
            return "cugraph"
    return "igraph"


def detect(
    adjacency: sp.csr_array, resolution: float, settings: Settings
) -> NDArray[np.int64]:
    """Community of every node, shape (N,), numbered by falling size.

    Needs all edges in this process, with cuGraph on one device as well.

    Parameters
    ----------
    adjacency, resolution
        As `leiden` takes them.
    settings
        `leiden.engine`, `cluster.kind` and `seed` are used.
    """
    if engine_of(settings) == "cugraph":
        from xnq_dist.groups.gpu_leiden import leiden_on_gpu

        return leiden_on_gpu(adjacency, resolution, settings.seed)
    from xnq_dist.groups.leiden import leiden

    return leiden(adjacency, resolution, settings.seed)
