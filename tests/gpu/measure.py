"""Everything about GPUs that only a GPU can show, in one command; says what is reached.

    python -m tests.gpu.measure                           # on a GPU: all parts
    python -m tests.gpu.measure --parts tolokers --add    # some more, to the same rows
    python -m tests.gpu.measure --standin --small         # on a CPU: does it still run?

Parts: `floor` (copy bandwidth, rate of products), `superstep` (400k nodes, 2 M
directed edges, d' = 1024, against its floor; error of each precision), `states` (of
the same graph at a low scale, against the CPU's), `sld` and `auto` (1 M communities of
about 100), `genius` (422k nodes, 985k edges, 12 features, d' = 1024, L = 30: embed,
read out, quantify), `profile` (where that job's time goes, kernel by kernel), `memory`
(peak against the plan), `ingest` (the edge table by cuDF and by Arrow), `tolokers`
(from XNQ_DATA_DIR) and `made` (400k nodes, 2 M edges): `xnq-dist run` with backend=gpu
and backend=cpu, some seeds each: seconds, error over communities.

Rows (part, case, figure, value, unit) go to --out as they come; aims reached and missed
(`tests/gpu/aims.py`) are said at the end and, with the rows, written to --report: a
section for RESULTS.md.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tests.gpu.aims import DIFFERENCE, Row, markdown, verdict_lines, worst_terms
from tests.gpu.made import (
    FULL,
    GENIUS,
    PRECISIONS,
    SMALL,
    Job,
    made_drive,
    made_partition,
    made_posteriors,
    made_weights,
    seconds,
    states_after,
)
from tests.gpu.measure_job import part_genius, part_profile
from tests.gpu.measure_line import part_ingest, part_made, part_tolokers
from xnq_dist import backend as backends
from xnq_dist.backend import GpuBackend
from xnq_dist.quantify.auto import _hypotheses
from xnq_dist.quantify.gpu_auto import GpuIntercepts
from xnq_dist.quantify.gpu_sets import GpuSld
from xnq_dist.quantify.hypotheses import HYPOTHESES, prior_weights
from xnq_dist.quantify.intercepts import HostIntercepts, Logits
from xnq_dist.quantify.interface import Communities, Reference
from xnq_dist.quantify.sld import Sld
from xnq_dist.reservoir import device
from xnq_dist.reservoir.superstep import MemoryStates, superstep
from xnq_dist.reservoir.weights import Recurrent


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


def part_states(make: Callable[[str], GpuBackend], job: Job) -> Iterator[Row]:
    """The CPU's supersteps and the device's at a scale where the map contracts."""
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
                MemoryStates(here),
                lambda _: nothing,
                drive,
                weights.recurrent,
                [slice(0, job.dim)],
                threads,
            )
        gap = float(np.abs(device.decode(backend.to_host(after)) - here).max())
        yield "states", f"{matrix}-float32", DIFFERENCE, gap, ""


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
    yield "sld", f"first {some}", DIFFERENCE, gap, ""


def part_auto(make: Callable[[str], GpuBackend], job: Job) -> Iterator[Row]:
    """`auto` with all hypotheses at work, against the CPU's kernel on some of them."""
    backend, every = make("float32"), tuple(range(len(HYPOTHESES)))
    nodes, batch = made_posteriors(job)
    rng = np.random.default_rng(4)
    share = nodes.posteriors[batch.members, 1].astype(np.float64)
    values = np.clip(np.log(share) - np.log1p(-share), -8.0, 8.0)
    codes = np.full(len(values), -1, np.int8)
    known = rng.random(len(values)) < 0.1
    codes[known] = rng.random(int(known.sum())) < share[known]
    open_still, grids = np.array([[0.2, 0.01], [0.01, 0.02]]), _hypotheses(every)
    rest = open_still, grids, prior_weights(), 0.025
    logits = Logits(batch.offsets, values, codes, 0.5)
    found = GpuIntercepts().answers(logits, *rest)
    took = seconds(backend, lambda: GpuIntercepts().answers(logits, *rest), 3)
    yield "auto", f"{job.communities} communities", "seconds, transfers in", took, "s"
    some = min(len(batch), 2_000)
    few = Logits(batch.offsets[: some + 1], values, codes, 0.5)
    HostIntercepts().answers(few, *rest)
    began = time.perf_counter()
    here = HostIntercepts().answers(few, *rest)
    spent = (time.perf_counter() - began) * len(batch) / some
    yield "auto", "cpu, one core, scaled up", "seconds", spent, "s"
    # No community is without an unlabelled member but by chance: NaN in both then.
    gap = float(np.nanmax(np.abs(found[:some, :3] - here[:, :3])))
    yield "auto", f"first {some}", DIFFERENCE, gap, ""
    chosen = np.arange(min(len(batch), 5_000))
    learnt = partial(GpuIntercepts().evidence, logits, chosen, np.zeros((2, 2)), grids)
    yield (
        "auto",
        f"evidence of {len(chosen)}",
        "seconds",
        seconds(backend, learnt, 3),
        "s",
    )


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
        if peak:  # a stand-in has no pool
            yield "memory", precision, "peak over plan", peak / planned, ""


PARTS = {
    "floor": part_floor,
    "superstep": part_superstep,
    "states": part_states,
    "sld": part_sld,
    "auto": part_auto,
    "genius": part_genius,
    "profile": part_profile,
    "memory": part_memory,
    "ingest": part_ingest,
    "tolokers": part_tolokers,
    "made": part_made,
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
    """Measure; write and say the rows, then what of the aims they reach."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default="gpu-rows.csv")
    parser.add_argument("--report", default="gpu-report.md")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--add", action="store_true", help="to the rows of --out")
    parser.add_argument("--standin", action="store_true", help="g++ plays the GPU")
    parser.add_argument("--small", action="store_true", help="sizes of seconds")
    given = parser.parse_args(arguments)
    make: Callable[[str], GpuBackend] = backends.gpu
    about = {"date": time.strftime("%F")}
    if given.standin:
        from tests.gpu.standin import standin

        make = standin
        backends.gpu = standin
        about["device"] = "none: g++ and NumPy play it, and no time means anything"
    else:
        make("float32")  # said at once when there is no GPU
        about |= environment()
    say(json.dumps(about))
    before = read_rows(Path(given.out)) if given.add else []
    rows = [row for row in before if row[0] not in given.parts]
    with Path(given.out).open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["part", "case", "figure", "value", "unit"])
        writer.writerows(rows)
        for name in given.parts:
            job = GENIUS if name in ("genius", "profile") else FULL
            for row in PARTS[name](make, SMALL if given.small else job):
                rows.append(row)
                writer.writerow(row)
                stream.flush()
                say("\t".join(map(str, row)))
    for line in verdict_lines(rows):
        say(line)
    for name, took, share in worst_terms(rows)[:1]:
        say(f"worst term: {name}, {took:.4g} s, {share:.0%}")
    command = " ".join(["python -m tests.gpu.measure", *(arguments or sys.argv[1:])])
    page = markdown(rows, about, command)
    Path(given.report).write_text(page, encoding="utf-8")
    return rows


def say(line: str) -> None:
    """A line, at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def read_rows(path: Path) -> list[Row]:
    """Rows of an earlier call; none where there was none."""
    if not path.exists():
        return []
    with path.open(newline="") as stream:
        return [
            (r["part"], r["case"], r["figure"], float(r["value"]), r["unit"])
            for r in csv.DictReader(stream)
        ]


if __name__ == "__main__":
    main()
