"""Benchmark of generating and ingesting graphs, each in a new process, with its memory.

A row of the edge table is an undirected edge, which becomes two directed edges. Rates
are reported for both, over the complete stage, including rho(A), partitioning and
files. For comparison, pyarrow reads the same rows without processing them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from xnq_dist.evaluation.bench.harness import OURS, Bench
from xnq_dist.evaluation.peak_memory import peak_memory

__all__ = ["generate_graph", "ingest", "prepare_graph", "read_edges_only"]

PARTITIONS = 8
FIRST = 500
"""Nodes of the warm-up graph, which is not timed."""
RATES = {
    "generate": ("edges", 1e6),
    "ingest": ("edges", 2e6),
    "ingest, directed": ("directed edges", 2e6),
    "ingest, without partitioning": ("directed edges", 2e6),
}
"""Goals: rows of the edge table, or directed edges, per second."""

_MODULE = "xnq_dist.evaluation.bench.ingest"


def ingest(bench: Bench) -> None:
    """Measure seconds, rates and memory of `generate` and `prepare`."""
    nodes = bench.choose(10_000, 5_000_000)
    graph = str(bench.folder / "graph")
    memory = bench.choose("32 MiB", "256 MiB")
    repeats: list[dict[str, float]] = []
    for number in range(bench.repeat):
        made = bench.child(f"{_MODULE}:generate_graph", {"out": graph, "nodes": nodes})
        edges = int(made["edges"])
        case = f"{edges:,} rows, {nodes:,} nodes, input.memory {memory}"
        arguments = {"graph": graph, "memory": memory}
        arguments["out"] = str(bench.folder / f"run-{number}")
        prepared = bench.child(f"{_MODULE}:prepare_graph", arguments)
        read = bench.child(f"{_MODULE}:read_edges_only", {"graph": graph})
        partitioning = prepared["steps"].get("partition", 0.0)
        directed = prepared["directed"]
        rates = {
            "generate": edges / made["seconds"],
            "ingest": edges / prepared["seconds"],
            "read": edges / read["seconds"],
            "ingest, directed": directed / prepared["seconds"],
            "ingest, without partitioning": directed
            / (prepared["seconds"] - partitioning),
        }
        for name, value in rates.items():
            bench.record(case, "rate", name, value, "edges/s", number)
        for what, done in (
            (f"{OURS} generate", made),
            (f"{OURS} ingest", prepared),
            ("pyarrow, reading only", read),
        ):
            bench.record(case, "time", what, done["seconds"], "s", number)
            bench.record(case, "processor time", what, done["cpu"], "s", number)
            grown = done["peak_memory"] - done["base_memory"]
            bench.record(
                case, "memory above imports", what, grown / 2**20, "MiB", number
            )
        for step, seconds in prepared["steps"].items():
            bench.record(case, "time", f"{OURS}, step {step}", seconds, "s", number)
        grown = prepared["peak_memory"] - prepared["base_memory"]
        repeats.append(rates | {"memory": grown / (16.0 * edges)})
    middle = {name: median(row[name] for row in repeats) for name in repeats[0]}
    for name, (what, aim) in RATES.items():
        title = f"{name}, share of {aim:,.0f} {what}/s"
        bench.ratio(title, middle[name] / aim, "more", bench.full(1.0))
    bench.ratio(
        "ingest over reading only, time", middle["read"] / middle["ingest"], "less"
    )
    bench.ratio(
        "memory of ingest over its directed edges as int64", middle["memory"], "less"
    )


def generate_graph(
    out: str, nodes: int, degree: float = 20.0, labelled: float = 0.1
) -> dict[str, Any]:
    """Generate a graph; return its number of edges and the seconds."""
    _write_graph(f"{out}-first", FIRST, degree, labelled)
    with _clock() as clock:
        edges = _write_graph(out, nodes, degree, labelled)
    return {"edges": edges, **clock}


def _write_graph(out: str, nodes: int, degree: float, labelled: float = 0.1) -> int:
    from xnq_dist.graph.generate import generate

    made = generate(
        out,
        nodes=nodes,
        degree=degree,
        features=8,
        classes=2,
        homophily=0.5,
        communities=max(20, nodes // 1000),
        seed=0,
        labelled=labelled,
    )
    return made.counts["edges"]


def prepare_graph(
    graph: str, out: str, memory: str, partitions: int = PARTITIONS
) -> dict[str, Any]:
    """Run the stage ``graph``; return seconds in total and by step."""
    # Warm up: imports and loading of kernels are not timed.
    _write_graph(f"{out}-first-graph", FIRST, 20.0)
    _prepare(f"{out}-first-graph", f"{out}-first", memory, partitions)
    with _clock() as clock:
        directed, steps = _prepare(graph, out, memory, partitions)
    return {"directed": directed, "steps": steps, **clock}


def _prepare(
    graph: str, out: str, memory: str, partitions: int
) -> tuple[int, dict[str, float]]:
    """Run the stage ``graph``; return directed edges and seconds by step."""
    from xnq_dist.core.config import load_settings
    from xnq_dist.core.store import RunDirectory
    from xnq_dist.graph.prepare import prepare
    from xnq_dist.graph.tables import Sources

    settings = load_settings(overrides=["partitioner=stream", f"input.memory={memory}"])
    folder = Path(graph)
    sources = Sources(str(folder / "nodes.parquet"), str(folder / "edges.parquet"))
    steps: dict[str, float] = {}
    last = time.perf_counter()

    def progress(what: str, done: int, total: int) -> None:
        nonlocal last
        now = time.perf_counter()
        # Work before a step's first call is not reported by name.
        name = what if done else "sort"
        steps[name] = steps.get(name, 0.0) + now - last
        last = now

    run = RunDirectory(out)
    facts = prepare(run, sources, settings, partitions, progress).facts
    return int(facts["n_edges"]), steps


def read_edges_only(graph: str) -> dict[str, Any]:
    """Read the edge table batch by batch, without processing it."""
    import pyarrow.parquet as pq

    with _clock() as clock:
        file = pq.ParquetFile(f"{graph}/edges.parquet")
        rows = sum(batch.num_rows for batch in file.iter_batches(1 << 18))
    return {"edges": rows, **clock}


@contextmanager
def _clock() -> Iterator[dict[str, float]]:
    """Wall and CPU seconds of the block, and the peak memory before it."""
    usage: dict[str, float] = {"base_memory": peak_memory()}
    began, cpu_before = time.perf_counter(), time.process_time()
    yield usage
    usage["seconds"] = time.perf_counter() - began
    usage["cpu"] = time.process_time() - cpu_before
