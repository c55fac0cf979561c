"""Processor seconds of small runs, as ratios to an earlier commit.

    git worktree add /tmp/before COMMIT
    python tests/benchmarks/fixed_cost.py --against /tmp/before [--repeats 3] [NAME ...]

Each measurement is a new process of the command line; `--against` is the folder of the
earlier commit, whose measurements alternate with ours, so that other load meets both.
Names: ``help``; ``cold`` (1,500 nodes, no kernel compiled before); ``warm`` (the same,
all compiled); ``unchanged`` (the same command again); ``filled`` (the first run after
`xnq-dist doctor --kernels`, where the commit has the command); ``cora`` (needs
``$XNQ_DATA_DIR``). Prints one JSON line per name: the processor seconds of all
measurements, their medians and the ratio. Bytecode is written to a cache of its own, so
that Python sources are compiled once.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
NAMES = ("help", "warm", "unchanged", "cold", "filled", "cora")


class Side:
    """The command line of one commit."""

    def __init__(self, root: Path, folder: Path) -> None:
        self.root, self.folder = root, folder
        self.kernels = folder / "kernels"
        self.out = folder / "run"

    def call(self, *arguments: str, kernels: Path | None = None) -> float:
        """Processor seconds of a command, its processes included."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
        environment = kept | {
            "PYTHONPATH": str(self.root),
            "PYTHONPYCACHEPREFIX": str(self.folder / "bytecode"),
            "NUMBA_CACHE_DIR": str(kernels or self.kernels),
        }
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(
            [sys.executable, "-m", "xnq_dist.app.cli", *arguments],
            env=environment,
            cwd=self.folder,
            check=True,
            capture_output=True,
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    def run(self, tables: list[str], kernels: Path | None = None) -> float:
        """Processor seconds of a run in a new run directory."""
        shutil.rmtree(self.out, ignore_errors=True)
        return self.call("run", *tables, "--out", str(self.out), kernels=kernels)

    def measured(self, name: str, tables: list[str]) -> float | None:
        """Processor seconds of one measurement; None where the commit lacks it."""
        if name == "help":
            return self.call("--help")
        if name == "unchanged":
            self.run(tables)
            return self.call("run", *tables, "--out", str(self.out))
        if name in ("cold", "filled"):
            empty = self.folder / "empty"
            shutil.rmtree(empty, ignore_errors=True)
            if name == "filled":
                try:
                    self.call("doctor", "--kernels", kernels=empty)
                except subprocess.CalledProcessError:
                    return None
            return self.run(tables, empty)
        return self.run(tables)


def main() -> None:
    """Measure, alternating, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=NAMES, metavar="NAME")
    parser.add_argument("--against", type=Path, help="folder of an earlier commit")
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        sides = {"now": ROOT, "before": options.against}
        known = {}
        for side, root in sides.items():
            if root is not None:
                (folder / side).mkdir()
                known[side] = Side(root.resolve(), folder / side)
        graph = folder / "graph"
        size = ["--nodes", "1500", "--communities", "10"]
        known["now"].call("generate", "--out", str(graph), *size)
        small = tables_of(graph, ("nodes", "edges", "memberships"))
        for name in options.names:
            tables = small
            if name == "cora":
                data = Path(os.environ["XNQ_DATA_DIR"]) / "cora"
                tables = tables_of(data, ("nodes", "edges"))
            if name in ("warm", "unchanged", "cora"):
                for side in known.values():
                    side.run(tables)  # compiles
            found: dict[str, list[float]] = {side: [] for side in known}
            for _ in range(options.repeats):
                for side in known:
                    seconds = known[side].measured(name, tables)
                    if seconds is not None:
                        found[side].append(round(seconds, 2))
            medians = {k: statistics.median(v) for k, v in found.items() if v}
            line = {"name": name, "seconds": found, "median": medians}
            if len(medians) == 2:
                line["ratio"] = round(medians["now"] / medians["before"], 3)
            sys.stdout.write(json.dumps(line) + "\n")
            sys.stdout.flush()


def tables_of(folder: Path, names: tuple[str, ...]) -> list[str]:
    """The command's options for the tables in a folder."""
    return [part for n in names for part in (f"--{n}", str(folder / f"{n}.parquet"))]


if __name__ == "__main__":
    main()
