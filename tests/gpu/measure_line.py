"""What `measure.py` runs through tables: ingest, and the line on both backends."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tests.gpu.aims import APART, Row
from tests.gpu.made import Job
from xnq_dist import backend as backends
from xnq_dist.backend import GpuBackend
from xnq_dist.errors import SettingsError

SEEDS = 3
"""Of each backend, where what is compared hangs on them."""


def part_ingest(make: Callable[[str], GpuBackend], job: Job) -> Iterator[Row]:
    """The edge table to sorted edges, by Arrow and NumPy, by cuDF and CuPy."""
    from xnq_dist.config import load_settings
    from xnq_dist.graph.edges import ArrowEngine, read_edges
    from xnq_dist.graph.gpu_ingest import CudfEngine
    from xnq_dist.graph.ids import NodeIds
    from xnq_dist.graph.tables import open_table

    try:
        frames = data_frames(make)
    except SettingsError:
        yield "ingest", "cudf", "is there", 0.0, ""
        return
    rng = np.random.default_rng(6)
    settings = load_settings()
    rules, columns = settings.input, settings.columns
    memory = rules.memory_bytes
    # Far apart: an id is looked up, not subtracted.
    ids = NodeIds(pa.array(np.arange(job.nodes, dtype=np.int64) * 1000))
    with tempfile.TemporaryDirectory() as folder:
        edges = Path(folder) / "edges.parquet"
        ends = {
            name: rng.integers(0, job.nodes, job.edges) * 1000
            for name in ("src", "dst")
        }
        pq.write_table(pa.table(ends), edges)
        found = {}
        for name in ("cpu", "cudf", "cpu again", "cudf again"):
            engine = ArrowEngine(memory)
            if name.startswith("cudf"):
                engine = CudfEngine(make("float32"), frames, memory)
            into = Path(folder) / name
            into.mkdir()
            table = open_table(edges, "edge table")
            began = time.perf_counter()
            found[name], _ = read_edges(table, ids, columns, rules, into, engine=engine)
            yield "ingest", name, "seconds", time.perf_counter() - began, "s"
        here, there = found["cpu"], found["cudf again"]
        same = np.array_equal(here.indptr, there.indptr) and np.array_equal(
            here.arrays()[0], there.arrays()[0]
        )
        yield "ingest", "cudf", "same edges", float(same), ""


def data_frames(make: Callable[[str], GpuBackend]) -> Any:
    """cuDF, or pandas where the device is played."""
    from tests.gpu.standin import StandinFrames, standin

    return StandinFrames() if make is standin else backends.data_frames()


def run_line(
    folder: Path, nodes: Path, edges: Path, backend: str, seed: int, more: list[str]
) -> tuple[Path, float]:
    """`xnq-dist run` in a process of its own: its directory and its seconds."""
    from tests.benchmarks.real_graphs import watch

    out = folder / f"{backend}-{seed}"
    took = watch(
        [
            *(sys.executable, "-m", "flows.cli", "run"),
            *("--nodes", str(nodes), "--edges", str(edges)),
            *("--out", str(out), f"--set=backend={backend}"),
            *("--set=labelled=exclude", f"--set=seed={seed}"),
            *more,
        ]
    )
    return out, took["seconds"]


def compared(part: str, errors: dict[str, list[float]]) -> Iterator[Row]:
    """How far the backends' mean errors are apart, in ranges of the CPU's seeds."""
    here, there = errors["cpu"], errors["gpu"]
    spread = max(max(here) - min(here), 1e-4)
    apart = abs(float(np.mean(there) - np.mean(here)))
    yield part, "gpu against cpu", "spread of the CPU's seeds", spread, ""
    yield part, "gpu against cpu", APART, apart / spread, ""


def part_tolokers(make: Callable[[str], GpuBackend], job: Job) -> Iterator[Row]:
    """The default settings on Tolokers."""
    from tests.benchmarks.real_graphs import errors, give_labels

    make("float32")
    data = Path(os.environ.get("XNQ_DATA_DIR", "."))
    if not (data / "tolokers").is_dir():
        yield "tolokers", "XNQ_DATA_DIR", "is there", 0.0, ""
        return
    found: dict[str, list[float]] = {"cpu": [], "gpu": []}
    with tempfile.TemporaryDirectory() as folder:
        nodes = give_labels(data, "tolokers", Path(folder), roles=False)
        edges = data / "tolokers" / "edges.parquet"
        for backend in ("gpu", "cpu"):
            for seed in range(SEEDS):
                out, took = run_line(Path(folder), nodes, edges, backend, seed, [])
                case = f"{backend}-seed{seed}"
                yield "tolokers", case, "seconds", took, "s"
                for what, value in errors(out, data, "tolokers").items():
                    yield "tolokers", case, what, float(value), ""
                    if what == "ae_run":
                        found[backend].append(float(value))
    yield from compared("tolokers", found)


def part_made(make: Callable[[str], GpuBackend], job: Job) -> Iterator[Row]:
    """Plain `xnq` at a given scale on a made graph."""
    from xnq_dist.graph.generate import generate

    make("float32")
    plain = "method=xnq reservoir.recurrent_scale=1.0 reservoir.input_scale=0.5"
    more = [f"--set={text}" for text in plain.split()]
    found: dict[str, list[float]] = {"cpu": [], "gpu": []}
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "made"
        generate(made, job.nodes, 10, job.features, 2, 0.7, 500, 0)
        for backend in ("gpu", "cpu"):
            for seed in range(SEEDS):
                tables = made / "nodes.parquet", made / "edges.parquet"
                out, took = run_line(Path(folder), *tables, backend, seed, more)
                error = made_error(out, made / "truth.parquet")
                found[backend].append(error)
                yield "made", f"{backend}-seed{seed}", "seconds", took, "s"
                yield "made", f"{backend}-seed{seed}", "AE", error, ""
    yield from compared("made", found)


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
