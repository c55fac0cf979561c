"""Benchmarks of the command's fixed cost, which does not depend on the graph."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from xnq_dist.core.errors import StageError
from xnq_dist.evaluation.bench.harness import OURS, Bench, Benchmark

__all__ = ["BENCHMARKS", "fixed_costs"]

BENCHMARKS: dict[str, Benchmark] = {
    "fixed": Benchmark(
        "fixed",
        "fixed cost of a command: start, Prefect flow, a small run",
        "xnq_dist.app.command_cost:fixed_costs",
    )
}
"""Benchmarks that need the command line, by name."""

HELP_SECONDS = 0.5
"""Budget of `--help`, in seconds."""
RUN_SECONDS = 10.0
"""Budget of a run of 1,000 nodes beyond an empty flow, in seconds."""

_EMPTY_FLOW = """
from xnq_dist.app.environment import prepare_environment
prepare_environment()
from prefect import flow

@flow
def empty():
    return None

empty()
"""


def fixed_costs(bench: Bench) -> None:
    """Time `--help`, an empty Prefect flow and a run of 1,000 nodes, each a process."""
    command = [sys.executable, "-m", "xnq_dist.app.cli"]
    inherited = dict(os.environ)
    seconds = bench.time("--help", OURS, lambda: _call([*command, "--help"], inherited))
    empty = [sys.executable, "-c", "pass"]
    bench.time("--help", "Python that does nothing", lambda: _call(empty, inherited))
    bench.ratio("--help over its budget", seconds / HELP_SECONDS, "less", 1.0)

    # A separate Prefect home: not the user's server, not a database that has grown.
    kept = {k: v for k, v in inherited.items() if k != "PREFECT_API_URL"}
    isolated = kept | {"PREFECT_HOME": str(bench.folder / "prefect")}
    flow = [sys.executable, "-c", _EMPTY_FLOW]
    idle = bench.time("a flow", "empty Prefect flow", lambda: _call(flow, isolated))
    graph = bench.folder / "graph"
    made = ["generate", "--out", str(graph), "--nodes", "1000", "--communities", "10"]
    _call([*command, *made], isolated)
    runs = 0

    def run() -> None:
        nonlocal runs
        runs += 1
        tables = []
        for name in ("nodes", "edges", "memberships"):
            tables += [f"--{name}", str(graph / f"{name}.parquet")]
        out = bench.folder / f"run-{runs}"
        _call([*command, "run", *tables, "--out", str(out)], isolated)

    ours = bench.time("a run of 1,000 nodes", OURS, run)
    bench.record("a run of 1,000 nodes", "above an empty flow", OURS, ours - idle, "s")
    above = (ours - idle) / RUN_SECONDS
    bench.ratio(
        "run of 1,000 nodes less an empty flow, over its budget", above, "less", 1.0
    )


def _call(command: list[str], environment: dict[str, str]) -> None:
    root = str(Path(__file__).parents[1])
    path = os.pathsep.join([root, environment.get("PYTHONPATH", "")]).strip(os.pathsep)
    done = subprocess.run(  # noqa: S603 - our own interpreter and code
        command,
        env=environment | {"PYTHONPATH": path},
        check=False,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise StageError(
            f"benchmark fixed: {command[-1]} ended with status {done.returncode} "
            f"({reason}): run that command directly to see its full output"
        )
