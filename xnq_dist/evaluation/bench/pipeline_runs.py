"""Benchmarks of complete runs: compared with the plan, at two sizes, states on disk.

Each runs without Prefect in a new process, with a local cluster, so that the memory of
the client and of each worker can be measured. Plans are those made after partitioning,
when the halo is known.
"""

from __future__ import annotations

import os
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xnq_dist.core.errors import StageError
from xnq_dist.core.store import RunDirectory
from xnq_dist.core.waiting import run_on_workers
from xnq_dist.evaluation.bench.harness import OURS, Bench
from xnq_dist.evaluation.peak_memory import peak_memory

if TYPE_CHECKING:
    from xnq_dist.plan import Figures

__all__ = ["cost_of_an_edge", "measure_run", "plan_benchmark", "scale"]

MEASURE = "xnq_dist.evaluation.bench.pipeline_runs:measure_run"
GENERATE = "xnq_dist.evaluation.bench.ingest:generate_graph"
FIGURES = (
    *("worker_memory", "client_memory", "run_disk"),
    *("scratch_disk", "exchanged_bytes"),
)
"""Figures of the plan that are compared with measurements."""
BUSY = "processor time of client and busiest worker"
"""Estimate of the wall time on a machine without other load."""
FIXED = 500
"""Nodes of the graph whose run measures the fixed cost."""
SCALED = (
    "partitions=2",
    "partitioner=stream",
    "cluster.workers=2",
    "cluster.threads=1",
    "method=xnq",
    "reservoir.supersteps=10",
    "reservoir.recurrent_scale=1.0",
    "reservoir.input_scale=0.3",
)
"""Settings with fixed scales: without a search, the work is proportional to edges."""
FLAT = 1.25
"""Goal: maximum cost per edge in the larger graph, relative to the smaller one."""
OVER_LIMIT = 1.15
"""Goal: maximum peak resident memory of a worker, relative to its limit."""


def plan_benchmark(bench: Bench) -> None:
    """Compare plans with runs on generated graphs and, if present, real graphs."""
    settings = ["partitions=2", "cluster.workers=2", "cluster.threads=1"]
    overrides = [*settings, f"reservoir.dim={bench.choose(32, 512)}"]
    cases: list[tuple[str, str]] = []
    for nodes in bench.choose((500, 1000, 2000), (20_000, 60_000, 180_000)):
        graph = str(bench.folder / f"graph-{nodes}")
        made = bench.child(GENERATE, {"out": graph, "nodes": nodes})
        cases.append((f"{nodes:,} nodes, {int(made['edges']):,} edges", graph))
    data = os.environ.get("XNQ_DATA_DIR")
    for name in ("cora", "tolokers", "twitch-de"):
        if bench.size == "full" and data and (Path(data) / name).is_dir():
            cases.append((name, str(Path(data) / name)))
    worst: defaultdict[str, float] = defaultdict(lambda: 1.0)
    for number, (case, graph) in enumerate(cases):
        out = str(bench.folder / f"run-{number}")
        arguments: dict[str, Any] = {"graph": graph, "out": out}
        arguments |= {"overrides": overrides, "watched": True}
        result = bench.child(MEASURE, arguments)
        planned = result["planned"]
        _record_stages(bench, case, OURS, result)
        compared = [(n, result["measured"][n], planned[n], "B") for n in FIGURES]
        compared.append(("time", result["wall"], planned["seconds"], "s"))
        compared.append((BUSY, result["cpu"], planned["seconds"], "s"))
        for name, measured, by_plan, unit in compared:
            bench.record(case, name, OURS, measured, unit)
            bench.record(case, name, "plan", by_plan, unit)
            if measured:
                ratio = by_plan / measured
                bench.record(case, f"{name}, plan over measured", OURS, ratio, "")
                worst[name] = max(worst[name], ratio, 1 / ratio)
    for name in ("time", BUSY, *FIGURES):
        aim = 1.25 if name in FIGURES else 2.0
        bench.ratio(
            f"{name}, error factor of the plan", worst[name], "less", bench.full(aim)
        )


