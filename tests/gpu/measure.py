"""Everything about GPUs that only a GPU can show, in one command; writes tidy rows.

    python tests/gpu/measure.py --out rows.csv            # on a GPU: all parts
    python tests/gpu/measure.py --parts superstep sld     # some of them
    python tests/gpu/measure.py --standin --small         # on a CPU: does it still run?

Parts: `floor` (copy bandwidth, rate of products), `superstep` (400k nodes, 2 M
directed edges, d' = 1024, against its floor; error of each precision), `sld` (1 M
communities of about 100), `genius` (422k nodes, 985k edges, 12 features, d' = 1024, L =
30: embed, read out, quantify), `memory` (peak against the plan), `pipeline`
(`xnq-dist run` with backend=gpu and backend=cpu on Tolokers, from XNQ_DATA_DIR, and on
a made graph of 400k nodes and 2 M edges: seconds, error over communities).

A row is part, case, figure, value, unit. Put date, versions, command and rows in
RESULTS.md.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from xnq_dist import backend as backends
from xnq_dist.backend import GpuBackend
from xnq_dist.graph.halo import Partition
from xnq_dist.quantify.gpu_sets import GpuSld
from xnq_dist.quantify.interface import Communities, NodeTable, Reference
from xnq_dist.quantify.sld import Sld
from xnq_dist.readout.blockwise import fit_blocks
from xnq_dist.readout.logistic import decision
from xnq_dist.reservoir import device
from xnq_dist.reservoir.weights import Recurrent, draw_weights

Row = tuple[str, str, str, float, str]
PRECISIONS = ("float32", "tf32", "float16", "bfloat16")


@dataclass(frozen=True)
class Job:
    """Sizes of what is measured."""

    nodes: int
    edges: int
    features: int
    dim: int
    communities: int
    size: int
    steps: int


FULL = Job(400_000, 2_000_000, 16, 1024, 1_000_000, 100, 30)
GENIUS = Job(421_961, 984_979, 12, 1024, 20_000, 100, 30)
SMALL = Job(400, 2_000, 4, 32, 50, 20, 3)


def seconds(backend: GpuBackend, work: Callable[[], Any], repeats: int = 5) -> float:
    """Least time of some runs, after one that is not counted."""
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
    """A reservoir at a contractive scale; its radius is not looked for, but bounded."""
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


def floor(backend: GpuBackend, job: Job) -> tuple[float, float]:
    """Bytes read and written a second, and floating point operations a second."""
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


def part_superstep(make: Callable[[str], GpuBackend], job: Job) -> Iterator[Row]:
    """Time against the floor of copy and product; error of lower precisions."""
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
            if isinstance(moved, Recurrent) and moved.columns is None:
                least += 2.0 * job.nodes * job.dim**2 / rate
            yield "superstep", case, "seconds", took, "s"
            yield "superstep", case, "floor", least, "s"
            yield "superstep", case, "times the floor", took / least, ""


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


def part_sld(make: Callable[[str], GpuBackend], job: Job) -> Iterator[Row]:
    """One launch for all communities, against the CPU's kernel on some of them."""
    nodes, batch = made_posteriors(job)
    reference = Reference(np.array([0.5, 0.5]))
    backend = make("float32")
    found = GpuSld().estimate(batch, nodes, reference, "count")
    took = seconds(
        backend, lambda: GpuSld().estimate(batch, nodes, reference, "count"), 3
    )
    yield "sld", f"{job.communities} communities", "seconds, transfers in", took, "s"
    some = min(len(batch), 20_000)
    few = Communities(batch.offsets[: some + 1], batch.members)
    Sld().estimate(few, nodes, reference, "count")
    began = time.perf_counter()
    here = Sld().estimate(few, nodes, reference, "count")
    there = found.prevalence[:some]
    spent = (time.perf_counter() - began) * len(batch) / some
    yield "sld", "cpu, one core, scaled up", "seconds", spent, "s"
    gap = float(np.abs(there - here.prevalence).max())
    yield "sld", f"first {some}", "largest difference from the CPU", gap, ""


