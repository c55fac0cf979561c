"""The whole line on a graph and on one ten times as large: what an edge costs.

Runs without Prefect, each size in a process of its own with a local cluster. Time,
processor time and the peak resident memory of client and workers are taken stage by
stage. A graph of a few hundred nodes gives the fixed cost, which is subtracted.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from xnq_dist.core.waiting import run_on_workers
from xnq_dist.evaluation.bench.chart import cost_chart
from xnq_dist.evaluation.bench.harness import OURS, Bench
from xnq_dist.evaluation.bench.line import figures_met

__all__ = ["cost_of_an_edge", "measure_stages", "scale"]

_HERE = "xnq_dist.evaluation.bench.scale"
FIXED = 500
"""Nodes of the graph that stands for no work at all."""
DEGREE = 10.0
SETTINGS = (
    "partitions=2",
    "partitioner=stream",
    "cluster.workers=2",
    "cluster.threads=1",
    "method=xnq",
    "reservoir.supersteps=10",
    "reservoir.recurrent_scale=1.0",
    "reservoir.input_scale=0.3",
)
"""Fixed scales: nothing is searched, so that the work follows the edges."""
FLAT = 1.25
"""Cost of an edge of the larger graph over that of the smaller one, at most."""
OVER_LIMIT = 1.15
"""Peak resident memory of a worker over its limit, at most."""

Stages = Mapping[str, Mapping[str, float]]


def scale(bench: Bench) -> None:
    """Generated graphs of 1 and 10 million nodes, 10 and 100 million directed edges.

    A smaller one is there for the chart alone.
    """
    sizes = bench.choose((1_500, 6_000), (100_000, 1_000_000, 10_000_000))
    width = bench.choose(16, 64)
    limit = bench.choose("1 GiB", "8 GiB")
    overrides = [*SETTINGS, f"reservoir.dim={width}", f"cluster.memory_limit={limit}"]
    runs: list[dict[str, Any]] = []
    for nodes in (FIXED, *sizes):
        graph = str(bench.folder / f"graph-{nodes}")
        made = bench.child(
            "xnq_dist.evaluation.bench.ingest:generate_graph",
            {"out": graph, "nodes": nodes, "degree": DEGREE},
        )
        arguments = {"graph": graph, "overrides": overrides}
        if not runs:
            # Kernels are compiled here, where nobody looks.
            first = arguments | {"out": f"{graph}-first-run"}
            bench.child(f"{_HERE}:measure_stages", first)
        arguments["out"] = f"{graph}-run"
        found = bench.child(f"{_HERE}:measure_stages", arguments)
        runs.append(found)
        rows = f"{nodes:,} nodes, {int(made['edges']):,} rows"
        case = f"{rows}, {found['edges']:,} directed edges"
        bench.record(case, "time of generate", OURS, made["seconds"], "s")
        for stage, figures in found["stages"].items():
            bench.record(case, f"time of {stage}", OURS, figures["seconds"], "s")
            bench.record(case, f"processor time of {stage}", OURS, figures["cpu"], "s")
            for process in ("client", "worker"):
                peak = figures[f"{process}_memory"]
                bench.record(case, f"peak of {process}, {stage}", OURS, peak, "B")
        for process in ("client", "worker"):
            planned = found["planned"][f"{process}_memory"]
            bench.record(case, f"peak of {process}, planned", "plan", planned, "B")
        bench.record(case, "limit of a worker", "plan", found["limit"], "B")
        bench.record(case, "run directory", OURS, found["disk"], "B")
    chart = cost_chart(runs, f"xnq-dist run, plain xnq, d' = {width}, 10 supersteps")
    bench.files |= {"scale.svg": chart.svg, "scale.png": chart.png}
    aim = FLAT if bench.size == "full" else None
    for what, name in (("seconds", "time"), ("cpu", "processor time")):
        costs = [cost_of_an_edge(run, runs[0], what) for run in runs[-2:]]
        for stage in costs[0]:
            larger, smaller = costs[1][stage], costs[0][stage]
            if smaller > 0 and larger > 0:
                bench.ratio(
                    f"{name} of an edge, {stage}, larger over smaller graph",
                    larger / smaller,
                    "less",
                    aim if stage == "all" else None,
                )
    worst = max(
        figures["worker_memory"] for run in runs for figures in run["stages"].values()
    )
    bench.ratio(
        "peak of a worker over its limit",
        worst / runs[0]["limit"],
        "less",
        OVER_LIMIT,
    )


def cost_of_an_edge(
    run: Mapping[str, Any], fixed: Mapping[str, Any], what: str
) -> dict[str, float]:
    """Seconds that a directed edge takes, by stage and in ``all``.

    Parameters
    ----------
    run, fixed
        From `measure_stages`: the graph, and one so small that it is all fixed cost.
    what
        ``seconds`` or ``cpu``.
    """
    stages: Stages = run["stages"]
    without: Stages = fixed["stages"]
    edges = run["edges"] - fixed["edges"]
    found = {
        stage: (figures[what] - without[stage][what]) / edges
        for stage, figures in stages.items()
    }
    return {**found, "all": sum(found.values())}


def measure_stages(graph: str, out: str, overrides: Sequence[str]) -> dict[str, Any]:
    """Run the line on the tables of a folder, looked at stage by stage.

    Parameters
    ----------
    graph
        Folder with ``nodes.parquet``, ``edges.parquet`` and ``memberships.parquet``.
    out
        Run directory; with whole stages in it, these take no time.
    overrides
        Settings, ``key=value`` each.

    Returns
    -------
    dict
        ``stages``: of each stage ``seconds``, ``cpu`` (the processor's, client and
        workers), ``client_memory`` and ``worker_memory`` (largest resident bytes
        meanwhile, of the largest worker); ``edges``, ``disk`` (bytes of the run
        directory), ``limit`` of a worker and the plan's figures (``planned``).
    """
    from xnq_dist import pipeline
    from xnq_dist.core.cluster import connect, open_cluster
    from xnq_dist.core.config import load_settings
    from xnq_dist.graph.tables import Sources

    settings = load_settings(overrides=list(overrides))
    tables = ("nodes", "edges", "memberships")
    sources = Sources(*(str(Path(graph) / f"{name}.parquet") for name in tables))
    stages: dict[str, dict[str, float]] = {}
    with pipeline.open_run(out, sources) as run:

        def looked_at(stage: str, work: Callable[[], Any], client: Any = None) -> Any:
            before = _usage(client)
            began = time.perf_counter()
            found = work()
            seconds = time.perf_counter() - began
            after = _usage(client)
            cpu = sum(
                spent - before.get(process, (0.0, 0))[0]
                for process, (spent, _) in after.items()
            )
            workers = [peak for process, (_, peak) in after.items() if process]
            stages[stage] = {
                "seconds": seconds,
                "cpu": cpu,
                "client_memory": after[""][1],
                "worker_memory": max(workers, default=0),
            }
            return found

        manifest = looked_at("graph", lambda: pipeline.prepare(run, sources, settings))
        with (
            open_cluster(settings.cluster) as connection,
            connect(connection) as client,
        ):
            for stage, work in (
                ("embed", lambda: pipeline.embed(run, settings, client)),
                ("readout", lambda: pipeline.fit_readout(run, settings, client)),
                (
                    "quantify",
                    lambda: pipeline.quantify_communities(
                        run, sources, settings, client
                    ),
                ),
            ):
                looked_at(stage, work, client)
        looked_at("publish", lambda: pipeline.publish(run, settings))
    plan = figures_met(run)
    files = (path for path in Path(out).rglob("*") if path.is_file())
    return {
        "stages": stages,
        "edges": int(manifest.facts["n_edges"]),
        "disk": sum(path.stat().st_size for path in files),
        "limit": plan.worker_limit,
        "planned": plan.to_dict(),
        "halo": sum(manifest.facts["halo"]),
    }


def _usage(client: Any) -> dict[str, tuple[float, int]]:
    """Processor seconds and largest resident bytes since the last call, by process.

    This one is the process with the empty name.
    """
    found: dict[str, tuple[float, int]] = {"": _own_usage()}
    if client is not None:
        found |= run_on_workers(client, _own_usage)
    return found


def _own_usage() -> tuple[float, int]:
    from xnq_dist.evaluation.bench.child import peak_bytes
    from xnq_dist.evaluation.peak_memory import peak_memory

    peak = peak_memory(reset=True)
    return time.process_time(), peak_bytes() if peak is None else peak
