"""Parts of `measure.py` that use tables: ingest, and the pipeline on both backends."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tests.gpu.aims import APART, NotRunError, Row
from tests.gpu.made import SMALL, Job
from xnq_dist.core import backend as backends
from xnq_dist.core.backend import GpuBackend
from xnq_dist.core.config import Settings
from xnq_dist.core.errors import SettingsError
from xnq_dist.graph.tables import Sources


def part_ingest(make: Callable[[str], GpuBackend], job: Job) -> Iterator[Row]:
    """From the edge table to sorted edges, with Arrow or cuDF."""
    from xnq_dist.core.config import load_settings
    from xnq_dist.core.tasks import InProcess
    from xnq_dist.graph.edge_tasks import read_edges
    from xnq_dist.graph.edges import arrow_pairs
    from xnq_dist.graph.gpu_ingest import CudfPairs
    from xnq_dist.graph.ids import NodeIds
    from xnq_dist.graph.tables import open_table

    frames = data_frames(make)
    rng = np.random.default_rng(6)
    settings = load_settings()
    rules, columns = settings.input, settings.columns
    memory = rules.memory_bytes
    # Sparse ids, so that they must be looked up.
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
            pairs = arrow_pairs
            if name.startswith("cudf"):
                pairs = CudfPairs(memory, make("float32"), frames)
            into = Path(folder) / name
            into.mkdir()
            tasks = InProcess(into, 1, memory)
            table = open_table(edges, "edge table")
            began = time.perf_counter()
            found[name], _ = read_edges(table, ids, columns, rules, tasks, pairs=pairs)
            yield "ingest", name, "seconds", time.perf_counter() - began, "s"
        here, there = found["cpu"], found["cudf again"]
        same = np.array_equal(here.indptr, there.indptr) and np.array_equal(
            here.arrays()[0], there.arrays()[0]
        )
        yield "ingest", "cudf", "same edges", float(same), ""


def data_frames(make: Callable[[str], GpuBackend]) -> Any:
    """cuDF, or pandas for the stand-in."""
    from tests.gpu.standin import StandinFrames, standin

    if make is standin:
        return StandinFrames()
    try:
        return backends.data_frames()
    except (SettingsError, ImportError) as error:
        raise NotRunError(str(error)) from error


QUICK = (
    *("reservoir.dim=32", "reservoir.supersteps=3", "plus.recurrent_scales=[0.9]"),
    *("plus.boosting=never", "readout.folds=3"),
)
"""Settings of a small test run."""


@contextmanager
def cluster_of(make: Callable[[str], GpuBackend], settings: Settings) -> Iterator[Any]:
    """A client of the cluster that a run would start; the stand-in uses threads."""
    from distributed import Client, LocalCluster

    from tests.gpu.standin import standin
    from xnq_dist.core.cluster import connect, open_cluster

    if make is not standin:
        with (
            open_cluster(settings.cluster) as connection,
            connect(connection) as client,
        ):
            yield client
        return
    quiet = {"dashboard": False, "dashboard_address": "127.0.0.1:0"}
    with (
        LocalCluster(
            n_workers=1, threads_per_worker=2, processes=False, scheduler_kwargs=quiet
        ) as cluster,
        Client(cluster) as client,
    ):
        yield client


def run_line(out: Path, sources: Sources, settings: Settings, client: Any) -> Path:
    """The same as `xnq-dist run`, without Prefect, which need not be installed."""
    from xnq_dist import pipeline

    with pipeline.open_run(str(out), sources) as run:
        pipeline.prepare(run, sources, settings)
        pipeline.embed(run, settings, client)
        pipeline.fit_readout(run, settings, client)
        pipeline.quantify_communities(run, sources, settings, client)
        pipeline.publish(run, settings)
    return out


def both_backends(
    part: str,
    make: Callable[[str], GpuBackend],
    job: Job,
    sources: Sources,
    settings: Sequence[str],
    errors_of: Callable[[Path], dict[str, float]],
) -> Iterator[Row]:
    """The pipeline on both backends with several seeds: seconds, errors, differences.

    Parameters
    ----------
    settings
        Of every run.
    errors_of
        Figures of a run directory; `AE` is compared.
    """
    from xnq_dist.core.config import load_settings

    make("float32")
    found: dict[str, list[float]] = {"cpu": [], "gpu": []}
    quick = QUICK if job is SMALL else ()
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        lines = {}
        for backend, workers in (("gpu", "1"), ("cpu", "auto")):
            given = (
                f"backend={backend}",
                "cluster.kind=local",
                f"cluster.workers={workers}",
                *settings,
            )
            whole = [*quick, *given, "labelled=exclude"]
            chosen = load_settings(overrides=whole)
            lines[backend] = whole, stack.enter_context(cluster_of(make, chosen))
        for seed in range(job.seeds):
            for backend, (whole, client) in lines.items():
                case, out = f"{backend}-seed{seed}", Path(folder) / f"{backend}{seed}"
                seeded = load_settings(overrides=[*whole, f"seed={seed}"])
                began = time.perf_counter()
                run_line(out, sources, seeded, client)
                yield part, case, "seconds", time.perf_counter() - began, "s"
                for stage, took in stage_seconds(out).items():
                    yield part, case, f"seconds of {stage}", took, "s"
                figures = errors_of(out)
                found[backend].append(figures["AE"])
                for what, value in figures.items():
                    yield part, case, what, float(value), ""
                # Embeddings of all seeds could fill a small disk.
                shutil.rmtree(out)
    yield from compared(part, found)


def stage_seconds(run: Path) -> dict[str, float]:
    """Seconds of each stage that was run."""
    found = {}
    for stage in ("graph", "select", "embeddings", "readout", "posteriors", "quantify"):
        file = run / stage / "_manifest.json"
        if file.exists():
            found[stage] = float(json.loads(file.read_text())["seconds"])
    return found


def compared(part: str, errors: dict[str, list[float]]) -> Iterator[Row]:
    """Difference of the backends' mean errors, in ranges over the CPU's seeds."""
    here, there = errors["cpu"], errors["gpu"]
    spread = max(max(here) - min(here), 1e-4)
    apart = abs(float(np.mean(there) - np.mean(here)))
    yield part, "gpu against cpu", "spread of the CPU's seeds", spread, ""
    yield part, "gpu against cpu", APART, apart / spread, ""


def part_tolokers(make: Callable[[str], GpuBackend], job: Job) -> Iterator[Row]:
    """The default settings on Tolokers."""
    from tests.benchmarks.real_graphs import errors, give_labels

    data = Path(os.environ.get("XNQ_DATA_DIR", "."))
    if not (data / "tolokers").is_dir():
        raise NotRunError("XNQ_DATA_DIR names no folder that holds the graph tolokers")
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        head(data / "tolokers", folder / "tolokers", job.nodes)
        nodes = give_labels(folder, "tolokers", folder, roles=False)
        sources = Sources(str(nodes), str(folder / "tolokers" / "edges.parquet"))

        def errors_of(run: Path) -> dict[str, float]:
            found = errors(run, folder, "tolokers")
            return {"AE": found.pop("ae_run"), **found}

        yield from both_backends("tolokers", make, job, sources, (), errors_of)


def head(graph: Path, into: Path, count: int) -> None:
    """The first nodes of a graph, up to a maximum number, and the edges among them."""
    into.mkdir()
    nodes = pq.read_table(graph / "nodes.parquet").slice(0, count)
    ids = nodes["node_id"].combine_chunks()
    pq.write_table(nodes, into / "nodes.parquet")
    splits = pq.read_table(graph / "splits.parquet")
    kept = splits.filter(pc.is_in(splits["node_id"], value_set=ids))
    pq.write_table(kept, into / "splits.parquet")
    edges = pq.read_table(graph / "edges.parquet")
    among = [pc.is_in(edges[end], value_set=ids) for end in ("src", "dst")]
    pq.write_table(edges.filter(pc.and_(*among)), into / "edges.parquet")


def part_made(make: Callable[[str], GpuBackend], job: Job) -> Iterator[Row]:
    """Plain `xnq` at a given scale on an artificial graph."""
    from xnq_dist.graph.generate import generate

    plain = "method=xnq", "reservoir.recurrent_scale=1.0", "reservoir.input_scale=0.5"
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "made"
        regions = max(4, job.nodes // 800)
        generate(made, job.nodes, 10, job.features, 2, 0.7, regions, 0)
        sources = Sources(str(made / "nodes.parquet"), str(made / "edges.parquet"))

        def errors_of(run: Path) -> dict[str, float]:
            return {"AE": made_error(run, made)}

        yield from both_backends("made", make, job, sources, plain, errors_of)


def made_error(run: Path, made: Path) -> float:
    """Mean absolute error over detected communities of at least 20 unlabelled nodes."""
    truth = pq.read_table(made / "truth.parquet").to_pydict()
    label = dict(zip(truth["node_id"], truth["label"], strict=True))
    nodes = pq.read_table(made / "nodes.parquet", columns=["node_id", "label"])
    free = set(nodes.filter(pc.is_null(nodes["label"]))["node_id"].to_pylist())
    members: dict[Any, list[int]] = {}
    for row in pq.read_table(run / "communities.parquet").to_pylist():
        if row["node_id"] in free:
            members.setdefault(row["community"], []).append(label[row["node_id"]])
    gaps = [
        abs(row["prevalence"] - np.mean(members[row["community"]]))
        for row in pq.read_table(run / "prevalence.parquet").to_pylist()
        if str(row["class"]) == "1" and len(members.get(row["community"], ())) >= 20
    ]
    return float(np.mean(gaps)) if gaps else float("nan")
