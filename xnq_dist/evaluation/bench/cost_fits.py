"""Measured unit costs of work on one core, for the plan (`xnq_dist.plan.unit_costs`).

Each cost is the minimum of many short repeats, in CPU seconds and not wall time, so
that other processes do not count. Work that workers do in parallel is measured on all
cores at once, because they share memory bandwidth, and two of them may be hyperthreads
of the same core.
"""

from __future__ import annotations

import asyncio
import json
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from xnq_dist.core.clusters.local import tls
from xnq_dist.core.config import load_settings
from xnq_dist.core.limits import processors
from xnq_dist.core.store import RunDirectory
from xnq_dist.core.waiting import gather
from xnq_dist.evaluation.bench.harness import OURS, Bench
from xnq_dist.evaluation.bench.machine import machine_facts
from xnq_dist.evaluation.bench.pipeline_runs import GENERATE, MEASURE
from xnq_dist.evaluation.bench.stage_costs import fit_costs, run_costs
from xnq_dist.pipeline import size_of
from xnq_dist.plan import Workers, add_up
from xnq_dist.plan.unit_costs import RECORDED, VARIABLE, Costs, load_costs

__all__ = ["costs"]

WIDTH = 256
_INGEST = "xnq_dist.evaluation.bench.ingest"


def costs(bench: Bench) -> None:
    """Measure all costs and write them as ``costs.json`` next to the tables."""
    before = os.environ.get(VARIABLE)
    # Runs make plans, and this machine's own costs may be missing or damaged.
    os.environ[VARIABLE] = str(RECORDED)
    try:
        _measure(bench)
    finally:
        del os.environ[VARIABLE]
        if before is not None:
            os.environ[VARIABLE] = before


def _measure(bench: Bench) -> None:
    machine = machine_facts()
    disk = _disk_cost(bench)  # first: nothing has freed pages yet
    node, edge, cut, largest = _ingest_costs(bench)
    visit, gather = _gather_costs(bench)
    flop, value = _update_costs(bench)
    row, loss = _row_costs(1)
    class_row, class_loss = _row_costs(7)
    measured = {
        **dict.fromkeys(("fixed", "start", "host"), 0.0),
        "node": node,
        "edge": edge,
        "cut": cut,
        "visit": visit,
        "gather": gather,
        "flop": flop,
        "nonzero": _nonzero_cost(),
        "value": value,
        "copy": _copy_cost(bench),
        "wire": _wire_cost(),
        "disk": disk,
        **run_costs(bench, _busy),
        "task": _task_cost(bench),
        "row": row,
        "loss": loss,
        "class_row": class_row,
        "class_loss": class_loss,
        **fit_costs(bench, _busy),
        **_member_costs(),
        "leiden": _leiden_cost(bench),
    }
    basis = (
        f"measured {machine['date'][:10]} on {machine['cores']} cores of "
        f"{machine['processor']}"
    )
    made = Costs(**measured, basis=basis, edges_measured=float(largest))
    made = replace(made, fixed=_fixed_cost(bench, made, "single"))
    made = replace(made, start=_fixed_cost(bench, made, "local"))
    for name in measured:
        bench.record("one core", name, OURS, getattr(made, name), "s")
    record = {"costs": asdict(made), "machine": dict(machine)}
    bench.files["costs.json"] = json.dumps(record, indent=1).encode()
    recorded = load_costs()
    for name in ("gather", "flop", "edge"):
        bench.ratio(
            f"{name}, recorded cost over ours",
            getattr(recorded, name) / getattr(made, name),
            "more",
        )


def _minimum(
    work: Callable[[], Any], repeats: int = 20, threads: bool = False
) -> float:
    """Minimum CPU seconds of `work`, of this thread or of the complete process."""
    clock = time.process_time if threads else time.thread_time
    work()
    seconds = []
    for _ in range(repeats):
        began = clock()
        work()
        seconds.append(clock() - began)
    return min(seconds)


def _busy(work: Callable[[int], Any], repeats: int = 5) -> float:
    """Minimum CPU seconds of one ``work(core)`` while every core runs one.

    They are those of all threads of the process, since libraries start threads.
    """
    cores = processors()
    seconds = []
    with ThreadPoolExecutor(cores) as pool:
        list(pool.map(work, range(cores)))
        for _ in range(repeats):
            began = time.process_time()
            list(pool.map(work, range(cores)))
            seconds.append((time.process_time() - began) / cores)
    return min(seconds)


