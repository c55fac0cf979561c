"""The whole line on a graph, and what it took beside what the plan said.

Runs without Prefect in a process of its own, with a local cluster, so that memory is
that of the client and of each worker. The figures are those that the stages met: the
halo is known then.
"""

from __future__ import annotations

import os
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xnq_dist.core.errors import StageError
from xnq_dist.core.store import RunDirectory
from xnq_dist.core.waiting import run_on_workers
from xnq_dist.evaluation.bench.child import peak_bytes
from xnq_dist.evaluation.bench.harness import OURS, Bench

if TYPE_CHECKING:
    from xnq_dist.plan import Figures

__all__ = ["figures_met", "measure_line", "plan_benchmark"]

_HERE = "xnq_dist.evaluation.bench.line"
FIGURES = (
    "worker_memory",
    "client_memory",
    "run_disk",
    "scratch_disk",
    "exchanged_bytes",
)
"""Of the plan, compared with what was measured."""
BUSY = "processor time of client and busiest worker"
"""What the time comes to where nobody else wants the processor."""
SETTINGS = ["partitions=2", "cluster.workers=2", "cluster.threads=1"]
CUTS = (
    ("tasks", 4, "random"),
    ("tasks", 16, "random"),
    ("tasks", 16, "stream"),
    ("spmd", 4, "random"),
    ("spmd", 16, "stream"),
)
"""Engine, partitions and partitioner of exchanges that are measured by themselves, on
four workers."""
TURNS = 3
"""Supersteps of each of them."""


def plan_benchmark(bench: Bench) -> None:
    """Real graphs (where there are any) and three generated sizes."""
    import numpy as np

    sizes = bench.choose((500, 1000, 2000), (20_000, 60_000, 180_000))
    width = bench.choose(32, 512)
    overrides = [*SETTINGS, f"reservoir.dim={width}"]
    cases: list[tuple[str, str]] = []
    for nodes in sizes:
        graph = str(bench.folder / f"graph-{nodes}")
        arguments = {"out": graph, "nodes": nodes}
        made = bench.child("xnq_dist.evaluation.bench.ingest:generate_graph", arguments)
        cases.append((f"{nodes:,} nodes, {int(made['edges']):,} edges", graph))
    data = os.environ.get("XNQ_DATA_DIR")
    for name in ("cora", "tolokers", "twitch-de"):
        if bench.size == "full" and data and (Path(data) / name).is_dir():
            cases.append((name, str(Path(data) / name)))
    worst: defaultdict[str, float] = defaultdict(lambda: 1.0)
    for number, (case, graph) in enumerate(cases):
        out = str(bench.folder / f"run-{number}")
        found = bench.child(
            f"{_HERE}:measure_line",
            {"graph": graph, "out": out, "overrides": overrides},
        )
        for name in FIGURES:
            planned, measured = found["planned"][name], found["measured"][name]
            bench.record(case, name, OURS, measured, "B")
            bench.record(case, name, "plan", planned, "B")
            if measured:
                ratio = planned / measured
                bench.record(case, f"{name}, plan over measured", OURS, ratio, "")
                worst[name] = max(worst[name], ratio, 1 / ratio)
        for name, peak in found["memory"].items():
            bench.record(case, f"worker_memory until {name}", OURS, peak, "B")
        for what, stages in ((OURS, found["seconds"]), ("plan", _planned_in(found))):
            for stage, seconds in stages.items():
                bench.record(case, f"time of {stage}", what, seconds, "s")
        planned = found["planned"]["seconds"]
        bench.record(case, "time", "plan", planned, "s")
        for name, measured in (("time", found["wall"]), (BUSY, found["cpu"])):
            bench.record(case, name, OURS, measured, "s")
            ratio = planned / measured
            bench.record(case, f"{name}, plan over measured", OURS, ratio, "")
            worst[name] = max(worst[name], ratio, 1 / ratio)
        _exchanges(bench, case, graph, worst)
    for name in ("time", BUSY):
        aim = 1.33 if bench.size == "full" else None
        bench.ratio(f"{name}, plan off by a factor", worst[name], "less", aim)
    for name in (*FIGURES, *dict.fromkeys(f"{engine} bytes" for engine, *_ in CUTS)):
        aim = 1.25 if bench.size == "full" else None
        bench.ratio(
            f"{name}, plan off by a factor", float(np.max(worst[name])), "less", aim
        )


