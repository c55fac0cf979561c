"""Both exchange engines and plain sockets: compute, scheduling, transfer, bytes.

    python tests/benchmarks/exchange_speed.py [--nodes 400000] [--edges 2000000]

An artificial network (power-law degrees), 8 partitions on 2 local workers of one
thread, d' = 256. Prints one JSON line per measurement. Engines and sockets alternate
several times in one run; every figure is a median, with the best and the worst value.
`rows` returns the same as dictionaries.

Transfer is the work of the engine ``spmd`` between supersteps (select rows, send,
receive) without compute, and selection is its first part only. Waiting is the part that
delays supersteps, since the rest overlaps with compute. Loopback is two plain sockets
between the same worker processes, which move the same bytes in both directions at once
into reused memory (4 MiB, which stay in the processor's cache). CPU seconds are
reported too: they are more stable than wall time on a machine with other load.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from distributed import Client, LocalCluster

from xnq_dist.core import cluster
from xnq_dist.core.config import Settings, load_settings
from xnq_dist.core.store import RunDirectory
from xnq_dist.graph.generate import generate
from xnq_dist.graph.prepare import prepare
from xnq_dist.graph.tables import Sources
from xnq_dist.reservoir.embed import reservoir_spec
from xnq_dist.reservoir.exchange import TasksExchange
from xnq_dist.reservoir.routes import pick_rows
from xnq_dist.reservoir.spmd import SpmdExchange
from xnq_dist.reservoir.worker_state import WorkerState

CHUNK = 1 << 20
"""Bytes of rows that are selected at a time."""
SUPERSTEPS = 10_000
"""Never reached: the last superstep would send nothing."""

Numbers = dict[str, float]


def rows(
    nodes: int = 400_000,
    edges: int = 2_000_000,
    dim: int = 256,
    partitions: int = 8,
    workers: int = 2,
    supersteps: int = 4,
    repeats: int = 3,
    dtype: str = "float32",
    matrix: str = "dense",
    protocol: str = "tls",
) -> list[dict[str, Any]]:
    """One row an engine and one for the transfer.

    Parameters
    ----------
    edges
        Directed edges, about.
    supersteps
        Run at a time, in each of `repeats` turns.
    protocol
        ``tls``, as runs have it, or ``tcp``: what that costs.
    """
    settings = load_settings(
        overrides=[
            "method=xnq",
            f"reservoir.dim={dim}",
            f"reservoir.supersteps={SUPERSTEPS}",
            f"reservoir.matrix={matrix}",
            f"exchange.dtype={dtype}",
            f"cluster.workers={workers}",
            "cluster.threads=1",
        ]
    )
    facts = {
        "partitions": partitions,
        "workers": workers,
        "dim": dim,
        "dtype": dtype,
        "matrix": matrix,
        "protocol": protocol,
        "supersteps": supersteps,
        "repeats": repeats,
        "processors": os.cpu_count(),
        "machine": platform.processor() or platform.machine(),
    }
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        generate(folder / "in", nodes, edges / nodes, 8, 2, 0.8, 100, 0)
        tables = (f"{folder}/in/{kind}.parquet" for kind in ("nodes", "edges"))
        run = RunDirectory(folder / "run")
        run.folder.create()
        manifest = prepare(run, Sources(*tables), settings, partitions)
        facts |= {"nodes": nodes, "edges": manifest.facts["n_edges"]}
        spec = reservoir_spec(settings, manifest.facts["rho"], 1.0, 0.5)
        with (
            _cluster(settings, protocol) as connection,
            cluster.connect(connection) as client,
        ):
            tasks = TasksExchange(client, run.stage("graph"), manifest, spec)
            spmd = SpmdExchange(client, run.stage("graph"), manifest, spec)
            found = _measure(client, tasks, spmd, supersteps, repeats)
    facts["load"] = os.getloadavg()[0]
    return [row | facts for row in found]


@contextmanager
def _cluster(settings: Settings, protocol: str) -> Iterator[cluster.Connection]:
    if protocol == "tls":
        with cluster.open_cluster(settings.cluster) as connection:
            yield connection
        return
    with LocalCluster(
        n_workers=settings.cluster.workers,
        threads_per_worker=1,
        host="127.0.0.1",
        dashboard_address="127.0.0.1:0",
    ) as bare:
        yield cluster.Connection(bare.scheduler_address)


def _measure(
    client: Client,
    tasks: TasksExchange,
    spmd: SpmdExchange,
    supersteps: int,
    repeats: int,
) -> list[dict[str, Any]]:
    found: dict[str, list[Numbers]] = {"tasks": [], "spmd": [], "transfer": []}
    # One after the other, not both at once: they have the same workers' memory.
    for turn in range(repeats + 1):
        spmd.begin(None)
        spmd.advance(1)
        spmd.clocks = []
        inside, inside_used = _timed(client, spmd.advance, supersteps)
        clocks = [
            {name: value / supersteps for name, value in clock.items()}
            for clock in spmd.clocks
        ]
        moved = _transfer(client, spmd, supersteps)
        spmd.close()
        tasks.begin(None)
        tasks.advance(1)
        outside, outside_used = _timed(client, tasks.advance, supersteps)
        tasks.close()
        if not turn:
            continue  # connections, kernels, first touches
        computing = max(c["computing"] + c["picking"] for c in clocks)
        busy = max(c["computing"] + c["picking"] + c["waiting"] for c in clocks)
        shared = {"computing_s": computing, "transfer_s": moved["transfer_s"]}
        found["spmd"].append(
            shared
            | {
                "superstep_s": inside,
                "processor_s": inside_used,
                "waiting_s": max(c["waiting"] for c in clocks),
                "scheduling_s": inside - busy,
                "scheduling_share": (inside - busy) / inside,
                "bytes_received": sum(c["received"] for c in clocks),
                "transfer_mb_per_s": moved["bytes"] / moved["transfer_s"] / 1e6,
                "bytes_planned": spmd.bytes_per_superstep,
            }
        )
        found["tasks"].append(
            shared
            | {
                "superstep_s": outside,
                "processor_s": outside_used,
                "beside_computing_s": outside - computing,
                "transfer_mb_per_s": tasks.bytes_per_superstep
                / (outside - computing)
                / 1e6,
                "bytes_planned": tasks.bytes_per_superstep,
            }
        )
        found["transfer"].append(moved)
    return [{"what": what} | _medians(times) for what, times in found.items()]


def _timed(
    client: Client, function: Callable[[int], None], count: int
) -> tuple[float, float]:
    """Seconds, and processor seconds of all workers, of each of so many supersteps."""
    before = sum(client.run(_processor).values())
    began = time.perf_counter()
    function(count)
    seconds = time.perf_counter() - began
    used = sum(client.run(_processor).values()) - before
    return seconds / count, used / count


def _medians(times: list[Numbers]) -> Numbers:
    found: Numbers = {}
    for name in times[0]:
        values = [row[name] for row in times]
        found[name] = round(float(np.median(values)), 4)
        if name.endswith(("_s", "_share", "_ratio")):
            found[f"{name}_best"] = round(min(values), 4)
            found[f"{name}_worst"] = round(max(values), 4)
    return found


def _transfer(client: Client, spmd: SpmdExchange, count: int) -> Numbers:
    """The exchange alone, then the same bytes by plain sockets, in the same workers."""
    kept_states = spmd._worker_states
    before = client.run(_processor)
    began = time.perf_counter()
    moved = client.gather(
        [
            client.submit(_exchange, kept, count, workers=[worker], pure=False)
            for worker, kept in kept_states.items()
        ]
    )
    wall = max(seconds for seconds, _ in moved)
    overall = time.perf_counter() - began
    after = client.run(_processor)
    used = sum(after[worker] - before[worker] for worker in kept_states)
    cutting = client.gather(
        [
            client.submit(_cut, kept, count, workers=[worker], pure=False)
            for worker, kept in kept_states.items()
        ]
    )
    sent = [sum(by.values()) for _, by in moved]
    ports = client.gather(
        [client.submit(_listen, workers=[w], pure=False) for w in kept_states]
    )
    before = client.run(_processor)
    # A ring: each sends its bytes to the next, all at the same time.
    plain = client.gather(
        [
            client.submit(
                _loopback,
                ports[(at + 1) % len(ports)],
                sent[at],
                sent[at - 1],
                count,
                workers=[worker],
                pure=False,
            )
            for at, worker in enumerate(kept_states)
        ]
    )
    after = client.run(_processor)
    plain_used = sum(after[worker] - before[worker] for worker in kept_states)
    return {
        "bytes": sum(sent),
        "transfer_s": wall / count,
        "cutting_s": max(cutting) / count,
        "with_scheduling_s": overall / count,
        "loopback_s": max(plain) / count,
        "transfer_ratio": wall / max(plain),
        "transfer_processor_s": used / count,
        "loopback_processor_s": plain_used / count,
        "processor_ratio": used / plain_used,
    }


def _processor() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _exchange(kept: WorkerState, count: int) -> tuple[float, dict[str, int]]:
    """Exchanges with no compute and no picking: seconds, bytes sent to each worker."""
    step = kept.step + 1
    began = time.perf_counter()
    for turn in range(count):
        kept.post(step + turn, kept.states)
        kept.collect(step + turn, 0, lambda number, pick: None, lambda waited: None)
    spent = time.perf_counter() - began
    sent: dict[str, int] = {}
    row = next(iter(kept.states.values())).shape[1]
    size = np.dtype(next(iter(kept.contexts.values())).spec.exchange_dtype).itemsize
    for to in kept.peers.routes.sends.values():
        for worker, wanted in to.items():
            sent[worker] = sent.get(worker, 0) + len(wanted) * row * size
    return spent, sent


def _cut(kept: WorkerState, count: int) -> float:
    """Cuts all rows that leave the worker, as they are cut to be sent; seconds."""
    dim = next(iter(kept.states.values())).shape[1]
    dtype = np.dtype(next(iter(kept.contexts.values())).spec.exchange_dtype)
    step = max(1, CHUNK // (dim * dtype.itemsize))
    out = np.ones((step, dim), dtype)
    began = time.perf_counter()
    for _ in range(count):
        for number, to in kept.peers.routes.sends.items():
            for rows in to.values():
                for first in range(0, len(rows), step):
                    some = rows[first : first + step]
                    into = out[: len(some)]
                    pick_rows(some, kept.states[number], slice(0, dim), into)
    return time.perf_counter() - began


def _listen() -> int:
    """A port of this process that `_loopback` listens at."""
    from distributed import get_worker

    worker = get_worker()
    worker._xnq_listener = socket.create_server(("127.0.0.1", 0))
    port = worker._xnq_listener.getsockname()[1]
    return int(port)


def _loopback(port: int, sent: int, received: int, count: int) -> float:
    """Send to the next and receive from the one before; seconds."""
    from distributed import get_worker

    listener = get_worker()._xnq_listener
    near = socket.create_connection(("127.0.0.1", port))
    far, _ = listener.accept()
    block = np.ones(4 << 20, np.uint8)
    into = np.empty(4 << 20, np.uint8)
    far.sendall(b"x")  # both ends are there
    near.recv(1)
    began = time.perf_counter()

    def send() -> None:
        left = sent * count
        while left:
            part = min(left, len(block))
            near.sendall(block[:part])
            left -= part

    sending = threading.Thread(target=send)
    sending.start()
    left = received * count
    while left:
        left -= far.recv_into(into, min(left, len(into)))
    sending.join()
    spent = time.perf_counter() - began
    for opened in (near, far, listener):
        opened.close()
    return spent


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--nodes", type=int, default=400_000)
    parser.add_argument("--edges", type=int, default=2_000_000)
    parser.add_argument("--dim", type=int, default=256)
    parser.add_argument("--partitions", type=int, default=8)
    parser.add_argument("--supersteps", type=int, default=4)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--matrix", default="dense")
    parser.add_argument("--protocol", choices=["tls", "tcp"], default="tls")
    for row in rows(**vars(parser.parse_args())):
        sys.stdout.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
