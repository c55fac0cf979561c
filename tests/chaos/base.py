"""The start of every case: a small graph, and a run of it without faults."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tests.chaos.processes import Launch
from tests.chaos.published import published
from tests.conftest import write_graph

__all__ = ["Base", "overrides"]

NODES, EDGES = 240, 900
TIMEOUT = 10
"""Seconds of ``cluster.timeout``."""
LONGEST = 240.0
"""Maximum seconds of a run without faults on a busy machine."""

QUICK = (
    "reservoir.dim=8",
    "reservoir.supersteps=30",
    "reservoir.recurrent_scale=1.0",
    "reservoir.input_scale=0.5",
    "checkpoint.every=5",
    "partitions=2",
    "intervals.resamples=20",
    "cluster.kind=local",
    "cluster.threads=1",
    "cluster.memory_limit=2GiB",
    f"cluster.timeout={TIMEOUT}",
)


def overrides(workers: int, *more: str) -> list[str]:
    """Settings of a run."""
    return [*QUICK, f"cluster.workers={workers}", "readout.C=1.0", *more]


def write_tables(folder: Path) -> dict[str, str]:
    """Write the tables of a small graph; return their paths by name."""
    write_graph(folder, NODES, EDGES, seed=1)
    nodes = np.arange(NODES)
    members = {"community": nodes // 30, "node_id": nodes}
    pq.write_table(pa.table(members), folder / "memberships.parquet")
    names = ("nodes", "edges", "memberships")
    return {table: str(folder / f"{table}.parquet") for table in names}


class Base:
    """Tables, and what a run of them publishes without faults."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.tables = write_tables(folder / "graph")
        out, temporary = folder / "finished", folder / "tmp"
        shutil.rmtree(out, ignore_errors=True)
        temporary.mkdir(parents=True, exist_ok=True)
        launch = Launch("base", self.tables, temporary)
        running = launch.start(out, overrides(1))
        if running.end(LONGEST) != 0:
            running.kill()
            raise RuntimeError(
                "a run without faults failed:\n" + "".join(running.lines)
            )
        self.seconds = time.monotonic() - running.began
        self.expected = published(out)
