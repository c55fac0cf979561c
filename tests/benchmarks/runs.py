"""Time and memory of complete runs, alternating with those of an earlier commit.

    XNQ_DATA_DIR=... python tests/benchmarks/runs.py cora 1500 1000000
        [--set KEY=VALUE] [--repeats 3] [--cold] [--against FOLDER]

A graph is a folder of `XNQ_DATA_DIR`, with the labels of fold 0's training and
calibration nodes (60 % of the nodes), or a number of nodes of a generated one (mean
degree 10, a tenth labelled, 50 communities). `--against` is the folder of a checkout.
Kernels are compiled in a run that is not counted, with `--cold` in each run anew.
Prints one JSON line per run: seconds, processor seconds, seconds of each stage, and
peak resident memory of all processes together and of the largest.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

ROOT = Path(__file__).parents[2]
ROLES = ("train", "calibration")
TABLES = ("nodes", "edges", "memberships")


def tables_of(graph: str, folder: Path) -> list[str]:
    """Options that name the tables of a graph."""
    made = folder / graph
    if graph.isdigit():
        size = ["--nodes", graph, "--labelled", "0.1", "--communities", "50"]
        command = ["-m", "xnq_dist.app.cli", "generate", *size, "--out", str(made)]
        subprocess.run([sys.executable, *command], check=True, capture_output=True)
    else:
        made.mkdir()
        data = Path(os.environ["XNQ_DATA_DIR"], graph)
        nodes = pq.read_table(data / "nodes.parquet")
        splits = pq.read_table(data / "splits.parquet")
        splits = splits.filter(pc.equal(splits["fold"], 0))
        given = splits.filter(pc.is_in(splits["role"], pa.array(ROLES)))["node_id"]
        known = pc.is_in(nodes["node_id"], given.combine_chunks())
        label = pc.if_else(known, nodes["label"], None)
        at = nodes.schema.get_field_index("label")
        pq.write_table(nodes.set_column(at, "label", label), made / "nodes.parquet")
        shutil.copy(data / "edges.parquet", made)
    files = [file for file in made.glob("*.parquet") if file.stem in TABLES]
    return [part for file in files for part in (f"--{file.stem}", str(file))]


def measured(root: Path, folder: Path, options: list[str]) -> dict[str, Any]:
    """Time and memory of one run of the checkout in `root`."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    environment = kept | {
        "PYTHONPATH": str(root),
        "PYTHONPYCACHEPREFIX": str(folder / "bytecode"),
        "NUMBA_CACHE_DIR": str(folder / "kernels"),
    }
    out = folder / "run"
    shutil.rmtree(out, ignore_errors=True)
    command = [sys.executable, "-m", "xnq_dist.app.cli", "run", "--out", str(out)]
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    together = largest = 0
    with subprocess.Popen(
        [*command, *options],
        env=environment,
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as running:
        top = psutil.Process(running.pid)
        while running.poll() is None:
            try:
                every = [top, *top.children(recursive=True)]
                sizes = [process.memory_info().rss for process in every]
            except psutil.NoSuchProcess:
                continue
            together, largest = max(together, sum(sizes)), max(largest, *sizes)
            time.sleep(0.05)
    if running.returncode:
        sys.exit(f"{command} ended with status {running.returncode}")
    seconds = time.perf_counter() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    stages = {
        file.parent.name: round(json.loads(file.read_text())["seconds"], 2)
        for file in out.glob("*/_manifest.json")
    }
    return {
        "seconds": round(seconds, 1),
        "processor_seconds": round(used, 1),
        "stages": stages,
        "peak_mib": together >> 20,
        "largest_process_mib": largest >> 20,
    }


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("graphs", nargs="+")
    parser.add_argument("--set", action="append", default=[], dest="settings")
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--cold", action="store_true")
    parser.add_argument("--against", type=Path)
    chosen = parser.parse_args()
    checkouts = {"now": ROOT, "before": chosen.against}
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        for graph in chosen.graphs:
            options = tables_of(graph, work)
            options += [part for each in chosen.settings for part in ("--set", each)]
            for repeat in range(-(not chosen.cold), chosen.repeats):
                for side, root in checkouts.items():
                    if root is None:
                        continue
                    folder = work / side
                    folder.mkdir(exist_ok=True)
                    if chosen.cold:
                        shutil.rmtree(folder / "kernels", ignore_errors=True)
                    row = measured(root.resolve(), folder, options)
                    if repeat >= 0:
                        line = {"graph": graph, "commit": side} | row
                        sys.stdout.write(json.dumps(line) + "\n")
                        sys.stdout.flush()


if __name__ == "__main__":
    main()
