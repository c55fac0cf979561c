"""`xnq-dist run` on the real graphs: time and memory.

    XNQ_DATA_DIR=... python tests/benchmarks/real_graphs.py cora tolokers twitch-de

Only the labels of fold 0's train and calibration nodes are given (60 % of the nodes).
Prints one JSON line per graph: seconds of the complete command and of each stage, peak
resident memory of the process tree (sum over processes) and of its largest process.
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
import psutil
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq


def give_labels(data: Path, graph: str, out: Path) -> Path:
    """Node table with fold 0's train and calibration labels only."""
    nodes = pq.read_table(data / graph / "nodes.parquet")
    splits = pq.read_table(data / graph / "splits.parquet")
    fold = splits.filter(pc.equal(splits["fold"], 0))
    role_of = dict(
        zip(fold["node_id"].to_pylist(), fold["role"].to_pylist(), strict=True)
    )
    role = np.array([role_of[node] for node in nodes["node_id"].to_pylist()])
    given = np.isin(role, ["train", "calibration"])
    label = nodes["label"].to_numpy()
    nodes = nodes.set_column(
        nodes.schema.get_field_index("label"), "label", pa.array(label, mask=~given)
    )
    path = out / "nodes.parquet"
    pq.write_table(nodes, path)
    return path


def watch(command: list[str]) -> dict[str, float]:
    """Run a command; seconds and peak resident bytes of its process tree."""
    began = time.perf_counter()
    tree_peak = largest = 0
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as running:
        top = psutil.Process(running.pid)
        while running.poll() is None:
            sizes = []
            try:
                for process in [top, *top.children(recursive=True)]:
                    sizes.append(process.memory_info().rss)
            except psutil.NoSuchProcess:
                continue
            tree_peak = max(tree_peak, sum(sizes))
            largest = max(largest, *sizes)
            time.sleep(0.1)
    if running.returncode:
        sys.exit(f"{command} ended with status {running.returncode}")
    return {
        "seconds": round(time.perf_counter() - began, 1),
        "tree_peak_mib": tree_peak // 2**20,
        "largest_process_mib": largest // 2**20,
    }


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("graphs", nargs="*", default=["cora", "tolokers", "twitch-de"])
    parser.add_argument("--set", action="append", default=[], dest="settings")
    chosen = parser.parse_args()
    data = Path(os.environ["XNQ_DATA_DIR"])
    for graph in chosen.graphs:
        with tempfile.TemporaryDirectory() as name:
            work = Path(name)
            nodes, run = give_labels(data, graph, work), work / "run"
            command = [sys.executable, "-m", "xnq_dist.app.cli", "run"]
            command += ["--nodes", str(nodes), "--out", str(run)]
            command += ["--edges", str(data / graph / "edges.parquet")]
            for setting in chosen.settings:
                command += ["--set", setting]
            figures = watch(command)
            stages = {
                file.parent.name: json.loads(file.read_text())["seconds"]
                for file in run.glob("*/_manifest.json")
            }
            row = {"graph": graph, **figures, "stages": stages}
            sys.stdout.write(json.dumps(row) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
