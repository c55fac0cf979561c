"""Nights on which nothing changed: how often a change is reported all the same.

    XNQ_DATA_DIR=... python tests/benchmarks/nights.py cora --share .06 --nights 10

Each night has another seed, and .1 % of the edges get another end; labels, features and
the graph's Leiden communities stay. Prints one line with the comparisons with the night
before of all nights: communities, those reported as changed and nights with any, the
share of p-values below .05 and of 95 % intervals that exclude 0 (two classes: of the
last one, which the other mirrors), and the noise as a share of the errors that the
intervals claim.
"""

from __future__ import annotations

import argparse
import os
import resource
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from scipy import sparse

from xnq_dist.core.config import load_settings
from xnq_dist.graph.sources import Sources
from xnq_dist.groups.leiden import leiden
from xnq_dist.jobs import run_all

REWIRED = 0.001
ONE_PROCESS = ("cluster.workers=1", "cluster.threads=1")


def write_nodes(data: Path, folder: Path, share: float) -> np.ndarray:
    """Write nodes with a share of the labels; return the ids."""
    nodes = pq.read_table(data / "nodes.parquet")
    at = nodes.schema.get_field_index("label")
    hidden = np.random.default_rng(0).random(len(nodes)) >= share
    labels = nodes["label"].combine_chunks()
    kept = labels.take(pa.array(np.arange(len(nodes)), mask=hidden))
    pq.write_table(nodes.set_column(at, "label", kept), folder / "nodes.parquet")
    return nodes["node_id"].to_numpy()


def write_communities(
    data: Path, ids: np.ndarray, file: Path, resolution: float
) -> None:
    """Write the Leiden communities of the graph without edits."""
    ends = pq.read_table(data / "edges.parquet")
    order = np.argsort(ids)
    source, target = (
        order[np.searchsorted(ids, ends[name].to_numpy(), sorter=order)]
        for name in ("src", "dst")
    )
    shape = (len(ids), len(ids))
    ones = np.ones(len(ends), np.float32)
    graph = sparse.csr_array((ones, (source, target)), shape=shape)
    pq.write_table(
        pa.table({"community": leiden(graph, resolution), "node_id": ids}), file
    )


def write_edges(data: Path, ids: np.ndarray, file: Path, night: int) -> None:
    """Write the undirected edges, some with another end."""
    ends = pq.read_table(data / "edges.parquet")
    pairs = np.column_stack([ends["src"].to_numpy(), ends["dst"].to_numpy()])
    pairs = np.unique(np.sort(pairs, axis=1), axis=0)
    random = np.random.default_rng([night, 1])
    edited = random.choice(len(pairs), round(REWIRED * len(pairs)), replace=False)
    pairs[edited, 1] = random.choice(ids, len(edited))
    pairs = np.unique(np.sort(pairs, axis=1), axis=0)
    both = np.concatenate([pairs, pairs[pairs[:, 0] != pairs[:, 1], ::-1]])
    pq.write_table(pa.table({"src": both[:, 0], "dst": both[:, 1]}), file)


def main() -> None:
    """Run the nights of one graph."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("graph")
    parser.add_argument("--share", type=float, default=0.06)
    parser.add_argument("--nights", type=int, default=10)
    parser.add_argument("--resolution", type=float, default=5.0)
    parser.add_argument("--set", action="append", default=[])
    given = parser.parse_args()
    data = Path(os.environ["XNQ_DATA_DIR"], given.graph)
    compared, noise = [], []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        ids = write_nodes(data, folder, given.share)
        files = [str(folder / f"{n}.parquet") for n in ("nodes", "edges", "members")]
        write_communities(data, ids, Path(files[2]), given.resolution)
        for night in range(given.nights + 1):
            write_edges(data, ids, Path(files[1]), night)
            overrides = [*ONE_PROCESS, f"seed={night}", *given.set]
            out = folder / "run"
            settings = load_settings(overrides=overrides)
            run_all(Sources(*files), str(out), settings)
            if not night:
                continue
            table = pq.read_table(out / "changes.parquet").to_pandas()
            if table["class"].nunique() == 2:
                table = table[table["class"] == table["class"].max()]
            table = table[table["qvalue"].notna()]
            compared.append(table.assign(night=night))
            claimed = pq.read_table(out / "prevalence.parquet").to_pandas()
            errors = table.merge(claimed, on=["community", "class"])
            ratio = errors["effect"] / (np.sqrt(2) * errors["se"])
            noise.append(float((ratio[errors["se"] > 0] ** 2).mean()))
    every = pd.concat(compared)
    communities = every.groupby("night")["community"].nunique().mean()
    flagged = every[every["changed"]].groupby("night")["community"].nunique()
    small = (every["pvalue"] < 0.05).mean()
    out_of = ((every["lower"] > 0) | (every["upper"] < 0)).mean()
    used = resource.getrusage(resource.RUSAGE_SELF)
    sys.stdout.write(
        f"| {given.graph} | {given.share:g} | {len(compared)} | {communities:.0f} | "
        f"{len(every)} | {flagged.sum()} | {len(flagged)} | "
        f"{100 * small:.1f} | {100 * out_of:.1f} | "
        f"{np.sqrt(np.mean(noise)):.2f} | {used.ru_utime + used.ru_stime:.0f} |\n"
    )


if __name__ == "__main__":
    main()
