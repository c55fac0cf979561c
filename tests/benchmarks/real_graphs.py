"""`xnq-dist run` on the real graphs: time, memory, error on Leiden communities.

    XNQ_DATA_DIR=... python tests/benchmarks/real_graphs.py cora tolokers twitch-de

Only the labels of fold 0's train and calibration nodes are given (60 % of the nodes).
Prints one JSON line per graph: seconds of the complete command and of each stage; peak
resident memory of the process tree (sum over processes) and of its largest process; the
mean absolute error of the quantifier (`auto`, or `--set quantifier=sld`), of the mean
posterior and of the training prior over the detected communities of at least 20 nodes,
on their unlabelled nodes (`labelled=exclude`); and the coverage of the intervals.
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


def give_labels(data: Path, graph: str, out: Path, roles: bool) -> Path:
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
    if roles:
        nodes = nodes.append_column("role", pa.array(role, mask=~given))
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


def errors(run: Path, data: Path, graph: str) -> dict[str, float]:
    """Mean absolute error over communities, on the nodes without a given label."""
    truth = pq.read_table(data / graph / "nodes.parquet")
    label_of = dict(
        zip(truth["node_id"].to_pylist(), truth["label"].to_pylist(), strict=True)
    )
    posteriors = {}
    given = {}
    for path in sorted((run / "posteriors").glob("part-*.parquet")):
        table = pq.read_table(path)
        posteriors |= dict(
            zip(
                table["node_id"].to_pylist(),
                table["posterior"].to_pylist(),
                strict=True,
            )
        )
        given |= dict(
            zip(
                table["node_id"].to_pylist(),
                table["out_of_fold"].to_pylist(),
                strict=True,
            )
        )
    published = pq.read_table(run / "prevalence.parquet").to_pylist()
    classes = list(dict.fromkeys(row["class"] for row in published))
    found: dict[int, dict[str, dict[str, float]]] = {}
    for row in published:
        found.setdefault(row["community"], {})[row["class"]] = row
    members: dict[int, list[int]] = {}
    for row in pq.read_table(run / "communities.parquet").to_pylist():
        members.setdefault(row["community"], []).append(row["node_id"])
    prior = json.loads((run / "posteriors/_manifest.json").read_text())["facts"][
        "prior"
    ]
    gaps: dict[str, list[float]] = {"run": [], "pcc": [], "prior": []}
    held: list[bool] = []
    for community, nodes in members.items():
        free = [node for node in nodes if not given[node]]
        if len(free) < 20:
            continue
        true = np.array([np.mean([label_of[n] == c for n in free]) for c in classes])
        estimates = {
            "run": np.array([found[community][c]["prevalence"] for c in classes]),
            "pcc": np.mean([posteriors[n] for n in free], axis=0),
            "prior": np.array(prior),
        }
        for name, estimate in estimates.items():
            gaps[name].append(float(np.abs(estimate - true).mean()))
        for c, share in zip(classes, true.tolist(), strict=True):
            row = found[community][c]
            if row["lower"] is not None:
                held.append(row["lower"] - 1e-9 <= share <= row["upper"] + 1e-9)
    means = {f"ae_{name}": round(float(np.mean(v)), 4) for name, v in gaps.items()}
    if held:
        means["covered"] = round(float(np.mean(held)), 4)
    return {"communities_measured": len(gaps["run"]), **means}


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("graphs", nargs="*", default=["cora", "tolokers", "twitch-de"])
    parser.add_argument("--roles", action="store_true", help="give the roles too")
    parser.add_argument("--set", action="append", default=[], dest="settings")
    parser.add_argument("--keep", type=Path, help="folder to keep the runs in")
    chosen = parser.parse_args()
    data = Path(os.environ["XNQ_DATA_DIR"])
    for graph in chosen.graphs:
        with tempfile.TemporaryDirectory() as scratch:
            work = (chosen.keep or Path(scratch)) / graph
            work.mkdir(parents=True, exist_ok=True)
            nodes = give_labels(data, graph, work, chosen.roles)
            run = work / "run"
            command = [
                sys.executable,
                "-m",
                "xnq_dist.app.cli",
                "run",
                "--nodes",
                str(nodes),
            ]
            command += ["--edges", str(data / graph / "edges.parquet")]
            command += ["--out", str(run), "--set", "labelled=exclude"]
            for setting in chosen.settings:
                command += ["--set", setting]
            figures = watch(command)
            stages = {}
            facts = {}
            for stage in ("graph", "select", "embeddings", "readout", "quantify"):
                file = run / stage / "_manifest.json"
                if file.exists():
                    manifest = json.loads(file.read_text())
                    stages[stage] = manifest["seconds"]
                    facts[stage] = manifest["facts"]
            scales = facts["embeddings"]
            row = {
                "graph": graph,
                "roles": chosen.roles,
                **figures,
                "stages": stages,
                "communities": facts["quantify"]["n_communities"],
                "scales": [scales["recurrent_scale"], scales["input_scale"]],
                **errors(run, data, graph),
            }
            print(json.dumps(row), flush=True)  # noqa: T201 - its output


if __name__ == "__main__":
    main()