def _shared(work: Callable[[int], Any], repeats: int = 10) -> float:
    """Minimum seconds of the slowest core while each core runs ``work(core)``.

    They are CPU seconds of the thread: other processes on the core do not count.
    """
    cores = processors()
    barrier = threading.Barrier(cores, timeout=600)

    def one(core: int) -> list[float]:
        work(core)
        seconds = []
        for _ in range(repeats):
            barrier.wait()
            began = time.thread_time()
            work(core)
            seconds.append(time.thread_time() - began)
        return seconds

    with ThreadPoolExecutor(cores) as pool:
        by_core = list(pool.map(one, range(cores)))
    return float(min(max(repeat) for repeat in zip(*by_core, strict=True)))


def _ingest_costs(bench: Bench) -> tuple[float, float, float, int]:
    """Seconds per node and directed edge from three graphs; edges of the largest.

    The largest is partitioned, too, for the cost of that.
    """
    nodes = bench.choose(2_000, 100_000)
    seconds, edges = [], []
    for count, degree, partitions in (
        (nodes // 4, 4.0, 1),
        (nodes, 4.0, 1),
        (nodes, 24.0, 1),
        (nodes, 24.0, 8),
    ):
        graph = str(bench.folder / f"graph-{count}-{degree:.0f}")
        if partitions == 1:
            bench.child(GENERATE, {"out": graph, "nodes": count, "degree": degree})
        arguments = {"graph": graph, "memory": "64 MiB", "partitions": partitions}
        runs = []
        for number in range(bench.repeat):
            out = {"out": f"{graph}-run-{partitions}-{number}"}
            runs.append(bench.child(f"{_INGEST}:prepare_graph", arguments | out))
        seconds.append(min(run["cpu"] for run in runs))
        edges.append(int(runs[0]["directed"]))
    edge = max((seconds[2] - seconds[1]) / (edges[2] - edges[1]), 1e-9)
    grown = seconds[1] - seconds[0] - edge * (edges[1] - edges[0])
    cut = max((seconds[3] - seconds[2]) / edges[2], 0.0)
    return max(grown / (nodes - nodes // 4), 1e-9), edge, cut, edges[2]


def _fixed_cost(bench: Bench, costs: Costs, kind: str) -> float:
    """Seconds of a run of 500 nodes beyond the planned cost of its work."""
    graph = str(bench.folder / "graph-500")
    bench.child(GENERATE, {"out": graph, "nodes": 500})
    run = str(bench.folder / f"run-500-{kind}")
    count = 1 if kind == "single" else 2
    overrides = [f"cluster.kind={kind}", f"partitions={count}", "cluster.threads=1"]
    overrides.append(f"cluster.workers={count}")
    arguments: dict[str, Any] = {"graph": graph, "out": run, "overrides": overrides}
    result = bench.child(MEASURE, arguments)
    settings = load_settings(overrides=overrides)
    made = RunDirectory(run)
    labels = made.complete("labels")
    size = size_of(made.complete("graph"), settings, count, made.stage("graph"), labels)
    crew = Workers(count, 1, 2**31)
    plan = add_up(size, settings, count, crew, True, costs)
    return max(float(result["cpu"]) - plan.seconds, 0.0)


def _gather_costs(bench: Bench) -> tuple[float, float]:
    """Seconds per neighbour and per value of its state, of narrow and wide rows."""
    rows, degree, narrow = bench.choose(5_000, 1_000_000), 10, 32  # 1 GB of states
    seconds = {
        width: _gather_seconds(rows * WIDTH // width, width, degree)
        for width in (narrow, WIDTH)
    }
    gather = (seconds[WIDTH] - seconds[narrow]) / (WIDTH - narrow)
    return max(seconds[narrow] - narrow * gather, 0.0), gather


def _gather_seconds(rows: int, width: int, degree: int) -> float:
    """Seconds per neighbour."""
    from xnq_dist.reservoir.kernels import gather_add

    rng = np.random.default_rng(0)
    count = max(1, rows // 20)
    states = rng.random((rows, width), dtype=np.float32)
    indptr = np.arange(0, count * degree + 1, degree)
    nothing = np.empty(0, np.float32)
    halo = np.empty((0, width), np.float32)
    cores = processors()
    indices = rng.integers(0, rows, (cores, count * degree)).astype(np.int32)
    out = np.empty((cores, count, width), np.float32)

    def work(core: int) -> None:
        edges = (indptr, indices[core], nothing)
        gather_add(*edges, states, halo, 0, count, out[core])

    return float(_shared(work) / (count * degree))


def _update_costs(bench: Bench) -> tuple[float, float]:
    """Seconds per product and per value, from small and large reservoirs.

    As in xnq+, four reservoirs are updated together; all cores are busy.
    """
    from xnq_dist.core.backend import choose
    from xnq_dist.reservoir.superstep import update
    from xnq_dist.reservoir.weights import BlockDiagonal, draw_recurrent

    backend, rng = choose("cpu"), np.random.default_rng(0)
    cores = processors()
    # Products of fewer units take longer per operation.
    few, many, seconds = 128, 512, {}
    for units in few, many:
        drawn = [draw_recurrent(seed, units, "dense", 1) for seed in range(4)]
        recurrent = BlockDiagonal(tuple(drawn))
        rows = bench.choose(1_024, 8_192)
        drive = rng.random((cores, rows, 4 * units), dtype=np.float32)
        states = drive.copy()

        def work(core: int) -> None:
            # It runs before the next iteration changes these variables.
            update(backend, states[core], drive[core], recurrent)  # noqa: B023

        seconds[units] = _shared(work) / (rows * 4 * units)
    flop = max((seconds[many] - seconds[few]) / (2 * (many - few)), 1e-13)
    return flop, max(seconds[few] - 2 * few * flop, 0.0)


def _copy_cost(bench: Bench) -> float:
    """Seconds per byte of a copy to new memory, on all cores."""
    cores = processors()
    values = np.ones((cores, bench.choose(1 << 20, 1 << 24)), np.float32)
    return float(_shared(lambda core: values[core].copy()) / values[0].nbytes)


def _nonzero_cost(nonzeros: int = 16) -> float:
    """Seconds per nonzero of a sparse update, without its elementwise part."""
    from xnq_dist.reservoir import kernels
    from xnq_dist.reservoir.weights import draw_recurrent

    dim, rows = 2 * WIDTH, 256
    sparse = draw_recurrent(0, dim, "sparse", nonzeros)
    states = np.random.default_rng(0).random((rows, dim), dtype=np.float32)
    drive = np.zeros_like(states)
    tile = np.zeros((dim, kernels.LANES), np.float32)
    sums = np.zeros((kernels.WIDTH, kernels.LANES), np.float32)
    weights = np.asarray(sparse.columns), sparse.values
    arguments = states, *weights, drive, tile, sums
    total = _minimum(lambda: kernels.sparse_update(*arguments))
    tanh = _minimum(lambda: kernels.tanh_add(states, drive))
    return max(total - tanh, 0.0) / (2.0 * states.size * nonzeros)


def _wire_cost(size: int = 1 << 24) -> float:
    """Seconds per byte from one worker to another, over TLS as between local workers.

    They are CPU seconds of both, because each worker sends as much as it receives.
    """
    from distributed.comm.core import connect, listen
    from distributed.protocol.serialize import to_serialize

    values = np.ones(size // 4, np.float32)
    security = tls()["security"]

    async def answer(comm: Any) -> None:
        while await comm.read() is not None:
            await comm.write(True)

    async def moved(repeats: int = 10) -> list[float]:
        accepted = security.get_listen_args("worker")
        listener = listen("tls://127.0.0.1:0", answer, **accepted)
        async with asyncio.timeout(60), listener:
            offered = security.get_connection_args("worker")
            comm = await connect(listener.contact_address, **offered)
            seconds = []
            for _ in range(repeats):
                began = time.process_time()
                await comm.write({"values": to_serialize(values)})
                await comm.read()
                seconds.append(time.process_time() - began)
            await comm.write(None)
            await comm.close()
            return seconds

    return min(asyncio.run(moved())) / size


def _disk_cost(bench: Bench) -> float:
    """Median of many files that all stay, as a large run writes them to new pages."""
    values = np.random.default_rng(0).random((1 << 14, WIDTH), dtype=np.float32)
    attempt = RunDirectory(bench.folder / "disk").stage("graph").begin()
    seconds = []
    for number in range(bench.choose(3, 32)):
        began = time.thread_time()
        attempt.write_arrays(f"values-{number}", values=values)
        seconds.append(time.thread_time() - began)
    attempt.folder.delete_folder()
    return float(np.median(seconds)) / values.nbytes


def _task_cost(bench: Bench) -> float:
    from distributed import Client

    count = bench.choose(50, 400)
    with Client(
        processes=False,
        n_workers=1,
        threads_per_worker=1,
        dashboard_address="127.0.0.1:0",
    ) as client:

        def work() -> None:
            gather(client, client.map(abs, range(count), pure=False))

        return float(_minimum(work, 5, threads=True) / count)


def _row_costs(outputs: int) -> tuple[float, float]:
    """Seconds per value of a labelled row, and per row, from narrow and wide rows."""
    from xnq_dist.core.blocks import one_blas_thread
    from xnq_dist.readout.objective import Group, Problem, group_sums

    rng, narrow, rows, problems = np.random.default_rng(0), 8, 4096, 5
    labels = rng.integers(0, max(2, outputs), rows).astype(np.int32)

    def seconds(width: int) -> float:
        x = rng.random((rows, width), dtype=np.float32)
        group = Group(x, labels, np.zeros(rows, np.int32))
        points = [Problem((), np.zeros((outputs, width)), np.zeros(outputs))] * problems
        with one_blas_thread():  # entering it takes longer than a pass over rows
            passed = _busy(lambda _: group_sums(group, points), 20)
        return passed / (rows * outputs * problems)

    few, many = seconds(narrow), seconds(WIDTH)
    value = (many - few) / (WIDTH - narrow)
    return value, max(few - narrow * value, 0.0)


def _member_costs() -> dict[str, float]:
    """Seconds per member in communities of 100 nodes, a tenth of them labelled."""
    from xnq_dist.quantify.classic.sld import Sld
    from xnq_dist.quantify.default.auto import Auto
    from xnq_dist.quantify.default.estimator_fit import Learnt
    from xnq_dist.quantify.interface import Communities, NodeTable, Reference

    rng = np.random.default_rng(0)
    posteriors = rng.dirichlet([1.0, 1.0], 20_000).astype(np.float32)
    labels = np.where(rng.random(20_000) < 0.1, rng.integers(0, 2, 20_000), -1)
    nodes = NodeTable(posteriors, labels.astype(np.int32), labels >= 0, ("0", "1"))
    offsets = np.arange(0, 100_001, 100)
    batch = Communities(offsets, rng.integers(0, 20_000, 100_000))
    labelled = labels >= 0
    reference = Reference(
        np.array([0.6, 0.4]),
        posteriors=posteriors[labelled],
        labels=labels[labelled].astype(np.int32),
        rows=np.flatnonzero(labelled),
    )
    arguments = batch, nodes, reference
    groups = (np.arange(20_000) // 100).astype(np.int32)
    sld, auto = Sld(), Auto(learnt=Learnt.of(nodes, reference, groups))
    plain = _minimum(lambda: sld.estimate(*arguments))
    judged = _minimum(lambda: auto.estimate(*arguments))
    return {"member": plain / 100_000, "judged": judged / 100_000}


def _leiden_cost(bench: Bench) -> float:
    """Seconds of Leiden per directed edge, on a graph with communities."""
    from scipy.sparse import coo_array

    from xnq_dist.groups.leiden import leiden

    nodes, degree = bench.choose(1_000, 50_000), 10
    rng = np.random.default_rng(0)
    head = np.repeat(np.arange(nodes), degree // 2)
    # Four of five edges stay within a block of 100 consecutive nodes.
    near = head // 100 * 100 + rng.integers(0, 100, len(head))
    far = rng.integers(0, nodes, len(head))
    tail = np.where(rng.random(len(head)) < 0.8, near.clip(max=nodes - 1), far)
    ends = (np.concatenate([head, tail]), np.concatenate([tail, head]))
    graph = coo_array((np.ones(2 * len(head)), ends), shape=(nodes, nodes)).tocsr()
    return float(_minimum(lambda: leiden(graph, 1.0, 0), 3) / graph.nnz)
