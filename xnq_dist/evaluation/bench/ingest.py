"""Generated graphs, written and ingested in processes of their own, memory watched.

A row of the edge table is an undirected edge: twice as many directed edges come out.
Rates are given of both, over the whole stage: rho(A), partition and files included.
The peer reads the same rows with pyarrow and does nothing with them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from xnq_dist.evaluation.bench.child import peak_bytes
from xnq_dist.evaluation.bench.harness import OURS, Bench

__all__ = ["generate_graph", "ingest", "prepare_graph", "read_edges_alone"]

DEGREE = 20.0
FEATURES = 8
PARTITIONS = 8
FIRST = 500
"""Nodes of the graph that is made before the clock starts."""
RATES = {
    "generate": ("edges", 1e6),
    "ingest": ("edges", 2e6),
    "ingest, directed": ("directed edges", 2e6),
    "ingest, without the cut": ("directed edges", 2e6),
}
"""Rows of the edge table, or directed edges, a second that are aimed at."""
STEPS = "xnq_dist, step "

_HERE = "xnq_dist.evaluation.bench.ingest"


def ingest(bench: Bench) -> None:
    """Seconds, rates and memory of `generate` and `prepare`."""
    nodes = bench.choose(10_000, 5_000_000)
    graph = str(bench.folder / "graph")
    memory = bench.choose("32 MiB", "256 MiB")
    made: dict[str, Any] = {}
    found: list[dict[str, float]] = []
    for number in range(bench.repeat):
        made = bench.child(f"{_HERE}:generate_graph", {"out": graph, "nodes": nodes})
        edges = int(made["edges"])
        case = f"{edges:,} rows, {nodes:,} nodes, input.memory {memory}"
        arguments = {"graph": graph, "memory": memory}
        arguments["out"] = str(bench.folder / f"run-{number}")
        prepared = bench.child(f"{_HERE}:prepare_graph", arguments)
        read = bench.child(f"{_HERE}:read_edges_alone", {"graph": graph})
        rates = {}
        for what, name, done in (
            (f"{OURS} generate", "generate", made),
            (f"{OURS} ingest", "ingest", prepared),
            ("pyarrow, reading alone", "read", read),
        ):
            rates[name] = edges / done["seconds"]
            _record(bench, case, what, done, rates[name], number)
        directed = prepared["directed"] / prepared["seconds"]
        rates["ingest, directed"] = directed
        ingest_of = f"{OURS} ingest"
        bench.record(
            case, "rate of directed edges", ingest_of, directed, "edges/s", number
        )
        uncut = prepared["seconds"] - prepared["steps"].get("partition", 0.0)
        rates["ingest, without the cut"] = prepared["directed"] / uncut
        bench.record(
            case,
            "rate of directed edges without the cut",
            ingest_of,
            rates["ingest, without the cut"],
            "edges/s",
            number,
        )
        without = prepared["seconds"] - prepared["steps"].get("spectral radius", 0.0)
        rates["ingest without rho(A)"] = edges / without
        bench.record(
            case, "rate without rho(A)", ingest_of, edges / without, "rows/s", number
        )
        for step, seconds in prepared["steps"].items():
            bench.record(case, "time", f"{STEPS}{step}", seconds, "s", number)
        grown = prepared["peak_memory"] - prepared["base_memory"]
        found.append(rates | {"memory": grown / (16.0 * edges)})
    middle = {
        name: sorted(row[name] for row in found)[len(found) // 2] for name in found[0]
    }
    full = bench.size == "full"
    for name, (what, aim) in RATES.items():
        bench.ratio(
            f"{name}, share of {aim:,.0f} {what}/s",
            middle[name] / aim,
            "more",
            1.0 if full else None,
        )
    bench.ratio(
        "ingest over reading alone, time", middle["read"] / middle["ingest"], "less"
    )
    bench.ratio(
        "memory of ingest over its directed edges as int64", middle["memory"], "less"
    )


def _record(
    bench: Bench, case: str, what: str, done: dict[str, Any], rate: float, number: int
) -> None:
    bench.record(case, "time", what, done["seconds"], "s", number)
    bench.record(case, "processor time", what, done["cpu"], "s", number)
    bench.record(case, "rate of rows", what, rate, "rows/s", number)
    grown = done["peak_memory"] - done["base_memory"]
    bench.record(case, "memory above imports", what, grown / 2**20, "MiB", number)


def generate_graph(out: str, nodes: int, degree: float = DEGREE) -> dict[str, Any]:
    """Generate a graph; its edges and the seconds."""
    _write_graph(f"{out}-first", FIRST, degree)
    with _clock() as clock:
        edges = _write_graph(out, nodes, degree)
    return {"edges": edges, **clock}


def _write_graph(out: str, nodes: int, degree: float) -> int:
    from xnq_dist.graph.generate import generate

    made = generate(
        out,
        nodes=nodes,
        degree=degree,
        features=FEATURES,
        classes=2,
        homophily=0.5,
        communities=max(20, nodes // 1000),
        seed=0,
    )
    return made.counts["edges"]


def prepare_graph(
    graph: str, out: str, memory: str, partitions: int = PARTITIONS
) -> dict[str, Any]:
    """The stage ``graph``; seconds in all and by step."""
    # Libraries are imported and kernels loaded before the clock starts.
    _write_graph(f"{out}-first-graph", FIRST, DEGREE)
    _prepare(f"{out}-first-graph", f"{out}-first", memory, partitions)
    with _clock() as clock:
        directed, steps = _prepare(graph, out, memory, partitions)
    return {"directed": directed, "steps": steps, **clock}


def _prepare(
    graph: str, out: str, memory: str, partitions: int
) -> tuple[int, dict[str, float]]:
    """Directed edges, and the seconds of each step."""
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
        if done:
            steps[what] = steps.get(what, 0.0) + now - last
        else:
            # What went before it has no name of its own.
            steps["sort"] = steps.get("sort", 0.0) + now - last
        last = now

    facts = prepare(RunDirectory(out), sources, settings, partitions, progress).facts
    return int(facts["n_edges"]), steps


def read_edges_alone(graph: str) -> dict[str, Any]:
    """Read the edge table batch by batch and drop it."""
    import pyarrow.parquet as pq

    with _clock() as clock:
        file = pq.ParquetFile(f"{graph}/edges.parquet")
        rows = sum(batch.num_rows for batch in file.iter_batches(1 << 18))
    return {"edges": rows, **clock}


@contextmanager
def _clock() -> Iterator[dict[str, float]]:
    """Seconds of the block, of them the processor's, and the memory before it."""
    found: dict[str, float] = {"base_memory": peak_bytes()}
    began, spent = time.perf_counter(), time.process_time()
    yield found
    found["seconds"] = time.perf_counter() - began
    found["cpu"] = time.process_time() - spent
