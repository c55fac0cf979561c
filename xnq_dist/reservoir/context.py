"""Parameters of a reservoir, and the partitions' features and places on workers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from xnq_dist.core.arrays import Floats32, Ints
from xnq_dist.core.store import Manifest, Stage
from xnq_dist.graph.layout import load_nodes
from xnq_dist.reservoir.weights import (
    Weights,
    block_seed,
    draw_weights,
    units_of_blocks,
)

__all__ = [
    "ReservoirSpec",
    "draw_all",
    "feature_matrix",
    "place",
    "place_on",
]


@dataclass(frozen=True)
class Block:
    """Parameters of one of several independent reservoirs that differ between them."""

    seed: int
    units: int
    recurrent_scale: float
    radius: float


@dataclass(frozen=True)
class ReservoirSpec:
    """All parameters, besides the graph, that the states depend on."""

    seed: int
    dim: int
    supersteps: int
    matrix: str
    nonzeros: int
    recurrent_scale: float | tuple[float, ...]
    """Several values: as many independent reservoirs, which share the units."""
    input_scale: float
    bias_scale: float
    rho: float
    """Spectral radius of the adjacency matrix."""
    radius: float | tuple[float, ...]
    """Spectral radius of the recurrent matrix before scaling, for each reservoir."""
    exchange_dtype: str
    """Type of exchanged and stored states; on GPUs ``float32``."""
    backend: str = "cpu"
    """``cpu`` or ``gpu``; ``auto`` until the workers' backends are known."""

    def blocks(self) -> tuple[Block, ...]:
        """The independent reservoirs, one for each recurrent scale.

        Each has its own seed and equals the single reservoir with that seed.
        """
        scales, radii = self.recurrent_scale, self.radius
        scales = scales if isinstance(scales, tuple) else (scales,)
        radii = radii if isinstance(radii, tuple) else (radii,)
        units = units_of_blocks(self.dim, len(scales))
        return tuple(
            Block(block_seed(self.seed, number), units[number], scale, radius)
            for number, (scale, radius) in enumerate(zip(scales, radii, strict=True))
        )

    def single(self, number: int) -> ReservoirSpec:
        """One of the independent reservoirs, with the same states."""
        block = self.blocks()[number]
        return replace(
            self,
            seed=block.seed,
            dim=block.units,
            nonzeros=min(self.nonzeros, block.units),
            recurrent_scale=block.recurrent_scale,
            radius=block.radius,
        )


def draw_all(spec: ReservoirSpec, features: int) -> list[Weights]:
    """Weights of each of the independent reservoirs."""
    return [
        draw_weights(
            block.seed,
            block.units,
            features,
            matrix=spec.matrix,
            nonzeros=min(spec.nonzeros, block.units),
            recurrent_scale=block.recurrent_scale,
            input_scale=spec.input_scale,
            bias_scale=spec.bias_scale,
            rho=spec.rho,
            radius=block.radius,
        )
        for block in spec.blocks()
    ]


def feature_matrix(graph: Stage, manifest: Manifest, number: int) -> Floats32:
    """Features of a partition's owned rows, float32, shape (n_owned, F)."""
    column = load_nodes(graph, manifest, number, ["features"])["features"]
    width = column.type.list_size
    values = column.combine_chunks().flatten().to_numpy(zero_copy_only=False)
    return np.ascontiguousarray(values.reshape(-1, width), dtype=np.float32)


def place(edges: Sequence[int], workers: Sequence[str]) -> list[str]:
    """A worker for every partition: by falling number of edges, to the least loaded."""
    load = dict.fromkeys(sorted(workers), 0)
    chosen = [""] * len(edges)
    for number in sorted(range(len(edges)), key=lambda p: (-edges[p], p)):
        worker = min(load, key=lambda w: (load[w], w))
        chosen[number] = worker
        load[worker] += edges[number] + 1
    return chosen


def place_on(edges: Sequence[int], workers: int) -> Ints:
    """Number of the worker of each partition, shape (P,), chosen by `place`."""
    chosen = place(edges, [f"{number:06d}" for number in range(workers)])
    return np.array([int(worker) for worker in chosen], np.int64)