def scale(bench: Bench) -> None:
    """Run graphs of 1 and 10 million nodes (10 and 100 million directed edges).

    The fixed cost, measured on a graph of 500 nodes, is subtracted.
    """
    sizes = bench.choose((1_500, 6_000), (1_000_000, 10_000_000))
    limit = bench.choose("1 GiB", "8 GiB")
    width = bench.choose(16, 64)
    overrides = [*SCALED, f"reservoir.dim={width}", f"cluster.memory_limit={limit}"]
    runs: list[dict[str, Any]] = []
    for nodes in (FIXED, *sizes):
        graph = str(bench.folder / f"graph-{nodes}")
        made = bench.child(GENERATE, {"out": graph, "nodes": nodes, "degree": 10.0})
        arguments = {"graph": graph, "overrides": overrides}
        if not runs:
            # Warm up: compile kernels.
            bench.child(MEASURE, arguments | {"out": f"{graph}-first-run"})
        result = bench.child(MEASURE, arguments | {"out": f"{graph}-run"})
        runs.append(result)
        rows = f"{nodes:,} nodes, {int(made['edges']):,} rows"
        case = f"{rows}, {result['edges']:,} directed edges"
        bench.record(case, "time of generate", OURS, made["seconds"], "s")
        _record_stages(bench, case, OURS, result)
        for process in ("client", "worker"):
            planned = result["planned"][f"{process}_memory"]
            bench.record(case, f"peak of {process}, planned", "plan", planned, "B")
        bench.record(case, "limit of a worker", "plan", result["limit"], "B")
        bench.record(case, "run directory", OURS, result["measured"]["run_disk"], "B")
    for what, name in (("seconds", "time"), ("cpu", "processor time")):
        smaller, larger = (cost_of_an_edge(run, runs[0], what) for run in runs[-2:])
        for stage in smaller:
            if smaller[stage] > 0 and larger[stage] > 0:
                bench.ratio(
                    f"{name} of an edge, {stage}, larger over smaller graph",
                    larger[stage] / smaller[stage],
                    "less",
                    bench.full(FLAT) if stage == "all" else None,
                )
    worst = max(run["measured"]["worker_memory"] for run in runs)
    bench.ratio(
        "peak of a worker over its limit", worst / runs[0]["limit"], "less", OVER_LIMIT
    )


def cost_of_an_edge(
    run: Mapping[str, Any], fixed: Mapping[str, Any], what: str
) -> dict[str, float]:
    """Seconds per directed edge, by stage and in total (``all``).

    Parameters
    ----------
    run, fixed
        Results of `measure_run` for the graph, and for one so small that its run is
        all fixed cost.
    what
        ``seconds`` or ``cpu``.
    """
    edges = run["edges"] - fixed["edges"]
    costs = {
        stage: (figures[what] - fixed["stages"][stage][what]) / edges
        for stage, figures in run["stages"].items()
    }
    return {**costs, "all": sum(costs.values())}


def _record_stages(
    bench: Bench, case: str, what: str, result: Mapping[str, Any]
) -> None:
    for stage, figures in result["stages"].items():
        bench.record(case, f"time of {stage}", what, figures["seconds"], "s")
        bench.record(case, f"processor time of {stage}", what, figures["cpu"], "s")
        for process in ("client", "worker"):
            peak = figures[f"{process}_memory"]
            bench.record(case, f"peak of {process}, {stage}", what, peak, "B")


