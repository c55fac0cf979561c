"""A graph whose states are four times a worker's memory: does it finish, and how.

One worker whose limit is a quarter of the states (two buffers, before and after); the
whole line runs, with the states in files, and its largest resident memory is held
against the limit. Beside it the same in memory, for the time.
"""

from __future__ import annotations

from xnq_dist.evaluation.bench.harness import OURS, Bench

__all__ = ["disk", "make_graph"]

_HERE = "xnq_dist.evaluation.bench.disk"

DEGREE = 5.0
TIMES = 4
"""States over the limit."""
SLACK = 1.15
"""Largest resident memory over the limit, at most."""
SETTINGS = (
    "method=xnq",
    "reservoir.matrix=sparse",
    "reservoir.recurrent_scale=2.0",
    "reservoir.input_scale=0.5",
    "readout.C=1.0",
    "readout.memory=64MiB",
    "input.memory=256MiB",
    "cluster.workers=1",
    "cluster.threads=1",
)


def disk(bench: Bench) -> None:
    """Memory and time of the whole line with states on a disk and in memory."""
    nodes, dim = bench.choose((2_000, 64), (400_000, 1024))
    supersteps = bench.choose(4, 6)
    graph = str(bench.folder / "graph")
    made = bench.child(f"{_HERE}:make_graph", {"out": graph, "nodes": nodes})
    states = 2 * nodes * dim * 4
    full = bench.size == "full"
    limit = states // TIMES if full else 2**30
    case = f"{nodes:,} nodes, {int(made['edges']):,} edge rows, d' = {dim}"
    sizes = [f"reservoir.dim={dim}", f"reservoir.supersteps={supersteps}"]
    seconds = {}
    for what, more in (
        (f"{OURS}, disk", [f"cluster.memory_limit={limit}", "exchange.states=auto"]),
        (f"{OURS}, memory", ["exchange.states=memory"]),
    ):
        if not full and what.endswith("disk"):
            more[-1] = "exchange.states=disk"
        arguments = {
            "graph": graph,
            "out": str(bench.folder / what.rpartition(" ")[2]),
            "overrides": [*SETTINGS, *sizes, *more],
        }
        found = bench.child("xnq_dist.evaluation.bench.line:measure_line", arguments)
        peak = found["measured"]["worker_memory"]
        for name, value in found["memory"].items():
            bench.record(case, f"memory of the worker until {name}", what, value, "B")
        seconds[what] = found["seconds"]["embed"]
        for stage, value in found["seconds"].items():
            bench.record(case, f"time of {stage}", what, value, "s")
        for name in ("worker_memory", "run_disk", "state_bytes"):
            bench.record(case, name, what, found["measured"][name], "B")
            bench.record(case, name, f"plan, {what}", found["planned"][name], "B")
        if what.endswith("disk"):
            bench.record(case, "limit of the worker", what, limit, "B")
            bench.ratio(
                "peak of the worker over its limit", peak / limit, "less", SLACK
            )
            aim = TIMES if full else None
            bench.ratio("states over the limit", states / limit, "more", aim)
    on_disk, in_memory = seconds.values()
    bench.ratio("time of embedding, disk over memory", on_disk / in_memory, "less")


def make_graph(out: str, nodes: int) -> dict[str, int]:
    """Generate a graph of few labels: the readout's rows are not what is looked at."""
    from xnq_dist.graph.generate import generate

    made = generate(
        out,
        nodes=nodes,
        degree=DEGREE,
        features=8,
        classes=2,
        homophily=0.5,
        communities=max(20, nodes // 1000),
        seed=0,
        labelled=max(0.01, 200 / nodes),
    )
    return {"edges": made.counts["edges"]}
