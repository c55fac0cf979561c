"""Complete runs of the pipeline: against the plan, at two sizes, with states on a disk.

Each runs without Prefect in a process of its own, with a local cluster, so that memory
is that of the client and of each worker. Plans are those of a partitioned graph, whose
halo is known.
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

__all__ = ["cost_of_an_edge", "disk", "measure_run", "plan_benchmark", "scale"]

MEASURE = "xnq_dist.evaluation.bench.pipeline_runs:measure_run"
GENERATE = "xnq_dist.evaluation.bench.ingest:generate_graph"
FIGURES = (
    *("worker_memory", "client_memory", "run_disk"),
    *("scratch_disk", "exchanged_bytes"),
)
"""Of the plan, compared with what was measured."""
BUSY = "processor time of client and busiest worker"
"""What the time comes to where nobody else wants the processor."""
FIXED = 500
"""Nodes of the graph that stands for no work at all."""
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
"""Fixed scales: nothing is searched, so that the work follows the edges."""
FLAT = 1.25
"""Cost of an edge of the larger graph over that of the smaller one, at most."""
OVER_LIMIT = 1.15
"""Peak resident memory of a worker over its limit, at most."""
TIMES = 4
"""States over the limit of the worker that has them on a disk."""
ON_DISK = (
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


def plan_benchmark(bench: Bench) -> None:
    """The plan against real graphs (where there are any) and three generated sizes."""
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
        found = bench.child(MEASURE, arguments)
        planned = found["planned"]
        _record_stages(bench, case, OURS, found)
        stages = planned["stages"]
        for stage, seconds in {
            "graph": stages["ingest"],
            "embed": stages["supersteps"] + stages["write"],
            "readout": stages["readout"],
            "quantify": stages["quantify"],
        }.items():
            bench.record(case, f"time of {stage}", "plan", seconds, "s")
        compared = [(n, found["measured"][n], planned[n], "B") for n in FIGURES]
        compared.append(("time", found["wall"], planned["seconds"], "s"))
        compared.append((BUSY, found["cpu"], planned["seconds"], "s"))
        for name, measured, by_plan, unit in compared:
            bench.record(case, name, OURS, measured, unit)
            bench.record(case, name, "plan", by_plan, unit)
            if measured:
                ratio = by_plan / measured
                bench.record(case, f"{name}, plan over measured", OURS, ratio, "")
                worst[name] = max(worst[name], ratio, 1 / ratio)
    for name in ("time", BUSY, *FIGURES):
        aim = 1.25 if name in FIGURES else 1.33
        bench.ratio(
            f"{name}, plan off by a factor", worst[name], "less", bench.full(aim)
        )


def scale(bench: Bench) -> None:
    """Generated graphs of 1 and 10 million nodes, 10 and 100 million directed edges.

    A graph of a few hundred nodes gives the fixed cost, which is subtracted.
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
            # Kernels are compiled here, where nobody looks.
            bench.child(MEASURE, arguments | {"out": f"{graph}-first-run"})
        found = bench.child(MEASURE, arguments | {"out": f"{graph}-run"})
        runs.append(found)
        rows = f"{nodes:,} nodes, {int(made['edges']):,} rows"
        case = f"{rows}, {found['edges']:,} directed edges"
        bench.record(case, "time of generate", OURS, made["seconds"], "s")
        _record_stages(bench, case, OURS, found)
        for process in ("client", "worker"):
            planned = found["planned"][f"{process}_memory"]
            bench.record(case, f"peak of {process}, planned", "plan", planned, "B")
        bench.record(case, "limit of a worker", "plan", found["limit"], "B")
        bench.record(case, "run directory", OURS, found["measured"]["run_disk"], "B")
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
    """Seconds that a directed edge takes, by stage and in ``all``.

    Parameters
    ----------
    run, fixed
        From `measure_run`: the graph, and one so small that it is all fixed cost.
    what
        ``seconds`` or ``cpu``.
    """
    edges = run["edges"] - fixed["edges"]
    found = {
        stage: (figures[what] - fixed["stages"][stage][what]) / edges
        for stage, figures in run["stages"].items()
    }
    return {**found, "all": sum(found.values())}


def disk(bench: Bench) -> None:
    """States (two buffers) of four times a worker's memory on a disk, and in memory."""
    nodes, dim = bench.choose((2_000, 64), (400_000, 1024))
    graph = str(bench.folder / "graph")
    # Few labels: the readout's rows are not what is looked at.
    arguments: dict[str, Any] = {"out": graph, "nodes": nodes, "degree": 5.0}
    arguments["labelled"] = max(0.01, 200 / nodes)
    made = bench.child(GENERATE, arguments)
    states = 2 * nodes * dim * 4
    full = bench.size == "full"
    limit = states // TIMES if full else 2**30
    case = f"{nodes:,} nodes, {int(made['edges']):,} edge rows, d' = {dim}"
    sizes = [f"reservoir.dim={dim}", f"reservoir.supersteps={bench.choose(4, 6)}"]
    seconds = {}
    for place, more in (
        (
            "disk",
            [
                f"cluster.memory_limit={limit}",
                f"exchange.states={'auto' if full else 'disk'}",
            ],
        ),
        ("memory", ["exchange.states=memory"]),
    ):
        what = f"{OURS}, {place}"
        arguments = {"graph": graph, "out": str(bench.folder / place), "watched": True}
        arguments["overrides"] = [*ON_DISK, *sizes, *more]
        found = bench.child(MEASURE, arguments)
        _record_stages(bench, case, what, found)
        seconds[place] = found["stages"]["embed"]["seconds"]
        for name in ("worker_memory", "run_disk", "state_bytes"):
            bench.record(case, name, what, found["measured"][name], "B")
            bench.record(case, name, f"plan, {what}", found["planned"][name], "B")
        if place == "disk":
            peak = found["measured"]["worker_memory"]
            bench.record(case, "limit of the worker", what, limit, "B")
            bench.ratio(
                "peak of the worker over its limit", peak / limit, "less", OVER_LIMIT
            )
            aim = bench.full(TIMES)
            bench.ratio("states over the limit", states / limit, "more", aim)
    ratio = seconds["disk"] / seconds["memory"]
    bench.ratio("time of embedding, disk over memory", ratio, "less")