def measure_run(
    graph: str, out: str, overrides: Sequence[str], watched: bool = False
) -> dict[str, Any]:
    """Run the pipeline on the tables of a folder and measure each stage.

    Parameters
    ----------
    graph
        Folder with ``nodes.parquet``, ``edges.parquet`` and optionally
        ``memberships.parquet``.
    out
        Run directory.
    overrides
        Settings, ``key=value`` each.
    watched
        Also measure the peak size of run directory and temporary folder, by polling.

    Returns
    -------
    dict
        ``stages``: for each stage ``seconds``, ``cpu`` (CPU seconds of client and
        workers), ``client_memory`` and ``worker_memory`` (peak resident bytes during
        the stage, of the largest worker); ``planned``: figures of the plan;
        ``measured``: the same figures, measured; ``edges``; ``limit``: memory limit of
        a worker; ``wall``: seconds in total, including the cluster's start; ``cpu``:
        CPU seconds of client and busiest worker.
    """
    from xnq_dist import pipeline
    from xnq_dist.core.cluster import connect, open_cluster
    from xnq_dist.core.config import load_settings
    from xnq_dist.graph.tables import Sources

    began_all = time.perf_counter()
    scratch = Path(out).with_suffix(".scratch")
    scratch.mkdir(parents=True, exist_ok=True)
    settings = load_settings(overrides=[*overrides, f"scratch={scratch}"])
    tables = [Path(graph) / f"{n}.parquet" for n in ("nodes", "edges", "memberships")]
    sources = Sources(*(str(path) for path in tables if path.exists()))
    stages: dict[str, dict[str, float]] = {}
    watch = _peak_size if watched else (lambda *_: nullcontext([0]))
    with (
        pipeline.open_run(out, sources) as run,
        watch(Path(out), 0.1) as run_disk,
        watch(scratch, 0.002) as scratch_disk,
    ):

        def measured(stage: str, work: Callable[[], Any], client: Any = None) -> Any:
            before = _usage(client)
            began = time.perf_counter()
            result = work()
            seconds = time.perf_counter() - began
            after = _usage(client)
            cpu = [
                used - before.get(name, (0, 0))[0] for name, (used, _) in after.items()
            ]
            workers = [peak for process, (_, peak) in after.items() if process]
            stages[stage] = {
                "seconds": seconds,
                "cpu": sum(cpu),
                "client_memory": after[""][1],
                "worker_memory": max(workers, default=0),
            }
            return result

        manifest = measured("graph", lambda: pipeline.prepare(run, sources, settings))
        with (
            open_cluster(settings.cluster) as connection,
            connect(connection) as client,
        ):
            # The worker may be this process.
            others = None if connection.address.startswith("inproc") else client
            embed = lambda: pipeline.embed(run, settings, client)  # noqa: E731
            measured("embed", embed, others)
            moved = sum(run_on_workers(client, _received).values())
            for stage, work in (
                ("readout", lambda: pipeline.fit_readout(run, settings, client)),
                (
                    "quantify",
                    lambda: pipeline.quantify_communities(
                        run, sources, settings, client
                    ),
                ),
            ):
                measured(stage, work, others)
            spent = run_on_workers(client, time.process_time) if others else {"": 0.0}
        measured("publish", lambda: pipeline.publish(run, settings))
    wall = time.perf_counter() - began_all
    plan = _final_figures(run)
    return {
        "stages": stages,
        "planned": plan.to_dict(),
        "measured": {
            **{
                name: max(figures[name] for figures in stages.values())
                for name in ("worker_memory", "client_memory")
            },
            "run_disk": max(run_disk[0], _bytes_in(out)),
            "scratch_disk": scratch_disk[0],
            "exchanged_bytes": moved,
        },
        "edges": int(manifest.facts["n_edges"]),
        "limit": plan.worker_limit,
        "wall": wall,
        "cpu": time.process_time() + max(spent.values()),
    }


def _final_figures(run: RunDirectory) -> Figures:
    """The plan's figures of a complete run, updated after partitioning."""
    from xnq_dist.plan import Plan

    plan = Plan.read(run.folder)
    if plan is None or plan.met is None:
        raise StageError(
            f"{run.uri} has no plan of a complete run: run it again with --overwrite"
        )
    return plan.met


def _usage(client: Any) -> dict[str, tuple[float, int]]:
    """CPU seconds and peak resident bytes since the last call, by process.

    The client process has an empty name.
    """
    usage: dict[str, tuple[float, int]] = {"": _process_usage()}
    return usage if client is None else usage | run_on_workers(client, _process_usage)


def _process_usage() -> tuple[float, int]:
    return time.process_time(), peak_memory(reset=True)


@contextmanager
def _peak_size(folder: Path, interval: float) -> Iterator[list[int]]:
    """Measure the peak bytes in a folder every `interval` seconds, as the only item."""
    peak = [0]
    done = threading.Event()

    def watch() -> None:
        while not done.wait(interval):
            peak[0] = max(peak[0], _bytes_in(folder))

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield peak
    finally:
        done.set()
        watcher.join(60)
        peak[0] = max(peak[0], _bytes_in(folder))


def _bytes_in(folder: str | Path) -> int:
    total = 0
    with suppress(FileNotFoundError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                total += _bytes_in(entry.path)
                continue
            with suppress(FileNotFoundError):  # a temporary file
                total += entry.stat().st_size
    return total


def _received(dask_worker: Any) -> int:
    """Bytes that other workers sent to this one, from Dask's transfer log."""
    return sum(int(entry["total"]) for entry in dask_worker.transfer_incoming_log)