def _planned_in(found: dict[str, Any]) -> dict[str, float]:
    """Planned seconds by the names of the stages that are timed."""
    stages = found["planned"]["stages"]
    return {
        "graph": stages["ingest"],
        "embed": stages["supersteps"] + stages["write"],
        "readout": stages["readout"],
        "quantify": stages["quantify"],
    }


def _exchanges(bench: Bench, case: str, graph: str, worst: dict[str, float]) -> None:
    """Bytes of one superstep by both engines at cuts of several kinds."""
    arguments = {"graph": graph, "out": str(bench.folder / "cuts")}
    for row in bench.child(f"{_HERE}:measure_exchanges", arguments)["rows"]:
        name = f"{row['engine']} bytes"
        what = f"{row['engine']}, {row['partitions']} partitions ({row['partitioner']})"
        bench.record(case, "bytes a superstep", what, row["measured"], "B")
        bench.record(case, "bytes a superstep", f"plan, {what}", row["planned"], "B")
        ratio = row["planned"] / max(1, row["measured"])
        bench.record(case, "bytes a superstep, plan over measured", what, ratio, "")
        bound = row["bound"] / max(1, row["planned"])
        bench.record(case, "bytes a superstep, bound over plan", what, bound, "")
        if not row["is_bound"]:
            worst[name] = max(worst[name], ratio, 1 / max(ratio, 1e-9))


def measure_exchanges(graph: str, out: str) -> dict[str, Any]:
    """Bytes between workers in a superstep, by the plan and by what arrives.

    Parameters
    ----------
    graph
        Folder of ``nodes.parquet`` and ``edges.parquet``.
    out
        Run directories are made in it.

    Returns
    -------
    ``rows``: one for each of `CUTS`.
    """
    from dataclasses import replace

    from xnq_dist import pipeline
    from xnq_dist.core.cluster import connect, open_cluster
    from xnq_dist.core.config import load_settings
    from xnq_dist.graph.tables import Sources
    from xnq_dist.plan import Workers, add_up
    from xnq_dist.reservoir.embed import reservoir_spec
    from xnq_dist.reservoir.exchange import TasksExchange
    from xnq_dist.reservoir.spmd import SpmdExchange

    shared = ["cluster.workers=4", "cluster.threads=1", "reservoir.dim=128"]
    tables = (str(Path(graph) / f"{name}.parquet") for name in ("nodes", "edges"))
    sources = Sources(*tables)
    rows = []
    first = load_settings(overrides=shared)
    with open_cluster(first.cluster) as connection, connect(connection) as client:
        for engine, partitions, partitioner in CUTS:
            named = (f"partitions={partitions}", f"partitioner={partitioner}")
            more = ("method=xnq", f"exchange.engine={engine}")
            settings = load_settings(overrides=[*shared, *named, *more])
            run = RunDirectory(f"{out}/{partitions}-{partitioner}")
            run.folder.create()
            manifest = pipeline.prepare(run, sources, settings)
            spec = reservoir_spec(settings, manifest.facts["rho"], 1.0, 0.5)
            begun = (client, run.stage("graph"), manifest, spec)
            if engine == "spmd":
                moving = SpmdExchange(*begun)
                moving.begin(None)
                moving.advance(1)
                moving.clocks = []
                moving.advance(TURNS)
                arrived = sum(clock["received"] for clock in moving.clocks)
                moving.close()
            else:
                tasks = TasksExchange(*begun)
                tasks.begin(None)
                run_on_workers(client, _forget)
                tasks.advance(TURNS)
                arrived = sum(run_on_workers(client, _received).values())
                tasks.close()
            size = pipeline.size_of(manifest, settings, 4, run.stage("graph"))
            four = partitions, Workers(4, 1, 2**31)
            plan = add_up(size, settings, *four)
            before = add_up(replace(size, cut=None, halo=None), settings, *four)
            rows.append(
                {
                    "engine": engine,
                    "partitions": partitions,
                    "partitioner": partitioner,
                    "measured": arrived / TURNS,
                    "planned": plan.bytes_per_superstep,
                    "is_bound": plan.bytes_are_bound,
                    "bound": before.bytes_per_superstep,
                }
            )
    return {"rows": rows}


