"""Halo, balance, time and memory of the partitioners.

    XNQ_DATA_DIR=... python tests/benchmarks/partition_quality.py \
        --graphs cora tolokers twitch-de 100000x20 1000000x10 --partitions 8 64

A graph is a folder of `XNQ_DATA_DIR` or ``NODESxDEGREE``, made by `generate`. Each row
is measured in a new process and printed as one line of JSON:

- `halo`: halo rows over nodes;
- `nodes`, `edges`: of the largest partition, over the mean; `hub`: the largest
  in-degree over a partition's mean edges;
- `seconds`, `processor_seconds`; `peak_mib`, `base_mib`: peak memory of the process,
  and before partitioning.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from xnq_dist.core.config import load_settings
from xnq_dist.core.progress import silent
from xnq_dist.core.tasks import in_process
from xnq_dist.graph.csr import FOLDER, Csr, csr_of, shared_csr
from xnq_dist.graph.edge_tasks import read_edges
from xnq_dist.graph.generate import Arguments, generate
from xnq_dist.graph.labels import read_nodes
from xnq_dist.graph.partition import divide
from xnq_dist.graph.sources import Sources
from xnq_dist.graph.tables import open_table


def high_water() -> float:
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmHWM"):
            return round(int(line.split()[1]) / 1024, 1)
    return 0.0


def write_graph(name: str, folder: Path) -> Path:
    """Folder of the adjacency of a graph."""
    if "x" in name and name[0].isdigit():
        nodes, degree = name.split("x")
        tables = folder / "tables"
        size = int(nodes), float(degree)
        generate(tables, Arguments(*size, 1, 3, 0.7, 2, 0))
    else:
        tables = Path(os.environ["XNQ_DATA_DIR"]) / name
    settings = load_settings(overrides=["input.directed=false"])
    sources = Sources(str(tables / "nodes.parquet"), str(tables / "edges.parquet"))
    nodes_table = open_table(sources.nodes, "node table")
    ids, _, _ = read_nodes(nodes_table, settings, silent)
    edges_table = open_table(sources.edges, "edge table")
    read_edges(
        edges_table,
        ids,
        settings,
        in_process(folder, settings.input.memory_bytes),
        silent,
    )
    return folder / FOLDER


def halo_rows(csr: Csr, part: np.ndarray, partitions: int) -> int:
    """Distinct sources outside, partition by partition."""
    total = 0
    degrees = np.diff(csr.indptr)
    indices, _ = csr.arrays()
    for number in range(partitions):
        there = np.zeros(len(part), bool)
        rows = part == number
        for first in range(0, len(part), 1 << 20):
            some = slice(first, first + (1 << 20))
            ends = np.repeat(rows[some], degrees[some])
            begin = csr.indptr[first]
            there[indices[begin : begin + len(ends)][ends]] = True
        total += int(np.count_nonzero(there & ~rows))
    return total


def row_of(folder: Path, name: str, partitions: int) -> dict[str, object]:
    """One row, in this process."""
    n = (folder / "indptr").stat().st_size // 8 - 1
    csr = shared_csr(folder, n, False)
    edges = int(csr.indptr[-1])
    memory = load_settings().input.memory_bytes
    # Compiled on a few nodes first: its seconds are not the partitioner's.
    small = csr_of(csr.indptr[:10] * 0, np.empty(0, np.int32), np.empty(0))
    divide(small, 2, "stream")
    base = high_water()
    began, processor = time.perf_counter(), time.process_time()
    part, _ = divide(csr, partitions, name, memory, True)
    took, used = time.perf_counter() - began, time.process_time() - processor
    peak = high_water()
    degrees = np.diff(csr.indptr)
    owned = np.bincount(part, minlength=partitions) * partitions / n
    read = np.bincount(part, degrees, partitions) * partitions / edges
    return {
        "nodes_total": n,
        "edges_total": edges,
        "partitions": partitions,
        "partitioner": name,
        "halo": round(halo_rows(csr, part, partitions) / n, 3),
        "nodes": round(float(owned.max()), 3),
        "edges": round(float(read.max()), 3),
        "hub": round(float(degrees.max()) * partitions / edges, 3),
        "seconds": round(took, 2),
        "processor_seconds": round(used, 2),
        "peak_mib": peak,
        "base_mib": base,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--graphs", nargs="+", default=["cora", "20000x10"])
    parser.add_argument("--partitions", nargs="+", type=int, default=[8, 64])
    parser.add_argument("--partitioners", nargs="+", default=["metis", "stream"])
    parser.add_argument("--row", nargs=3, metavar=("FOLDER", "NAME", "PARTITIONS"))
    arguments = parser.parse_args()
    if arguments.row:
        folder, name, partitions = arguments.row
        row = row_of(Path(folder), name, int(partitions))
        sys.stdout.write(json.dumps(row) + "\n")
        return
    for graph in arguments.graphs:
        with tempfile.TemporaryDirectory() as scratch:
            folder = str(write_graph(graph, Path(scratch)))
            for partitions in arguments.partitions:
                for name in arguments.partitioners:
                    command = [sys.executable, __file__, "--row", folder, name]
                    done = subprocess.run(
                        [*command, str(partitions)],
                        check=True,
                        capture_output=True,
                        text=True,
                    )
                    row = {"graph": graph} | json.loads(done.stdout)
                    sys.stdout.write(json.dumps(row) + "\n")
                    sys.stdout.flush()


if __name__ == "__main__":
    main()
