"""Seconds of the stage graph's steps, in one process and by tasks on workers.

    python tests/benchmarks/ingest_on_workers.py FOLDER [NODES] [DEGREE] [REPEATS]

Partitions are blocks of consecutive nodes. Each process is bound to processors: `alone`
to all of this machine's or to one, each worker of one thread to one of them. All ways
must give the same bits. Each step's shortest time of the repeats is printed: other work
on the machine makes it longer.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from xnq_dist.core.cluster import connect, open_cluster
from xnq_dist.core.config import load_settings
from xnq_dist.core.progress import silent
from xnq_dist.core.settings import Settings
from xnq_dist.core.store import Folder
from xnq_dist.core.store.files import Attempt
from xnq_dist.core.tasks import Tasks, WorkerTasks, in_process, tasks_on
from xnq_dist.graph.csr import FileCsr
from xnq_dist.graph.distances import MAX_STEPS, effective_diameter
from xnq_dist.graph.edge_tasks import read_edges
from xnq_dist.graph.generate import generate
from xnq_dist.graph.halo import PartitionBook
from xnq_dist.graph.labels import read_nodes
from xnq_dist.graph.partition_files import write_partitions
from xnq_dist.graph.row_tasks import RowPasses
from xnq_dist.graph.scratch import scratch_folder
from xnq_dist.graph.spectral import adjacency_radius
from xnq_dist.graph.tables import open_table

PARTITIONS = 8


def bind(processors: list[int]) -> None:
    """Bind all threads of this process."""
    for thread in os.listdir("/proc/self/task"):
        os.sched_setaffinity(int(thread), processors)


def stage(graph: Path, settings: Settings, folder: Path, tasks: Tasks) -> Any:
    """Seconds of each step, and a digest of all results."""

    @contextmanager
    def timed(seconds: dict[str, float], step: str) -> Iterator[None]:
        """Time, and processor time of this process and of the busiest worker."""
        before = time.perf_counter(), time.process_time(), of_workers(tasks)
        yield
        after = time.perf_counter(), time.process_time(), of_workers(tasks)
        seconds[step] = after[0] - before[0]
        seconds[f"{step}, processor, main"] = after[1] - before[1]
        busy = [b - a for a, b in zip(before[2], after[2], strict=True)]
        if busy:
            seconds[f"{step}, processor, worker"] = max(busy)

    nodes = open_table(graph / "nodes.parquet", "node table", settings.input)
    table = open_table(graph / "edges.parquet", "edge table", settings.input)
    ids, _, _ = read_nodes(nodes, settings.columns, silent, settings.labels.missing)
    where = table, ids, settings.columns, settings.input
    seconds: dict[str, float] = {}
    with timed(seconds, "edges"):
        csr, counts = read_edges(*where, tasks)
    with timed(seconds, "rho"):
        passes = RowPasses(csr, tasks)
        rho = adjacency_radius(csr, True, passes.times)
    with timed(seconds, "distances"):
        steps = effective_diameter(csr.indptr, MAX_STEPS, passes.spread)
    book = PartitionBook.of(blocks(csr, PARTITIONS), PARTITIONS)
    out = Folder.of(folder / "out")
    out.create()
    attempt = Attempt(out, "0")
    with timed(seconds, "partitions"):
        written = write_partitions(csr, book, tasks, attempt)
    made = [each.record.checksum for each in written], rho, steps, counts.facts()
    digest = hashlib.sha256(json.dumps(made).encode()).hexdigest()[:8]
    return seconds, int(csr.indptr[-1]), digest


def of_workers(tasks: Tasks) -> list[float]:
    """Processor seconds of each worker."""
    if not isinstance(tasks, WorkerTasks):
        return []
    return list(tasks.client.run(time.process_time).values())


def blocks(csr: FileCsr, partitions: int) -> np.ndarray:
    """Partitions of consecutive nodes, with about the same number of edges."""
    return (csr.indptr[:-1] * partitions // csr.indptr[-1]).astype(np.int32)


def main(folder: Path, nodes: int, degree: float, repeats: int) -> None:
    """Print a line for each way."""
    graph = folder / f"graph-{nodes}-{degree:g}"
    if not graph.exists():
        sizes = {"nodes": nodes, "degree": degree, "features": 2, "classes": 2}
        generate(str(graph), **sizes, homophily=0.5, communities=nodes // 1000, seed=0)
    there = sorted(os.sched_getaffinity(0))
    few = 2000
    if nodes > few:  # compile and load kernels
        main(folder, few, degree, 1)

    def way(name: str, settings: Settings, client: Any) -> None:
        best: dict[str, float] = {}
        for _ in range(repeats):
            with scratch_folder(str(folder)) as into:
                limit = settings.input.memory_bytes
                tasks = in_process(into, limit)
                if client:
                    tasks = tasks_on(client, into, limit)
                seconds, edges, digest = stage(graph, settings, into, tasks)
            best = {of: round(min(s, best.get(of, s)), 2) for of, s in seconds.items()}
        if nodes > few:
            line = {"way": name, "directed": edges, **best, "digest": digest}
            sys.stdout.write(json.dumps(line) + "\n")
            sys.stdout.flush()

    for count in (len(there), 1):
        bind(there[:count])
        way(f"alone, {count} processors", load_settings(), None)
    bind(there)
    for count in range(1, len(there) + 1):
        of_workers = ["cluster.kind=local", f"cluster.workers={count}"]
        settings = load_settings(overrides=[*of_workers, "cluster.threads=1"])
        with (
            open_cluster(settings.cluster) as connection,
            connect(connection) as client,
        ):
            for number, address in enumerate(client.scheduler_info()["workers"]):
                client.run(bind, [there[number]], workers=[address])
            way(f"{count} workers of one thread", settings, client)


if __name__ == "__main__":
    path, *sizes = sys.argv[1:]
    count, mean, times = (*sizes, *("500000", "20", "3")[len(sizes) :])
    main(Path(path), int(count), float(mean), int(times))
