"""Peak memory and speed of `prepare`, compared with loading all edges at once.

    python tests/benchmarks/ingest_memory.py [--nodes 2000000] [--degree 20]

A generated graph with ids of text (`--integers`: of integers). Each row is measured in
a new process and printed as one line of JSON. Peak memory is the peak resident memory
of the process, including imports; `base_mib` is the value after the imports.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq

from tests.benchmarks.partition_quality import high_water
from xnq_dist.core.config import load_settings
from xnq_dist.core.store import RunDirectory
from xnq_dist.graph.generate import Arguments, generate
from xnq_dist.graph.prepare import prepare
from xnq_dist.graph.sources import Sources

ACTIONS = ("prepare", "pandas")


def work(action: str, folder: Path, memory: str, partitions: int) -> dict[str, object]:
    """One row, in this process."""
    files = [folder / "nodes.parquet", folder / "edges.parquet"]
    base, rows = high_water(), pq.ParquetFile(files[1]).metadata.num_rows
    began = time.monotonic()
    if action == "prepare":
        chosen = ["partitioner=stream", f"input.memory={memory}"]
        settings = load_settings(overrides=chosen)
        with Sources(*map(str, files)).copied(None) as sources:
            prepare(RunDirectory(folder / "out"), sources, settings, partitions)
    else:
        frame = pd.read_parquet(files[1])
        # Column by column: ids as Python objects, as pandas held text for years.
        [frame.pop(name).astype(object) for name in ("src", "dst")]
    took = time.monotonic() - began
    return {
        "what": action,
        "edges": rows,
        "peak_mib": high_water(),
        "base_mib": base,
        "seconds": round(took, 2),
        "edges_per_second": round(rows / took),
    }


def main() -> None:
    """Measure each action in a new process, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=2_000_000)
    parser.add_argument("--degree", type=float, default=20.0)
    parser.add_argument("--integers", action="store_true")
    parser.add_argument("--memory", default="256 MiB")
    parser.add_argument("--partitions", type=int, default=16)
    parser.add_argument("--row", nargs=2, metavar=("ACTION", "FOLDER"))
    chosen = parser.parse_args()
    options = chosen.memory, chosen.partitions
    if chosen.row:
        row = work(chosen.row[0], Path(chosen.row[1]), *options)
        sys.stdout.write(json.dumps(row) + "\n")
        return
    with tempfile.TemporaryDirectory() as name:
        size = chosen.nodes, chosen.degree
        text = not chosen.integers
        generate(name, Arguments(*size, 8, 2, 0.8, 100, 0, string_ids=text))
        for action in ACTIONS:
            command = [sys.executable, "-m", "tests.benchmarks.ingest_memory"]
            command += ["--memory", chosen.memory]
            command += ["--partitions", str(chosen.partitions)]
            subprocess.run([*command, "--row", action, name], check=True)


if __name__ == "__main__":
    main()