def part_genius(make: Callable[[str], GpuBackend], job: Job) -> Iterator[Row]:
    """Embed, read out, quantify: arrays in, prevalence out."""
    backend = make("float32")
    part, weights = made_partition(job), made_weights(job, "dense")
    host = made_drive(job, weights)
    rng = np.random.default_rng(3)
    labels = (host[:, 0] + rng.standard_normal(job.nodes) > 0).astype(np.int32)
    shown = np.sort(rng.choice(job.nodes, job.nodes // 10, replace=False))
    nodes, batch = made_posteriors(job)
    for attempt in ("with compilation", "again"):
        began = time.perf_counter()
        there = device.move_partition(backend, part)
        moved = device.move_weights(backend, weights.recurrent)
        drive = backend.to_device(host)
        after = states_after(backend, there, drive, moved, job.steps)
        states = device.decode(backend.to_host(after))
        embedded = time.perf_counter()
        model = fit_blocks(backend, states[shown], labels[shown], 2, 1.0)
        logits = decision(model, states, os.cpu_count() or 1)
        share = 1 / (1 + np.exp(logits[:, 0] - logits[:, 1]))
        read = time.perf_counter()
        posteriors = np.stack([1 - share, share], axis=1).astype(np.float32)
        table = NodeTable(posteriors, nodes.labels, nodes.out_of_fold, nodes.classes)
        prior = np.bincount(labels[shown], minlength=2) / len(shown)
        GpuSld().estimate(batch, table, Reference(prior), "count")
        done = time.perf_counter()
        for what, took in (
            ("embed", embedded - began),
            ("read out", read - embedded),
            ("quantify", done - read),
            ("all", done - began),
        ):
            yield "genius", attempt, what, took, "s"


def part_memory(make: Callable[[str], GpuBackend], job: Job) -> Iterator[Row]:
    """What the pool needed for supersteps, against the plan."""
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


def part_pipeline(make: Callable[[str], GpuBackend], job: Job) -> Iterator[Row]:
    """`xnq-dist run` on both backends: seconds, and error over communities."""
    from tests.benchmarks.real_graphs import errors, give_labels, watch
    from xnq_dist.graph.generate import generate

    make("float32")
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "made"
        generate(made, job.nodes, 10, job.features, 2, 0.7, 500, 0)
        graphs = {"made": (made / "nodes.parquet", made / "edges.parquet")}
        data = Path(os.environ.get("XNQ_DATA_DIR", folder))
        if (data / "tolokers").is_dir():
            given = give_labels(data, "tolokers", Path(folder), roles=False)
            graphs["tolokers"] = (given, data / "tolokers" / "edges.parquet")
        plain = "method=xnq reservoir.recurrent_scale=1.0 reservoir.input_scale=0.5"
        for name, (nodes, edges) in graphs.items():
            real = name == "tolokers"
            more = [] if real else [f"--set={text}" for text in plain.split()]
            for backend in ("gpu", "cpu"):
                for seed in range(3 if real else 1):
                    out = Path(folder) / f"{name}-{backend}-{seed}"
                    took = watch(
                        [
                            *(sys.executable, "-m", "flows.cli", "run"),
                            *("--nodes", str(nodes), "--edges", str(edges)),
                            *("--out", str(out), f"--set=backend={backend}"),
                            *("--set=labelled=exclude", f"--set=seed={seed}"),
                            *more,
                        ]
                    )
                    case = f"{name}-{backend}-seed{seed}"
                    yield "pipeline", case, "seconds", took["seconds"], "s"
                    if real:
                        for what, value in errors(out, data, name).items():
                            yield "pipeline", case, what, float(value), ""
                    else:
                        error = made_error(out, made / "truth.parquet")
                        yield "pipeline", case, "AE", error, ""


def made_error(run: Path, truth: Path) -> float:
    """Mean absolute error over detected communities of 20 nodes and more."""
    label = dict(zip(*pq.read_table(truth).to_pydict().values(), strict=True))
    members: dict[Any, list[int]] = {}
    for row in pq.read_table(run / "communities.parquet").to_pylist():
        members.setdefault(row["community"], []).append(label[row["node_id"]])
    gaps = [
        abs(row["prevalence"] - np.mean(members[row["community"]]))
        for row in pq.read_table(run / "prevalence.parquet").to_pylist()
        if str(row["class"]) == "1" and len(members[row["community"]]) >= 20
    ]
    return float(np.nanmean(gaps))


PARTS = {
    "floor": part_floor,
    "superstep": part_superstep,
    "sld": part_sld,
    "genius": part_genius,
    "memory": part_memory,
    "pipeline": part_pipeline,
}


def environment() -> dict[str, str]:
    """Device, driver and versions, for RESULTS.md."""
    cupy = backends.gpu().xp
    about = cupy.cuda.runtime.getDeviceProperties(0)
    driver = subprocess.run(
        ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"],
        capture_output=True,
        text=True,
        check=False,
    )
    return {
        "device": about["name"].decode(),
        "driver": driver.stdout.strip(),
        "cupy": cupy.__version__,
        "cuda": str(cupy.cuda.runtime.runtimeGetVersion()),
        "numpy": np.__version__,
    }


def main(arguments: list[str] | None = None) -> list[Row]:
    """Measure, write and say the rows."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default="gpu-rows.csv")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--standin", action="store_true", help="g++ plays the GPU")
    parser.add_argument("--small", action="store_true", help="sizes of seconds")
    given = parser.parse_args(arguments)
    make: Callable[[str], GpuBackend] = backends.gpu
    if given.standin:
        from tests.gpu.standin import standin

        make = standin
        backends.gpu = standin
    else:
        make("float32")  # said at once when there is no GPU
        said = json.dumps({"date": time.strftime("%F"), **environment()})
        sys.stdout.write(f"{said}\n")
    rows: list[Row] = []
    with Path(given.out).open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["part", "case", "figure", "value", "unit"])
        for name in given.parts:
            job = GENIUS if name == "genius" else FULL
            for row in PARTS[name](make, SMALL if given.small else job):
                rows.append(row)
                writer.writerow(row)
                stream.flush()
                sys.stdout.write("\t".join(map(str, row)) + "\n")
                sys.stdout.flush()
    return rows


if __name__ == "__main__":
    main()
