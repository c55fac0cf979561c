"""What scheduler and client cost in each superstep and in each round of sums.

    python tests/benchmarks/round_overhead.py [--partitions 2 16 128] [--nodes 16384]

A small graph on 2 local workers of one thread, d' = 8, so that computing takes almost
nothing. The scheduler runs in this process. Prints one JSON line for each loop
(supersteps, and rounds of sums over neighbours) and number of partitions: seconds a
round, and processor seconds of this process a round; medians of several turns, in which
the loops alternate.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from xnq_dist.core import cluster
from xnq_dist.core.config import load_settings
from xnq_dist.core.store import RunDirectory, Stage
from xnq_dist.core.waiting import Heartbeats
from xnq_dist.graph.generate import generate
from xnq_dist.graph.prepare import prepare
from xnq_dist.graph.tables import Sources
from xnq_dist.reservoir.embed import reservoir_spec
from xnq_dist.reservoir.exchange import Exchange
from xnq_dist.reservoir.propagation import only_sums, propagate
from xnq_dist.reservoir.states import Supersteps

SUMS = 5
"""Rounds of sums for each superstep that is measured."""


@dataclass(frozen=True)
class Ones:
    """One value for each node of a partition."""

    owned: tuple[int, ...]

    def __call__(self, number: int) -> np.ndarray:
        """The values, shape (n_owned, 4)."""
        return np.ones((self.owned[number], 4), np.float32)


def timed(function: Callable[[], object], rounds: int) -> tuple[float, float]:
    """Seconds and processor seconds of one of so many rounds."""
    began, used = time.perf_counter(), time.process_time()
    function()
    spent = time.perf_counter() - began, time.process_time() - used
    return spent[0] / rounds, spent[1] / rounds


def measure(partitions: int, nodes: int, rounds: int, turns: int) -> None:
    """Measure every loop with this number of partitions, and print the results."""
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
    found: dict[str, list[tuple[float, float]]] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        generate(folder / "in", nodes, 4.0, 8, 2, 0.8, 100, 0)
        tables = (f"{folder}/in/{kind}.parquet" for kind in ("nodes", "edges"))
        run = RunDirectory(folder / "run")
        run.folder.create()
        began = time.perf_counter()
        manifest = prepare(run, Sources(*tables), settings, partitions)
        prepared = time.perf_counter() - began
        graph = run.stage("graph")
        spec = reservoir_spec(settings, manifest.facts["rho"], 1.0, 0.5)
        with (
            cluster.open_cluster(settings.cluster) as connection,
            cluster.connect(connection) as client,
        ):
            exchange = Exchange(client, graph, manifest, Heartbeats(client))
            begin = partial(exchange.begin, 1, Supersteps, spec, None)
            begun = {}
            start = Ones(tuple(manifest.facts["owned"]))

            def sums(count: int) -> None:
                attempt = Stage(run.folder.child("rounds"), "rounds").begin()
                propagate(
                    client, graph, manifest, start, only_sums, count, attempt, "r"
                )

            for turn in range(turns + 1):
                begun["supersteps"] = timed(begin, 1)[0]
                exchange.advance(1)
                spent = timed(lambda: exchange.advance(rounds), rounds)
                if turn:
                    found.setdefault("supersteps", []).append(spent)
                exchange.close()
                # Differences: without start and end, which each call has.
                few, many = (
                    timed(lambda c=c: sums(c), 1) for c in (1, 1 + SUMS * rounds)
                )
                if turn:
                    spent = (np.array(many) - np.array(few)) / (SUMS * rounds)
                    found.setdefault("sums", []).append(spent)
    for kind, spent in found.items():
        wall, used = (statistics.median(values) for values in zip(*spent, strict=True))
        row = {
            "loop": kind,
            "partitions": partitions,
            "round_ms": round(1000 * wall, 1),
            "worst_ms": round(1000 * max(s[0] for s in spent), 1),
            "scheduler_and_client_ms": round(1000 * used, 1),
            "begin_s": round(begun.get(kind, 0.0), 2),
            "prepare_s": round(prepared, 2),
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
