"""The superstep compared with graphesn, in one run.

    python -m tests.benchmarks.superstep_speed [--nodes 400000] [--peer PYTHON]

A graph with power-law degrees (Chung-Lu, exponent 2.5) of 5 directed edges per node,
d' = 1024, one partition, two alternating state buffers, two threads. Prints one JSON
line per measurement (median, best and worst seconds of `--repeats` runs after a
warm-up). `--peer` is a Python with torch, torch_geometric and graphesn, whose update is
measured on the same graph with the same weights, in both forms of its adjacency:

- ``edges``: a list of edges, as in its documentation; a message per edge in memory;
- ``csr``: a sparse matrix. It needs torch_sparse, which often cannot be installed; then
  torch's CSR product is used.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from tests.reservoir.reference import one_partition
from xnq_dist.reservoir.superstep import OnHost
from xnq_dist.reservoir.weights import Recurrent, draw_recurrent

THREADS = 2
PEER = """
import importlib.util, json, sys, time, types, warnings
import numpy as np, torch
warnings.filterwarnings("ignore")
for name, members in (("torch_sparse", ("matmul", "SparseTensor")),
                      ("torch_scatter", ("segment_sum_coo",))):
    if importlib.util.find_spec(name) is None:
        module = types.ModuleType(name)
        for member in members:
            setattr(module, member, type(member, (), {}))
        module.matmul = lambda a, x, reduce: a @ x
        sys.modules[name] = module
from graphesn.reservoir import ReservoirConvLayer
folder, form, repeats, threads = sys.argv[1:]
repeats, threads = int(repeats), int(threads)
now = time.perf_counter
torch.set_num_threads(threads)
load = lambda name: np.load(f"{folder}/{name}.npy")
pointers, columns, w = load("pointers"), load("columns"), load("recurrent")
nodes, dim = len(pointers) - 1, len(w)
layer = ReservoirConvLayer(1, dim, bias=True)
random = np.random.default_rng(1)
layer.recurrent_weight.data = torch.from_numpy(w)
layer.input_weight.data = torch.from_numpy(random.random((dim, 1), np.float32) - 0.5)
layer.bias.data = torch.from_numpy(random.random(dim, np.float32) / 10)
layer.leakage.data = torch.tensor(1.0)
if form == "csr":
    ones = torch.ones(len(columns))
    index = torch.sparse_csr_tensor(
        torch.from_numpy(pointers), torch.from_numpy(columns), ones, (nodes, nodes))
else:
    target = np.repeat(np.arange(nodes), np.diff(pointers))
    index = torch.from_numpy(np.stack([columns, target]))
x = torch.from_numpy(random.random((nodes, 1), np.float32))
state = torch.from_numpy(random.random((nodes, dim), np.float32) - 0.5)
seconds = []
with torch.no_grad():
    for _ in range(repeats + 1):
        began = now()
        state = layer(index, x, state)
        seconds.append(now() - began)
print(json.dumps(seconds[1:]))
"""


def power_law_graph(nodes: int, seed: int = 0) -> csr_array:
    """About 5 directed edges a node, both directions, ids in random order."""
    rng = np.random.default_rng(seed)
    weight = (np.arange(nodes) + 10.0) ** (-1 / 1.5)
    ends = np.cumsum(weight) / weight.sum()
    order = rng.permutation(nodes)
    pairs = order[np.searchsorted(ends, rng.random((2, nodes * 5 // 2)))]
    both = np.concatenate([pairs, pairs[::-1]], axis=1)
    ones = np.ones(both.shape[1], np.float32)
    matrix = csr_array((ones, (both[0], both[1])), shape=(nodes, nodes))
    matrix.sum_duplicates()
    matrix.data[:] = 1
    matrix.sort_indices()
    return matrix


def timed(name: str, work: Callable[[], Any], repeats: int) -> dict[str, Any]:
    """Seconds of `repeats` runs after one to warm up."""
    work()
    seconds = []
    for _ in range(repeats):
        began = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - began)
    return row_of(name, seconds)


def row_of(name: str, seconds: list[float]) -> dict[str, Any]:
    """Median, best and worst."""
    return {
        "what": name,
        "seconds": round(float(np.median(seconds)), 4),
        "best": round(min(seconds), 4),
        "worst": round(max(seconds), 4),
        "repeats": len(seconds),
    }


def measure(nodes: int, dim: int, repeats: int) -> list[dict[str, Any]]:
    """Rows of the superstep with a dense and with a sparse matrix."""
    matrix = power_law_graph(nodes)
    part = one_partition(matrix.indptr, matrix.indices)
    rng = np.random.default_rng(1)
    states = rng.random((nodes, dim), dtype=np.float32) - np.float32(0.5)
    drive = rng.random((nodes, dim), dtype=np.float32) - np.float32(0.5)
    out = np.empty_like(states)
    halo = np.empty((0, dim), np.float32)

    def step(recurrent: Recurrent) -> None:
        nonlocal states, out
        on_host = OnHost([recurrent], threads=THREADS)
        on_host.superstep(part, states, halo, drive, out)
        states, out = out, states

    facts = {"nodes": nodes, "edges": len(part.indices), "dim": dim}
    return [
        timed(f"{name} superstep", partial(step, recurrent), repeats) | facts
        for name, recurrent in zip(("dense", "sparse"), recurrents(dim), strict=True)
    ]


def recurrents(dim: int) -> tuple[Recurrent, Recurrent]:
    """A dense matrix and one of 16 non-zeros a row, of radius about one half."""
    dense, sparse = (draw_recurrent(0, dim, k) for k in ("dense", "sparse"))
    return (
        Recurrent(dense.values * np.float32((0.75 / dim) ** 0.5)),
        Recurrent(sparse.values * np.float32(0.2165), sparse.columns),
    )


def measure_peer(
    python: str, form: str, nodes: int, dim: int, repeats: int
) -> dict[str, Any]:
    """A row of graphesn's dense update, in its own process."""
    matrix = power_law_graph(nodes)
    with tempfile.TemporaryDirectory() as folder:
        arrays = {
            "pointers": matrix.indptr.astype(np.int64),
            "columns": matrix.indices.astype(np.int64),
            "recurrent": recurrents(dim)[0].values,
        }
        for name, array in arrays.items():
            np.save(Path(folder) / f"{name}.npy", array)
        command = [python, "-c", PEER, folder, form, str(repeats), str(THREADS)]
        # Nothing of this Python's own path: the peer has its own packages.
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
        done = subprocess.run(
            command, stdout=subprocess.PIPE, text=True, check=True, env=environment
        )
    facts = {"nodes": nodes, "edges": matrix.nnz, "dim": dim}
    return row_of(f"graphesn dense, {form}", json.loads(done.stdout)) | facts


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=400_000)
    parser.add_argument("--dim", type=int, default=1024)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--peer", help="Python with graphesn")
    chosen = parser.parse_args()
    size = chosen.nodes, chosen.dim, chosen.repeats
    rows = measure(*size)
    if chosen.peer:
        rows += [measure_peer(chosen.peer, form, *size) for form in ("edges", "csr")]
    for row in rows:
        sys.stdout.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