def _forget(dask_worker: Any) -> None:
    dask_worker.transfer_incoming_log.clear()


def measure_line(graph: str, out: str, overrides: Sequence[str]) -> dict[str, Any]:
    """Run the line on ``nodes.parquet`` and ``edges.parquet`` of a folder.

    Parameters
    ----------
    graph
        The folder; ``memberships.parquet`` is taken where it is there.
    out
        Run directory.
    overrides
        Settings, ``key=value`` each.

    Returns
    -------
    Figures of the plan (``planned``), the same ``measured``, ``seconds`` of each stage,
    ``wall`` of all with the cluster's start, and ``cpu``: the processor's seconds of
    the client and the busiest worker.
    """
    from xnq_dist import pipeline
    from xnq_dist.core.cluster import connect, open_cluster
    from xnq_dist.core.config import load_settings
    from xnq_dist.graph.tables import Sources

    began_all = time.perf_counter()
    scratch = Path(out).with_suffix(".scratch")
    scratch.mkdir(parents=True, exist_ok=True)
    settings = load_settings(overrides=[*overrides, f"scratch={scratch}"])
    folder = Path(graph)
    given = folder / "memberships.parquet"
    sources = Sources(
        str(folder / "nodes.parquet"),
        str(folder / "edges.parquet"),
        str(given) if given.exists() else None,
    )
    seconds: dict[str, float] = {}
    with (
        pipeline.open_run(out, sources) as run,
        _largest(Path(out)) as disk,
        _largest(scratch, every=0.002) as temporary,
    ):

        def timed(stage: str, work: Callable[[], Any]) -> Any:
            began = time.perf_counter()
            found = work()
            seconds[stage] = time.perf_counter() - began
            return found

        manifest = timed("graph", lambda: pipeline.prepare(run, sources, settings))
        with (
            open_cluster(settings.cluster) as connection,
            connect(connection) as client,
        ):
            made = timed("embed", lambda: pipeline.embed(run, settings, client))
            memory = {"embed": max(run_on_workers(client, peak_bytes).values())}
            moved = sum(run_on_workers(client, _received).values())
            timed("readout", lambda: pipeline.fit_readout(run, settings, client))
            memory["readout"] = max(run_on_workers(client, peak_bytes).values())
            timed(
                "quantify",
                lambda: pipeline.quantify_communities(run, sources, settings, client),
            )
            peaks = run_on_workers(client, peak_bytes)
            busiest = max(run_on_workers(client, time.process_time).values())
        timed("publish", lambda: pipeline.publish(run, settings))
    wall = time.perf_counter() - began_all
    return {
        "wall": wall,
        "planned": figures_met(run).to_dict(),
        "measured": {
            "worker_memory": max(peaks.values()),
            "client_memory": peak_bytes(),
            "run_disk": disk[0],
            "scratch_disk": temporary[0],
            "exchanged_bytes": moved,
            "state_bytes": made.facts["state_file_bytes_per_superstep"],
        },
        "memory": {**memory, "quantify": max(peaks.values())},
        "supersteps": settings.reservoir.supersteps,
        "seconds": seconds,
        "cpu": time.process_time() + busiest,
        "halo": sum(manifest.facts["halo"]),
    }


def figures_met(run: RunDirectory) -> Figures:
    """The plan's figures of a complete run, as its stages met them."""
    from xnq_dist.plan import Plan

    plan = Plan.read(run.folder)
    if plan is None or plan.met is None:
        raise StageError(f"{run.uri} has no plan of a complete run: run it again")
    return plan.met


@contextmanager
def _largest(folder: Path, every: float = 0.1) -> Iterator[list[int]]:
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
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    total += _bytes_in(entry.path)
                    continue
                with suppress(FileNotFoundError):  # it was temporary
                    total += entry.stat().st_size
    except FileNotFoundError:
        return total
    return total


def _received(dask_worker: Any) -> int:
    """Bytes that other workers sent to this one, by Dask's own log."""
    return sum(int(entry["total"]) for entry in dask_worker.transfer_incoming_log)
