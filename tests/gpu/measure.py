"""Measurements on a machine with a GPU: rows, and a section for RESULTS.md.

    python -m tests.gpu.measure

Bandwidth of copies; time of a superstep relative to what it allows; the same bits run
to run; states against the CPU's. Rows are printed and written to gpu-report.md.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from tests.reservoir.reference import one_partition
from xnq_dist.core import backend as backends
from xnq_dist.core.backend import GpuBackend
from xnq_dist.core.errors import XnqError
from xnq_dist.graph.halo import Partition
from xnq_dist.reservoir import device, superstep
from xnq_dist.reservoir.weights import Recurrent, draw_recurrent, recurrent_radius

Row = tuple[str, str, float, str]
"""Case, figure, value, unit."""


@dataclass(frozen=True)
class Job:
    """Sizes of what is measured."""

    nodes: int
    edges: int
    dim: int
    steps: int
    """Number of supersteps, even."""


FULL = Job(400_000, 2_000_000, 1024, 30)


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


def random_graph(job: Job) -> Partition:
    """A random directed graph in one partition."""
    rng = np.random.default_rng(0)
    counts = np.bincount(rng.integers(0, job.nodes, job.edges), minlength=job.nodes)
    indptr = np.concatenate([[0], np.cumsum(counts)])
    return one_partition(indptr, rng.integers(0, job.nodes, job.edges))


def states_on_cpu(
    graph: Partition, drive: np.ndarray, recurrent: Recurrent, steps: int
) -> np.ndarray:
    """States after some supersteps."""
    threads = os.cpu_count() or 1
    host = superstep.OnHost([recurrent], threads=threads)
    states, after = superstep.first_states(drive), np.empty_like(drive)
    for _ in range(steps - 1):
        host.superstep(graph, states, states[:0], drive, after)
        states, after = after, states
    return states


def measure_supersteps(job: Job) -> Iterator[Row]:
    """Supersteps of one partition against their floor and the CPU."""
    backend, graph = backends.gpu(), random_graph(job)
    rng = np.random.default_rng(1)
    host = rng.standard_normal((job.nodes, job.dim)).astype(np.float32)
    drive, halo = backend.to_device(host), backend.empty((0, job.dim))
    first, second = backend.empty(host.shape), backend.empty(host.shape)

    def copy() -> None:
        first[...] = drive

    bandwidth = 8 * host.size / seconds(backend, copy)
    yield "copy", "bandwidth", bandwidth / 1e9, "GB/s"
    moved = device.move_partition(backend, graph)
    # Indices and offsets; states that are gathered, drive, states that are written.
    traffic = job.edges * (4 * job.dim + 4) + job.nodes * (8 * job.dim + 8)
    for matrix in ("sparse", "dense"):
        drawn = draw_recurrent(0, job.dim, matrix)
        # A low scale, at which GPU and CPU do not diverge.
        scale = np.float32(0.9 / recurrent_radius(drawn, 0) * job.nodes / job.edges)
        recurrent = replace(drawn, values=drawn.values * scale)
        there = device.OnDevice(backend, [recurrent])

        def step(before: Any, after: Any, there: Any = there) -> None:
            there.superstep(moved, before, halo, drive, after)

        def run(step: Any = step, there: Any = there) -> np.ndarray:
            first[...] = backend.to_device(superstep.first_states(host))
            step(first, second)
            for _ in range(job.steps // 2 - 1):
                step(second, first)
                step(first, second)
            return backend.to_host(second)

        found = run()
        yield matrix, "same bits run to run", float(np.array_equal(found, run())), ""
        gap = np.abs(found - states_on_cpu(graph, host, recurrent, job.steps)).max()
        yield matrix, "largest difference from the CPU", gap, ""
        took = seconds(backend, lambda step=step: step(first, second))
        yield matrix, "seconds", took, "s"
        yield matrix, "times the floor", took * bandwidth / traffic, ""


def machine() -> str:
    """Device and versions, for the section."""
    cupy = backends.gpu().xp
    name = cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()
    driver = cupy.cuda.runtime.driverGetVersion()
    return f"{name}, driver {driver}, CuPy {cupy.__version__}"


def main() -> int:
    """Measure, print rows and write the section; the exit status."""
    try:
        title = f"## Measured {time.strftime('%F')} on {machine()}\n\n"
    except XnqError as error:
        sys.stdout.write(f"{error}\n")
        return 1
    with Path("gpu-report.md").open("w", encoding="utf-8", buffering=1) as report:
        rows = (
            f"| {case} | {figure} | {value:.4g} | {unit} |\n"
            for case, figure, value, unit in measure_supersteps(FULL)
        )
        head = title + "| case | figure | value | |\n|---|---|---|---|\n"
        for text in (head, *rows):
            for stream in (sys.stdout, report):
                stream.write(text)
                stream.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
