"""Parameters of a reservoir, and the partitions' features and places on workers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from xnq_dist.core.arrays import Floats32
from xnq_dist.core.store import Manifest, Stage
from xnq_dist.graph.layout import load_nodes
from xnq_dist.reservoir.weights import Reservoir

W = TypeVar("W", int, str)

__all__ = [
    "ReservoirSpec",
    "feature_matrix",
    "place",
]


@dataclass(frozen=True)
class ReservoirSpec:
    """All parameters, besides the graph, that the states depend on."""

    parts: tuple[Reservoir, ...]
    """Independent reservoirs, side by side; each has the states that it has alone."""
    supersteps: int
    exchange_dtype: str
    """Type of exchanged and stored states; on GPUs ``float32``."""
    backend: str = "cpu"
    """``cpu`` or ``gpu``; ``auto`` until the workers' backends are known."""

    @property
    def dim(self) -> int:
        """Units of all reservoirs, d'."""
        return sum(part.units for part in self.parts)


def feature_matrix(graph: Stage, manifest: Manifest, number: int) -> Floats32:
    """Features of a partition's owned rows, float32, shape (n_owned, F)."""
    column = load_nodes(graph, manifest, number, ["features"])["features"]
    width = column.type.list_size
    values = column.combine_chunks().flatten().to_numpy(zero_copy_only=False)
    return np.ascontiguousarray(values.reshape(-1, width), dtype=np.float32)


def place(edges: Sequence[int], workers: Sequence[W]) -> list[W]:
    """A worker for every partition: by falling number of edges, to the least loaded."""
    load = dict.fromkeys(sorted(workers), 0)
    chosen = [workers[0]] * len(edges)
    for number in sorted(range(len(edges)), key=lambda p: (-edges[p], p)):
        worker = min(load, key=lambda w: (load[w], w))
        chosen[number] = worker
        load[worker] += edges[number] + 1
    return chosen
