"""Parts of `measure.py` that time single kernels: supersteps, SLD, memory."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from tests.gpu.aims import DIFFERENCE, Row
from tests.gpu.made import (
    PRECISIONS,
    Job,
    made_drive,
    made_partition,
    made_posteriors,
    made_weights,
    seconds,
    states_after,
)
from xnq_dist.core import backend as backends
from xnq_dist.core.backend import GpuBackend
from xnq_dist.quantify.classic.sld import Sld
from xnq_dist.quantify.gpu.sets import GpuSld
from xnq_dist.quantify.interface import Communities, Reference
from xnq_dist.reservoir import device
from xnq_dist.reservoir.superstep import superstep


def floor(backend: GpuBackend, job: Job) -> tuple[float, float]:
    """Bytes read and written per second, and floating-point operations per second."""
    count = min(2**28, 4096 * job.nodes)
    source = backend.xp.zeros(count, np.float32)
    target = backend.empty((count,))

    def copy() -> None:
        target[...] = source

    bandwidth = 8 * count / seconds(backend, copy)
    rows = min(8192, job.nodes)
    x = device.encode(np.ones((rows, job.dim), np.float32), backend.state_dtype)
    matrix = device.encode(np.ones((job.dim, job.dim), np.float32), x.dtype)
    moved, weights = backend.to_device(x), backend.to_device(matrix)
    out = backend.empty((rows, job.dim))
    took = seconds(backend, lambda: backend.multiply(moved, weights, out))
    return bandwidth, 2.0 * rows * job.dim**2 / took


def part_floor(make: Callable[[str], GpuBackend], job: Job) -> Iterator[Row]:
    """Copy bandwidth and rates of products."""
    for precision in PRECISIONS:
        bandwidth, rate = floor(make(precision), job)
        if precision == "float32":
            yield "floor", "copy", "bandwidth", bandwidth / 1e9, "GB/s"
        yield "floor", precision, "product", rate / 1e12, "TFLOP/s"


def part_superstep(make: Callable[[str], GpuBackend], job: Job) -> Iterator[Row]:
    """Time relative to the lower bound of copy and product; error of low precisions."""
    part, nothing = made_partition(job), np.empty((0, job.dim), np.float32)
    for matrix in ("dense", "sparse"):
        weights = made_weights(job, matrix)
        host = made_drive(job, weights)
        exact: Any = None
        for precision in PRECISIONS if matrix == "dense" else ("float32", "float16"):
            backend = make(precision)
            there = device.move_partition(backend, part)
            moved: Any = device.move_weights(backend, weights.recurrent)
            drive = backend.to_device(host)
            case = f"{matrix}-{precision}"
            after = states_after(backend, there, drive, moved, job.steps)
            answer = device.decode(backend.to_host(after))
            exact = answer if precision == "float32" else exact
            gap = float(np.abs(answer - exact).max())
            yield "superstep", case, "largest error", gap, ""
            second = states_after(backend, there, drive, moved, job.steps)
            same = np.array_equal(answer, device.decode(backend.to_host(second)))
            yield "superstep", case, "same bits run to run", float(same), ""
            again = partial(
                device.superstep, backend, there, after, nothing, drive, moved
            )
            took = seconds(backend, again)
            bandwidth, rate = floor(backend, job)
            item = backend.state_dtype.itemsize
            traffic = job.edges * (job.dim * item + 4) + job.nodes * (
                8 + job.dim * (item + 4)
            )
            least = traffic / bandwidth
            if moved.dense:
                least += 2.0 * job.nodes * job.dim**2 / rate
            yield "superstep", case, "seconds", took, "s"
            yield "superstep", case, "floor", least, "s"
            yield "superstep", case, "times the floor", took / least, ""


def part_states(make: Callable[[str], GpuBackend], job: Job) -> Iterator[Row]:
    """Supersteps on CPU and device at a scale where the map contracts."""
    part, backend = made_partition(job), make("float32")
    there = device.move_partition(backend, part)
    threads = os.cpu_count() or 1
    nothing = np.empty((0, job.dim), np.float32)
    for matrix in ("dense", "sparse"):
        weights = made_weights(job, matrix)
        drive = np.ascontiguousarray(made_drive(job, weights), np.float32)
        moved = device.move_weights(backend, weights.recurrent)
        after = states_after(backend, there, backend.to_device(drive), moved, job.steps)
        here = np.tanh(drive)
        for _ in range(job.steps - 1):
            here = superstep(
                backends.cpu(),
                part,
                here,
                lambda _: nothing,
                drive,
                weights.recurrent,
                [slice(0, job.dim)],
                threads,
            )
        gap = float(np.abs(device.decode(backend.to_host(after)) - here).max())
        yield "states", f"{matrix}-float32", DIFFERENCE, gap, ""


def part_sld(make: Callable[[str], GpuBackend], job: Job) -> Iterator[Row]:
    """One launch for all communities, compared with the CPU kernel on some of them."""
    nodes, batch = made_posteriors(job)
    reference = Reference(np.array([0.5, 0.5]))
    backend = make("float32")
    found = GpuSld().estimate(batch, nodes, reference)
    took = seconds(backend, lambda: GpuSld().estimate(batch, nodes, reference), 3)
    yield "sld", f"{job.communities} communities", "seconds, transfers in", took, "s"
    some = min(len(batch), 20_000)
    few = Communities(batch.offsets[: some + 1], batch.members)
    Sld().estimate(few, nodes, reference)
    began = time.perf_counter()
    here = Sld().estimate(few, nodes, reference)
    there = found.prevalence[:some]
    spent = (time.perf_counter() - began) * len(batch) / some
    yield "sld", "cpu, one core, scaled up", "seconds", spent, "s"
    gap = float(np.abs(there - here.prevalence).max())
    yield "sld", f"first {some}", DIFFERENCE, gap, ""


def part_memory(make: Callable[[str], GpuBackend], job: Job) -> Iterator[Row]:
    """Memory of the pool during supersteps, compared with the plan."""
    for precision in ("float32", "bfloat16"):
        backend = make(precision)
        backend.release()
        before = backend.held_bytes()
        weights = made_weights(job, "dense")
        part = device.move_partition(backend, made_partition(job))
        moved = device.move_weights(backend, weights.recurrent)
        drive = backend.to_device(made_drive(job, weights))
        states_after(backend, part, drive, moved, 4)
        item = backend.state_dtype.itemsize
        planned = device.device_bytes(
            *(job.nodes, 0, job.edges, job.dim, job.dim),
            job.dim**2 * item,
            item,
        )
        peak = backend.held_bytes() - before
        yield "memory", precision, "peak", peak / 2**30, "GiB"
        yield "memory", precision, "plan", planned / 2**30, "GiB"
        if peak:  # a stand-in has no pool
            yield "memory", precision, "peak over plan", peak / planned, ""
