"""Artificial jobs of given sizes for `measure.py`."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from xnq_dist.core.backend import GpuBackend
from xnq_dist.graph.halo import Partition
from xnq_dist.quantify.interface import Communities, NodeTable
from xnq_dist.reservoir import device
from xnq_dist.reservoir.weights import draw_weights

__all__ = [
    "FULL",
    "GENIUS",
    "PRECISIONS",
    "SMALL",
    "Job",
    "made_drive",
    "made_partition",
    "made_posteriors",
    "made_weights",
    "seconds",
    "states_after",
]

PRECISIONS = ("float32", "tf32", "float16", "bfloat16")


@dataclass(frozen=True)
class Job:
    """Sizes of measured jobs."""

    nodes: int
    edges: int
    features: int
    dim: int
    communities: int
    size: int
    steps: int
    seeds: int = 3
    """Number of runs on each backend, for figures that depend on the seed."""


FULL = Job(400_000, 2_000_000, 16, 1024, 1_000_000, 100, 30)
GENIUS = Job(421_961, 984_979, 12, 1024, 20_000, 100, 30)
SMALL = Job(400, 2_000, 4, 32, 50, 20, 3, 1)


def seconds(backend: GpuBackend, work: Callable[[], Any], repeats: int = 5) -> float:
    """Minimum time of several runs after a warm-up."""
    work()
    found = []
    for _ in range(repeats):
        backend.synchronize()
        began = time.perf_counter()
        work()
        backend.synchronize()
        found.append(time.perf_counter() - began)
    return min(found)


def made_partition(job: Job, seed: int = 0) -> Partition:
    """A random directed graph in one partition."""
    rng = np.random.default_rng(seed)
    targets = np.sort(rng.integers(0, job.nodes, job.edges))
    counts = np.bincount(targets, minlength=job.nodes)
    return Partition(
        number=0,
        indptr=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        indices=rng.integers(0, job.nodes, job.edges).astype(np.int32),
        weights=None,
        halo=np.empty(0, np.int64),
        halo_offsets=np.zeros(2, np.int64),
        send_rows=np.empty(0, np.int32),
        send_offsets=np.zeros(2, np.int64),
    )


def made_weights(job: Job, matrix: str, scale: float = 0.9) -> Any:
    """A reservoir at a contractive scale, from a bound on its spectral radius."""
    return draw_weights(
        0,
        job.dim,
        job.features,
        matrix=matrix,
        nonzeros=min(16, job.dim),
        recurrent_scale=scale,
        input_scale=0.5,
        bias_scale=0.1,
        rho=2.0 * job.edges / job.nodes,
        radius=float(np.sqrt(job.dim / 3)) if matrix == "dense" else 2.4,
    )


def states_after(
    backend: GpuBackend, part: Partition, drive: Any, recurrent: Any, steps: int
) -> Any:
    """States on the device after some supersteps."""
    found = device.first_states(backend, drive)
    nothing = np.empty((0, drive.shape[1]), np.float32)
    for _ in range(steps - 1):
        found = device.superstep(backend, part, found, nothing, drive, recurrent)
    return found


def made_drive(job: Job, weights: Any, seed: int = 1) -> Any:
    """W_in x + b of random features, on the host."""
    rng = np.random.default_rng(seed)
    features = rng.standard_normal((job.nodes, job.features)).astype(np.float32)
    return features @ weights.inputs.T + weights.bias


def made_posteriors(job: Job) -> tuple[NodeTable, Communities]:
    """Posteriors of two classes, and communities of several sizes."""
    rng = np.random.default_rng(2)
    share = rng.beta(0.7, 0.7, job.nodes)
    posteriors = np.stack([1 - share, share], axis=1).astype(np.float32)
    nodes = NodeTable(
        posteriors,
        np.full(job.nodes, -1, np.int32),
        np.zeros(job.nodes, np.bool_),
        ("0", "1"),
    )
    sizes = np.maximum(1, rng.geometric(1 / job.size, job.communities))
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    return nodes, Communities(offsets, rng.integers(0, job.nodes, int(offsets[-1])))
