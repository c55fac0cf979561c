"""Peak memory and speed of `prepare`, compared with loading all edges at once.

Run manually: ``python tests/benchmarks/ingest_memory.py --edges 20000000``. Each row
is measured in a new process and printed as one line of JSON. Peak memory is the peak
resident memory of the process, including imports; `base_mib` is the value after
the imports.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

BLOCK = 1 << 20
ACTIONS = ("prepare", "pandas")


def peak_mib() -> float:
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1)


def named(index: np.ndarray, kind: str) -> pa.Array:
    numbers = pa.array(index)
    if kind == "int":
        return numbers
    return pc.binary_join_element_wise("user-", numbers.cast(pa.string()), "")


def generate(folder: Path, n_nodes: int, n_edges: int, kind: str, seed: int) -> None:
    """A graph with a heavy tail: sources by a power law, targets uniform."""
    rng = np.random.default_rng(seed)
    ids = rng.permutation(n_nodes) * 7 + 3
    with pq.ParquetWriter(folder / "nodes.parquet", node_schema(kind)) as writer:
        for first in range(0, n_nodes, BLOCK):
            some = ids[first : first + BLOCK]
            labels = rng.integers(0, 2, len(some))
            values = rng.random(8 * len(some), dtype=np.float32)
            writer.write_table(
                pa.table(
                    {
                        "node_id": named(some, kind),
                        "label": pa.array(labels, mask=rng.random(len(some)) > 0.1),
                        "features": pa.FixedSizeListArray.from_arrays(values, 8),
                    }
                )
            )
    kind_of_id = node_schema(kind).field("node_id").type
    schema = pa.schema([("src", kind_of_id), ("dst", kind_of_id)])
    with pq.ParquetWriter(folder / "edges.parquet", schema) as writer:
        for first in range(0, n_edges, BLOCK):
            count = min(BLOCK, n_edges - first)
            source = (n_nodes * rng.random(count) ** 2).astype(np.int64)
            target = rng.integers(0, n_nodes, count)
            ends = {"src": named(ids[source], kind), "dst": named(ids[target], kind)}
            writer.write_table(pa.table(ends))


def node_schema(kind: str) -> pa.Schema:
    return pa.schema(
        [
            ("node_id", pa.int64() if kind == "int" else pa.string()),
            ("label", pa.int64()),
            ("features", pa.list_(pa.float32(), 8)),
        ]
    )


def work(
    action: str, folder: Path, n_edges: int, memory: str, partitions: int
) -> dict[str, Any]:
    """One row, in this process."""
    row: dict[str, Any] = {"what": action, "edges": n_edges}
    if action == "prepare":
        from xnq_dist.core.config import load_settings
        from xnq_dist.core.store import RunDirectory
        from xnq_dist.graph.prepare import prepare
        from xnq_dist.graph.tables import Sources

        base = peak_mib()
        settings = load_settings(
            overrides=["partitioner=stream", f"input.memory={memory}"]
        )
        began = time.monotonic()
        sources = Sources(str(folder / "nodes.parquet"), str(folder / "edges.parquet"))
        run = RunDirectory(folder / "out")
        facts = prepare(run, sources, settings, partitions).facts
        row |= {"input_memory": memory, "partitions": partitions}
        row |= {"directed_edges": facts["n_edges"]}
    else:
        import pandas as pd

        base = peak_mib()
        began = time.monotonic()
        frame = pd.read_parquet(folder / "edges.parquet")
        row["edges"] = len(frame)
        # Column by column: ids as Python objects, as pandas held text for years.
        columns = {name: frame.pop(name).astype(object) for name in ("src", "dst")}
        row["columns"] = len(columns)
    took = time.monotonic() - began
    return row | {
        "peak_mib": peak_mib(),
        "base_mib": base,
        "seconds": round(took, 2),
        "edges_per_second": round(row["edges"] / took),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--edges", type=int, default=20_000_000)
    parser.add_argument("--nodes", type=int, default=0, help="default: edges / 10")
    parser.add_argument("--ids", choices=["int", "string"], default="string")
    parser.add_argument("--memory", default="256 MiB")
    parser.add_argument("--partitions", type=int, default=16)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--action", choices=ACTIONS, help="one row, in this process")
    parser.add_argument("--folder", type=Path, help="tables of an earlier call")
    arguments = parser.parse_args()
    if arguments.action:
        row = work(
            arguments.action,
            arguments.folder,
            arguments.edges,
            arguments.memory,
            arguments.partitions,
        )
        sys.stdout.write(json.dumps(row | {"ids": arguments.ids}) + "\n")
        return
    with tempfile.TemporaryDirectory() as name:
        nodes = arguments.nodes or max(arguments.edges // 10, 2)
        folder = Path(name)
        generate(folder, nodes, arguments.edges, arguments.ids, arguments.seed)
        for action in ACTIONS:
            command = [sys.executable, __file__, "--action", action]
            command += ["--folder", name, "--edges", str(arguments.edges)]
            command += ["--ids", arguments.ids, "--memory", arguments.memory]
            command += ["--partitions", str(arguments.partitions)]
            subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
