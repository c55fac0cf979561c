"""Measurements on a GPU: rows on the screen, and a section for RESULTS.md.

    python -m tests.gpu.measure                      # on a machine with a GPU
    python -m tests.gpu.measure --parts pipeline     # one part
    python -m tests.gpu.measure --standin --small    # on a CPU: test the command

Parts: `floor` (bandwidth of copies, rate of products), `superstep` (time relative to
what bandwidth and products allow, the same bits run to run, sparse states against the
CPU's), `pipeline` (the complete pipeline with backend=gpu and backend=cpu: seconds of
each stage, differences of posteriors and prevalence). A part that fails is named in the
section, and the exit status is 1.
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from tests.conftest import write_graph
from xnq_dist.core import backend as backends
from xnq_dist.core.backend import GpuBackend
from xnq_dist.core.config import Settings, load_settings
from xnq_dist.core.errors import XnqError
from xnq_dist.graph.halo import Partition
from xnq_dist.reservoir import device, superstep
from xnq_dist.reservoir.weights import draw_weights

Row = tuple[str, str, str, float, str]
"""Part, case, figure, value, unit."""

HEAD = "| part | case | figure | value | |\n|---|---|---|---|---|\n"


@dataclass(frozen=True)
class Job:
    """Sizes of what is measured."""

    nodes: int
    edges: int
    dim: int
    steps: int


FULL, SMALL = Job(400_000, 2_000_000, 1024, 30), Job(400, 2_000, 32, 3)


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


def limits(backend: GpuBackend, job: Job) -> tuple[float, float]:
    """Bytes copied (read and written) and floating-point operations, per second."""
    count = min(2**28, 4096 * job.nodes)
    source, target = backend.xp.zeros(count, np.float32), backend.empty((count,))

    def copy() -> None:
        target[...] = source

    bandwidth = 8 * count / seconds(backend, copy)
    shape = device.GEMM_ROWS if job is FULL else 64, job.dim
    x, out = backend.xp.ones(shape, np.float32), backend.empty(shape)
    matrix = backend.xp.ones((job.dim, job.dim), np.float32)
    took = seconds(backend, lambda: backend.multiply(x, matrix, out))
    return bandwidth, 2.0 * x.size * job.dim / took


def floor(job: Job) -> Iterator[Row]:
    """Bandwidth of copies on the device, and rate of products."""
    bandwidth, rate = limits(backends.gpu(), job)
    yield "floor", "copy", "bandwidth", bandwidth / 1e9, "GB/s"
    yield "floor", "product", "rate", rate / 1e12, "TFLOP/s"


def random_graph(job: Job) -> Partition:
    """A random directed graph in one partition."""
    rng = np.random.default_rng(0)
    counts = np.bincount(rng.integers(0, job.nodes, job.edges), minlength=job.nodes)
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


def supersteps(job: Job) -> Iterator[Row]:
    """Time of a superstep over its floor, and bits of the states."""
    backend, graph = backends.gpu(), random_graph(job)
    moved = device.move_partition(backend, graph)
    bandwidth, rate = limits(backend, job)
    rng = np.random.default_rng(1)
    drive = rng.standard_normal((job.nodes, job.dim)).astype(np.float32)
    pushed, halo = backend.to_device(drive), backend.empty((0, job.dim))
    # Indices and offsets; states that are gathered, drive, states that are written.
    traffic = job.edges * (4 * job.dim + 4) + job.nodes * (8 * job.dim + 8)
    for matrix, flops in (("sparse", 0.0), ("dense", 2.0 * job.nodes * job.dim**2)):
        weights = draw_weights(
            0,
            job.dim,
            1,
            matrix=matrix,
            nonzeros=16,
            recurrent_scale=0.9,
            input_scale=0.5,
            bias_scale=0.1,
            rho=job.edges / job.nodes,
        ).recurrent
        there = device.move_weights(backend, weights)
        two = backend.empty(drive.shape), backend.empty(drive.shape)

        def step(before: Any, after: Any, there: device.DeviceWeights = there) -> None:
            device.superstep(backend, moved, before, halo, pushed, there, after)

        def run(two: Any = two, step: Callable[..., None] = step) -> np.ndarray:
            two[0][...] = device.first_states(backend, pushed)
            for number in range(job.steps - 1):
                step(two[number % 2], two[1 - number % 2])
            return backend.to_host(two[(job.steps - 1) % 2])

        found = run()
        same = float(np.array_equal(found, run()))
        yield "superstep", matrix, "same bits run to run", same, ""
        states = superstep.first_states(drive)
        for _ in range(job.steps - 1):
            before, states = states, np.empty_like(states)
            superstep.superstep(graph, before, before[:0], drive, weights, states, 16)
        gap = float(np.abs(found - states).max())
        yield "superstep", matrix, "largest difference from the CPU", gap, ""
        took = seconds(backend, lambda step=step, two=two: step(*two))
        least = traffic / bandwidth + flops / rate
        yield "superstep", matrix, "seconds", took, "s"
        yield "superstep", matrix, "floor", least, "s"
        yield "superstep", matrix, "times the floor", took / least, ""


@contextmanager
def workers(settings: Settings, played: bool) -> Iterator[Any]:
    """A client of the cluster that a run would start; the stand-in uses threads."""
    from distributed import Client, LocalCluster

    from xnq_dist.core.cluster import connect, open_cluster

    if not played:
        with (
            open_cluster(settings.cluster) as connection,
            connect(connection) as client,
        ):
            yield client
        return
    with (
        LocalCluster(
            1, threads_per_worker=2, processes=False, dashboard_address=None
        ) as cluster,
        Client(cluster) as client,
    ):
        yield client


def pipeline(job: Job) -> Iterator[Row]:
    """The complete pipeline on one graph, on the GPU and on the CPU."""
    from xnq_dist import pipeline as stages

    played, answers = backends.gpu is not REAL, {}
    with tempfile.TemporaryDirectory() as folder:
        graph = write_graph(Path(folder) / "input", job.nodes, job.edges, labelled=0.1)
        for backend, count in (("gpu", "1"), ("cpu", "auto")):
            settings = load_settings(
                overrides=[
                    *("method=xnq", f"reservoir.dim={job.dim}", f"backend={backend}"),
                    *("reservoir.recurrent_scale=0.9", "reservoir.input_scale=0.5"),
                    *("cluster.kind=local", f"cluster.workers={count}"),
                    f"reservoir.supersteps={job.steps}",
                ]
            )
            began = time.perf_counter()
            with (
                workers(settings, played) as client,
                stages.open_run(f"{folder}/{backend}", graph.sources) as run,
            ):
                stages.prepare(run, graph.sources, settings)
                stages.embed(run, settings, client)
                stages.fit_readout(run, settings, client)
                stages.quantify_communities(run, graph.sources, settings, client)
                stages.publish(run, settings)
            yield "pipeline", backend, "all", time.perf_counter() - began, "s"
            for name in ("graph", "embeddings", "readout", "quantify"):
                spent = run.stage(name).manifest().seconds
                yield "pipeline", backend, name, spent, "s"
            posteriors = pq.read_table(f"{folder}/{backend}/posteriors")
            rows = posteriors.sort_by("node_id")["posterior"].combine_chunks()
            shares = pq.read_table(f"{folder}/{backend}/prevalence.parquet")
            answers[backend] = (
                rows.flatten().to_numpy(),
                shares["prevalence"].to_numpy(),
            )
    for number, name in enumerate(("posterior", "prevalence")):
        gap = np.abs(answers["gpu"][number] - answers["cpu"][number])
        yield (
            "pipeline",
            "gpu against cpu",
            f"largest difference, {name}",
            gap.max(),
            "",
        )


PARTS = {"floor": floor, "superstep": supersteps, "pipeline": pipeline}
REAL = backends.gpu


def machine() -> Mapping[str, str]:
    """Device and versions, for the section."""
    runtime = backends.gpu().xp.cuda.runtime
    return {
        "device": runtime.getDeviceProperties(0)["name"].decode(),
        "driver": str(runtime.driverGetVersion()),
        "cupy": backends.gpu().xp.__version__,
    }


def main(arguments: list[str] | None = None) -> int:
    """Measure, print rows and write the section; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--report", default="gpu-report.md")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--standin", action="store_true", help="g++ plays the GPU")
    parser.add_argument("--small", action="store_true", help="sizes of seconds")
    given = parser.parse_args(arguments)
    about = {"device": "none: g++ and NumPy play it, and no time means anything"}
    if given.standin:
        from tests.gpu.standin import places

        for module, name, value in places():
            setattr(module, name, value)
    else:
        try:
            about = dict(machine())
        except XnqError as error:
            sys.stdout.write(f"{error}\n")
            return 1
    text = f"## Measured {time.strftime('%F')}: "
    text += ", ".join(f"{name} {value}" for name, value in about.items())
    text, failed = f"{text}\n\n{HEAD}", ""
    for part in given.parts:
        try:
            for row in PARTS[part](SMALL if given.small else FULL):
                *names, value, unit = row
                line = f"| {' | '.join(names)} | {value:.4g} | {unit} |\n"
                sys.stdout.write(line)
                sys.stdout.flush()
                text += line
        except Exception as error:  # the other parts are still worth having
            logging.exception("part %s", part)
            failed += f"\n`{part}` failed: {type(error).__name__}: {error}\n"
        backends.gpu().release()  # for the processes of the next part
        Path(given.report).write_text(text + failed, encoding="utf-8")
    sys.stdout.write(failed)
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
