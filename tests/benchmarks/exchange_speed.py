"""A superstep on two workers: seconds, processor seconds, exchanged bytes.

    python tests/benchmarks/exchange_speed.py [--nodes 400000] [--edges 2000000]

An artificial network (power-law degrees), 8 partitions on 2 local workers of one
thread, d' = 256. Prints one JSON line: medians of several turns, with the best and the
worst value. `row` returns the same as a dictionary. Processor seconds are more stable
than wall time on a machine with other load.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from distributed import Client

from xnq_dist.core import cluster
from xnq_dist.core.config import load_settings
from xnq_dist.core.store import RunDirectory
from xnq_dist.core.waiting import Heartbeats
from xnq_dist.graph.generate import generate
from xnq_dist.graph.prepare import prepare
from xnq_dist.graph.tables import Sources
from xnq_dist.reservoir.context import ReservoirSpec
from xnq_dist.reservoir.embed import reservoir_spec
from xnq_dist.reservoir.exchange import Exchange
from xnq_dist.reservoir.states import Supersteps

SUPERSTEPS = 10_000
"""Never reached: the last superstep would send nothing."""

Numbers = dict[str, float]


def row(
    nodes: int = 400_000,
    edges: int = 2_000_000,
    dim: int = 256,
    partitions: int = 8,
    workers: int = 2,
    supersteps: int = 4,
    repeats: int = 3,
    dtype: str = "float32",
    matrix: str = "dense",
) -> dict[str, Any]:
    """Seconds and bytes of a superstep.

    Parameters
    ----------
    edges
        Directed edges, about.
    supersteps
        Run at a time, in each of `repeats` turns.
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
    facts: dict[str, Any] = {
        "partitions": partitions,
        "workers": workers,
        "dim": dim,
        "dtype": dtype,
        "matrix": matrix,
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
            cluster.open_cluster(settings.cluster) as connection,
            cluster.connect(connection) as client,
        ):
            exchange = Exchange(
                client, run.stage("graph"), manifest, Heartbeats(client)
            )
            # The first turn has connections, kernels and first touches.
            turns = [
                _turn(client, exchange, spec, supersteps) for _ in range(repeats + 1)
            ]
    return facts | _medians(turns[1:]) | {"load": os.getloadavg()[0]}


def _turn(
    client: Client, exchange: Exchange, spec: ReservoirSpec, count: int
) -> Numbers:
    exchange.begin(1, Supersteps, spec, None)
    exchange.advance(1)
    before = sum(client.run(_processor).values())
    began = time.perf_counter()
    exchange.advance(count)
    took = (time.perf_counter() - began) / count
    used = (sum(client.run(_processor).values()) - before) / count
    rows = exchange.rows_sent()
    exchange.close()
    item = np.dtype(spec.exchange_dtype).itemsize
    moved = rows * spec.dim * item
    return {"superstep_s": took, "processor_s": used, "bytes": moved}


def _medians(times: list[Numbers]) -> Numbers:
    found: Numbers = {}
    for name in times[0]:
        values = [row[name] for row in times]
        found[name] = round(float(np.median(values)), 4)
        if name.endswith(("_s", "_share", "_ratio")):
            found[f"{name}_best"] = round(min(values), 4)
            found[f"{name}_worst"] = round(max(values), 4)
    return found


def _processor() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


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
    sys.stdout.write(json.dumps(row(**vars(parser.parse_args()))) + "\n")


if __name__ == "__main__":
    main()