def _record_stages(
    bench: Bench, case: str, what: str, found: Mapping[str, Any]
) -> None:
    for stage, figures in found["stages"].items():
        bench.record(case, f"time of {stage}", what, figures["seconds"], "s")
        bench.record(case, f"processor time of {stage}", what, figures["cpu"], "s")
        for process in ("client", "worker"):
            peak = figures[f"{process}_memory"]
            bench.record(case, f"peak of {process}, {stage}", what, peak, "B")


def measure_run(
    graph: str, out: str, overrides: Sequence[str], watched: bool = False
) -> dict[str, Any]:
    """Run the pipeline on the tables of a folder, looked at stage by stage.

    Parameters
    ----------
    graph
        Folder with ``nodes.parquet``, ``edges.parquet`` and, where there are any,
        ``memberships.parquet``.
    out
        Run directory.
    overrides
        Settings, ``key=value`` each.
    watched
        Measure the largest size of run and temporary folder as well, by looking at
        them all the time.

    Returns
    -------
    dict
        ``stages``: of each stage ``seconds``, ``cpu`` (the processor's, client and
        workers), ``client_memory`` and ``worker_memory`` (largest resident bytes
        meanwhile, of the largest worker); figures of the plan (``planned``), the same
        ``measured``; ``edges``; ``limit`` of a worker; ``wall`` of all with the
        cluster's start; ``cpu``: the processor's seconds of client and busiest worker.
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
    look = _largest if watched else (lambda *_: nullcontext([0]))
    with (
        pipeline.open_run(out, sources) as run,
        look(Path(out), 0.1) as run_disk,
        look(scratch, 0.002) as scratch_disk,
    ):

        def looked_at(stage: str, work: Callable[[], Any], client: Any = None) -> Any:
            before = _usage(client)
            began = time.perf_counter()
            found = work()
            seconds = time.perf_counter() - began
            after = _usage(client)
            spent = [
                cpu - before.get(name, (0, 0))[0] for name, (cpu, _) in after.items()
            ]
            workers = [peak for process, (_, peak) in after.items() if process]
            stages[stage] = {
                "seconds": seconds,
                "cpu": sum(spent),
                "client_memory": after[""][1],
                "worker_memory": max(workers, default=0),
            }
            return found

        manifest = looked_at("graph", lambda: pipeline.prepare(run, sources, settings))
        with (
            open_cluster(settings.cluster) as connection,
            connect(connection) as client,
        ):
            embed = lambda: pipeline.embed(run, settings, client)  # noqa: E731
            made = looked_at("embed", embed, client)
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
                looked_at(stage, work, client)
            busiest = max(run_on_workers(client, time.process_time).values())
        looked_at("publish", lambda: pipeline.publish(run, settings))
    wall = time.perf_counter() - began_all
    plan = _figures_met(run)
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
            "state_bytes": made.facts["state_file_bytes_per_superstep"],
        },
        "edges": int(manifest.facts["n_edges"]),
        "limit": plan.worker_limit,
        "wall": wall,
        "cpu": time.process_time() + busiest,
    }


def _figures_met(run: RunDirectory) -> Figures:
    """The plan's figures of a complete run, as its stages met them."""
    from xnq_dist.plan import Plan

    plan = Plan.read(run.folder)
    if plan is None or plan.met is None:
        raise StageError(f"{run.uri} has no plan of a complete run: run it again")
    return plan.met


def _usage(client: Any) -> dict[str, tuple[float, int]]:
    """Processor seconds and largest resident bytes since the last call, by process.

    This one is the process with the empty name.
    """
    found: dict[str, tuple[float, int]] = {"": _own_usage()}
    return found if client is None else found | run_on_workers(client, _own_usage)


def _own_usage() -> tuple[float, int]:
    return time.process_time(), peak_memory(reset=True)


@contextmanager
def _largest(folder: Path, every: float) -> Iterator[list[int]]:
    """Largest number of bytes that a folder held, looked at every so often."""
    found = [0]
    done = threading.Event()

    def look() -> None:
        while not done.wait(every):
            found[0] = max(found[0], _bytes_in(folder))

    watcher = threading.Thread(target=look, daemon=True)
    watcher.start()
    try:
        yield found
    finally:
        done.set()
        watcher.join(60)
        found[0] = max(found[0], _bytes_in(folder))


def _bytes_in(folder: str | Path) -> int:
    total = 0
    with suppress(FileNotFoundError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                total += _bytes_in(entry.path)
                continue
            with suppress(FileNotFoundError):  # it was temporary
                total += entry.stat().st_size
    return total


def _received(dask_worker: Any) -> int:
    """Bytes that other workers sent to this one, by Dask's own log."""
    return sum(int(entry["total"]) for entry in dask_worker.transfer_incoming_log)
