"""Halo, balance, time and memory of the partitioners, against METIS.

    XNQ_DATA_DIR=... python tests/benchmarks/partition_quality.py \
        --graphs cora tolokers twitch-de 100000x20 1000000x10 --partitions 8 64

A graph is a folder of `XNQ_DATA_DIR` or ``NODESxDEGREE``, made by `generate`. Each row
is measured in a new process and printed as one line of JSON:

- `halo`: halo rows over nodes; `to_metis`: halo rows over those of METIS alone, without
  limits (see its row for its balance), for minimum volume if that finishes;
- `load`: the largest number of edges plus `LOAD` times that of nodes, over the mean;
- `nodes`, `edges`: of the largest partition, over the mean; `hub`: the largest
  in-degree over a partition's mean edges;
- `passes`: number of passes over the edges; `seconds`, `processor_seconds`;
- `peak_mib`, `base_mib`: peak memory of the process, and before partitioning.

`--share 0.0625` gives `stream` a sixteenth of the memory of METIS, as for a graph of
100 million edges with the default `input.memory`. `--node-weight 8` sets the weight of
a node without its edges, in place of the mean in-degree. METIS is skipped for graphs of
more than `--metis-edges`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from xnq_dist.core.config import load_settings
from xnq_dist.core.progress import silent
from xnq_dist.core.tasks import in_process
from xnq_dist.graph import partition
from xnq_dist.graph.csr import CHUNK_EDGES, CsrRows, FileCsr, spans
from xnq_dist.graph.edge_tasks import read_edges
from xnq_dist.graph.generate import generate
from xnq_dist.graph.labels import read_nodes
from xnq_dist.graph.partition import divide, metis, metis_memory
from xnq_dist.graph.tables import Sources, open_table

PLAIN = "metis-plain"
LOAD = 8
"""Cost of a node over that of an edge in a superstep of 256 units with a sparse W, by
the costs of the plan (4 with 64 units, 28 with 512 and a dense W)."""
VOLUME_WORK = 100_000_000
"""Edges times partitions up to which METIS alone minimises volume: beyond it takes
many minutes, and cuts edges instead."""


@dataclass
class Counted:
    """An adjacency that counts the edges that are streamed."""

    csr: FileCsr
    streamed: list[int] = field(default_factory=list)

    @property
    def indptr(self) -> np.ndarray:
        return self.csr.indptr

    @property
    def weighted(self) -> bool:
        return False

    def rows(self, first: int, last: int) -> CsrRows:
        rows = self.csr.rows(first, last)
        self.streamed.append(len(rows.indices))
        return rows

    def chunks(self, edges: int = CHUNK_EDGES) -> Iterator[CsrRows]:
        for first, last in spans(self.indptr, edges):
            yield self.rows(first, last)

    def arrays(self) -> tuple[np.ndarray, np.ndarray]:
        return self.csr.arrays()


def high_water() -> float:
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmHWM"):
            return round(int(line.split()[1]) / 1024, 1)
    return 0.0


def write_graph(name: str, folder: Path) -> None:
    """Tables of a graph as an adjacency in files."""
    if "x" in name and name[0].isdigit():
        nodes, degree = name.split("x")
        tables = folder / "tables"
        generate(tables, int(nodes), float(degree), 1, 3, 0.7, 2, 0)
    else:
        tables = Path(os.environ["XNQ_DATA_DIR"]) / name
    settings = load_settings(overrides=["input.directed=false"])
    sources = Sources(str(tables / "nodes.parquet"), str(tables / "edges.parquet"))
    nodes_table = open_table(sources.nodes, "node table")
    ids, _, _ = read_nodes(nodes_table, settings.columns, silent)
    edges_table = open_table(sources.edges, "edge table")
    csr, _ = read_edges(
        edges_table,
        ids,
        settings.columns,
        settings.input,
        in_process(folder, settings.input.memory_bytes),
    )
    np.save(folder / "indptr.npy", csr.indptr)


def halo_rows(csr: FileCsr, part: np.ndarray, partitions: int) -> int:
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


def plain_metis(csr: FileCsr, partitions: int) -> np.ndarray:
    """METIS alone; a node weighs its degree and the mean."""
    degrees = np.diff(csr.indptr)
    indices, _ = csr.arrays()
    rows = np.repeat(np.arange(len(degrees)), degrees)
    other = rows != indices
    inner = np.bincount(rows[other], minlength=len(degrees))
    indptr = np.concatenate([[0], np.cumsum(inner)])
    weights = degrees + int(degrees.mean()) + 1
    volume = len(indices) * partitions <= VOLUME_WORK
    return metis(indptr, indices[other], weights, partitions, None, volume)


def row_of(folder: Path, name: str, partitions: int, share: float) -> dict[str, object]:
    """One row, in this process."""
    csr = FileCsr(np.load(folder / "indptr.npy"), folder, False)
    n, edges = len(csr.indptr) - 1, int(csr.indptr[-1])
    memory = load_settings().input.memory_bytes
    if share and name == "stream":
        memory = int(share * metis_memory(n, edges, True))
    # Compiled on a few nodes first: its seconds are not the partitioner's.
    small = FileCsr(csr.indptr[:10] * 0, folder, False)
    divide(small, 2, "stream")
    counted, base = Counted(csr), high_water()
    began, processor = time.perf_counter(), time.process_time()
    if name == PLAIN:
        part = plain_metis(csr, partitions)
    else:
        part, _ = divide(counted, partitions, name, 0, memory, True)  # type: ignore[arg-type]
    took, used = time.perf_counter() - began, time.process_time() - processor
    peak = high_water()
    degrees = np.diff(csr.indptr)
    owned = np.bincount(part, minlength=partitions) * partitions / n
    read = np.bincount(part, degrees, partitions) * partitions / edges
    loads = np.bincount(part, degrees + LOAD, partitions)
    rows = halo_rows(csr, part, partitions)
    return {
        "nodes_total": n,
        "edges_total": edges,
        "partitions": partitions,
        "partitioner": name,
        "halo_rows": rows,
        "halo": round(rows / n, 3),
        "load": round(float(loads.max() / loads.mean()), 3),
        "nodes": round(float(owned.max()), 3),
        "edges": round(float(read.max()), 3),
        "hub": round(float(degrees.max()) * partitions / edges, 3),
        "passes": round(sum(counted.streamed) / edges, 1),
        "seconds": round(took, 2),
        "processor_seconds": round(used, 2),
        "peak_mib": peak,
        "base_mib": base,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--graphs", nargs="+", default=["cora", "20000x10"])
    parser.add_argument("--partitions", nargs="+", type=int, default=[8, 64])
    parser.add_argument(
        "--partitioners", nargs="+", default=[PLAIN, "metis", "stream", "random"]
    )
    parser.add_argument("--share", type=float, default=0.0)
    parser.add_argument("--metis-edges", type=int, default=30_000_000)
    parser.add_argument("--node-weight", type=int, default=0)
    parser.add_argument("--row", nargs=3, metavar=("FOLDER", "NAME", "PARTITIONS"))
    arguments = parser.parse_args()
    if arguments.row:
        folder, name, partitions = arguments.row
        if arguments.node_weight:
            partition._base_weight = lambda csr: arguments.node_weight
        row = row_of(Path(folder), name, int(partitions), arguments.share)
        sys.stdout.write(json.dumps(row) + "\n")
        return
    for graph in arguments.graphs:
        with tempfile.TemporaryDirectory() as folder:
            write_graph(graph, Path(folder))
            edges = int(np.load(Path(folder) / "indptr.npy")[-1])
            for partitions in arguments.partitions:
                best = 0
                for name in arguments.partitioners:
                    if name.startswith("metis") and edges > arguments.metis_edges:
                        continue
                    command = [sys.executable, __file__, "--share"]
                    command += [str(arguments.share), "--row", folder, name]
                    command += [str(partitions), "--node-weight"]
                    command += [str(arguments.node_weight)]
                    done = subprocess.run(
                        command, check=True, capture_output=True, text=True
                    )
                    row = {"graph": graph} | json.loads(done.stdout)
                    if name == PLAIN:
                        best = row["halo_rows"]
                    if best:
                        row["to_metis"] = round(row["halo_rows"] / best, 3)
                    sys.stdout.write(json.dumps(row) + "\n")
                    sys.stdout.flush()


if __name__ == "__main__":
    main()
