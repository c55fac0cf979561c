"""What scheduler and client cost in each superstep.

    python tests/benchmarks/round_overhead.py [--partitions 2 16 128] [--nodes 16384]

A small graph on 2 local workers of one thread, d' = 8, so that computing takes almost
nothing. The scheduler runs in this process. Prints one JSON line for each number of
partitions: seconds a superstep, and processor seconds of this process a superstep;
medians of several turns.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from xnq_dist.core import cluster
from xnq_dist.core.config import load_settings
from xnq_dist.core.store import RunDirectory
from xnq_dist.graph.generate import Arguments, generate
from xnq_dist.graph.prepare import prepare
from xnq_dist.graph.sources import Sources
from xnq_dist.reservoir.embed import reservoir_spec
from xnq_dist.reservoir.exchange import Exchange
from xnq_dist.reservoir.states import Supersteps


def timed(function: Callable[[], object], rounds: int) -> tuple[float, float]:
    """Seconds and processor seconds of one of so many rounds."""
    began, used = time.perf_counter(), time.process_time()
    function()
    spent = time.perf_counter() - began, time.process_time() - used
    return spent[0] / rounds, spent[1] / rounds


def measure(partitions: int, nodes: int, rounds: int, turns: int) -> None:
    """Measure supersteps with this number of partitions, and print the results."""
    settings = load_settings(
        overrides=[
            "method=xnq",
            "reservoir.dim=8",
            "reservoir.supersteps=10000",
            "cluster.kind=local",
            "cluster.workers=2",
            "cluster.threads=1",
        ]
    )
    found: list[tuple[float, float]] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        generate(folder / "in", Arguments(nodes, 4.0, 8, 2, 0.8, 100, 0))
        tables = (f"{folder}/in/{kind}.parquet" for kind in ("nodes", "edges"))
        run = RunDirectory(folder / "run")
        run.create()
        manifest = prepare(run, Sources(*tables), settings, partitions)
        spec = reservoir_spec(settings, manifest.facts, 1.0, 0.5)
        with (
            cluster.open_cluster(settings.cluster) as connection,
            cluster.connect(connection) as client,
        ):
            exchange = Exchange(client, manifest)
            for turn in range(turns + 1):
                exchange.begin(1, Supersteps, spec, 1, None)
                exchange.advance(1)
                spent = timed(lambda: exchange.advance(rounds), rounds)
                if turn:
                    found.append(spent)
                exchange.close()
    wall, used = (statistics.median(values) for values in zip(*found, strict=True))
    row = {
        "partitions": partitions,
        "round_ms": round(1000 * wall, 1),
        "worst_ms": round(1000 * max(s[0] for s in found), 1),
        "scheduler_and_client_ms": round(1000 * used, 1),
    }
    sys.stdout.write(json.dumps(row) + "\n")
    sys.stdout.flush()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--partitions", type=int, nargs="+", default=[2, 16, 128])
    parser.add_argument("--nodes", type=int, default=16384)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--turns", type=int, default=3)
    options = parser.parse_args()
    for partitions in options.partitions:
        measure(partitions, options.nodes, options.rounds, options.turns)


if __name__ == "__main__":
    main()
