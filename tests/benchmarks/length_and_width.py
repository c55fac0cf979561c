"""Error against supersteps L, units d' and the precision of the states.

    XNQ_DATA_DIR=... python tests/benchmarks/length_and_width.py [--graphs cora-2 ...]

Fold 0 of the paper's splits, plain XNQ with a dense W: `--draws` reservoirs with scales
drawn as in the paper's search, C from two values by the log-loss of the calibration
labels, BCTS, SLD on the APP samples of the test nodes. Prints one JSON line per graph,
sweep and value: test AE, mean over the draws; the log-loss of the calibration labels,
which a rule could use; and the relative change of the states in the last superstep. In
the sweep of precisions, states are rounded after every superstep, as by a float16 store
or exchange, at L = 8 and 30.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from scipy.sparse import csr_array

from xnq_dist.core.products import product
from xnq_dist.core.settings import Settings
from xnq_dist.evaluation.datasets.test_folds import ROLES
from xnq_dist.evaluation.grid_search import reservoir_draws
from xnq_dist.evaluation.methods.method_interface import Scores, Split, Task
from xnq_dist.evaluation.protocol import draw_samples
from xnq_dist.evaluation.scoring import calibrated, errors, estimates
from xnq_dist.graph.halo import Partition
from xnq_dist.readout.logistic import decision, fit, row_losses
from xnq_dist.reservoir.superstep import OnHost
from xnq_dist.reservoir.weights import draw_weights

LENGTHS = (2, 4, 6, 8, 12, 16, 20, 30)
WIDTHS = (64, 128, 256, 512, 1024)
STRENGTHS = (0.1, 10.0)
POSITIVE = {"cora-2": 2}

Array = np.ndarray[Any, np.dtype[np.float32]]


def whole_graph(data: Path, name: str) -> tuple[Partition, Array, Task, float]:
    """The graph in one partition, features, task of fold 0, and rho(A)."""
    folder = data / name.removesuffix("-2")
    nodes = pq.read_table(folder / "nodes.parquet").sort_by("node_id")
    edges = pq.read_table(folder / "edges.parquet")
    ids = nodes["node_id"].to_numpy()
    width = nodes["features"].type.list_size
    flat = nodes["features"].combine_chunks().flatten().to_numpy()
    labels = nodes["label"].to_numpy().astype(np.int32)
    if name in POSITIVE:
        labels = (labels == POSITIVE[name]).astype(np.int32)
    source = np.searchsorted(ids, edges["src"].to_numpy())
    target = np.searchsorted(ids, edges["dst"].to_numpy())
    ones = np.ones(len(source), np.float32)
    matrix = csr_array((ones, (target, source)), shape=(len(ids), len(ids)))
    matrix.sum_duplicates()
    matrix.sort_indices()
    none = np.empty(0, np.int64)
    part = Partition(
        number=0,
        indptr=matrix.indptr.astype(np.int64),
        indices=matrix.indices.astype(np.int32),
        weights=None,
        halo=none,
        halo_offsets=np.zeros(2, np.int64),
        send_rows=none.astype(np.int32),
        send_offsets=np.zeros(2, np.int64),
    )
    splits = pq.read_table(folder / "splits.parquet")
    splits = splits.filter(pc.equal(splits["fold"], 0))
    codes = pc.index_in(splits["role"], pa.array(ROLES)).to_numpy()
    roles = np.full((1, len(ids)), -1, np.int8)
    roles[0, np.searchsorted(ids, splits["node_id"].to_numpy())] = codes
    classes = tuple(map(str, range(int(labels.max()) + 1)))
    task = Task(name, classes, labels, (Split(0),), roles)
    vector = np.ones(len(ids))
    for _ in range(300):
        vector = matrix @ vector + vector
        vector /= np.linalg.norm(vector)
    rho = float(vector @ (matrix @ vector))
    features = flat.reshape(-1, width).astype(np.float32)
    return part, features, task, rho


def states(
    part: Partition,
    features: Array,
    dim: int,
    rho: float,
    draw: dict[str, Any],
    lengths: tuple[int, ...],
    rounded: Callable[[Array], Array] = lambda x: x,
) -> Iterator[tuple[int, float, Array]]:
    """L, relative change and states at each of `lengths`."""
    weights = draw_weights(
        draw["seed"],
        dim,
        features.shape[1],
        matrix="dense",
        nonzeros=16,
        recurrent_scale=draw["recurrent_scale"],
        input_scale=draw["input_scale"],
        bias_scale=0.1,
        rho=rho,
    )
    drive = product(features, weights.inputs.T) + weights.bias
    before = np.zeros_like(drive)
    halo = np.empty((0, dim), np.float32)
    host = OnHost([weights.recurrent])
    for step in range(1, max(lengths) + 1):
        after = np.empty_like(before)
        host.superstep(part, before, halo, drive, after)
        after = rounded(after)
        if step in lengths:
            moved = np.linalg.norm(after - before) / np.linalg.norm(after)
            yield step, float(moved), after
        before = after


def score(task: Task, embedding: Array, settings: Settings) -> tuple[float, float]:
    """Test AE of SLD, and the log-loss of the calibration labels before it."""
    train, held = task.rows(0, "train"), task.rows(0, "calibration")
    target = task.rows(0, "validation", "test")
    best = (np.inf, None)
    for strength in STRENGTHS:
        model = fit(embedding[train], task.labels[train], len(task.classes), strength)
        logits = decision(model, embedding[held])
        loss = float(row_losses(logits, task.labels[held]).mean())
        if loss < best[0]:
            best = (loss, model)
    loss, model = best
    assert model is not None
    logits = (decision(model, embedding[rows]) for rows in (held, target))
    scores = Scores(held, next(logits), target, next(logits))
    test = task.rows(0, "test")
    samples = draw_samples(task.labels[test], len(task.classes), "test", 0, 0)
    posteriors = calibrated(task, 0, scores, "bcts", test)
    found = estimates(posteriors, samples, "sld", settings)
    return errors(samples, found)["ae"], loss


def bfloat16(x: Array) -> Array:
    """Rounded to 8 bits of mantissa, to nearest even."""
    bits = x.view(np.uint32)
    bits = (bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)
    return bits.view(np.float32)


PRECISIONS: dict[str, Callable[[Array], Array]] = {
    "float32": lambda x: x,
    "float16": lambda x: x.astype(np.float16).astype(np.float32),
    "bfloat16": bfloat16,
}


def measure(
    data: Path, name: str, draws: int, sweeps: tuple[str, ...], dim: int = 256
) -> Iterator[dict[str, Any]]:
    """Rows of one graph: sweep, value, L, d', AE, log-loss, change."""
    part, features, task, rho = whole_graph(data, name)
    settings = Settings()
    chosen = reservoir_draws(settings, draws)
    runs: list[tuple[str, Any, int, tuple[int, ...], str]] = []
    if "length" in sweeps:
        runs.append(("length", None, dim, LENGTHS, "float32"))
    if "width" in sweeps:
        runs += [("width", width, width, (8,), "float32") for width in WIDTHS]
    if "precision" in sweeps:
        runs += [("precision", p, dim, (8, 30), p) for p in PRECISIONS]
    for sweep, value, units, lengths, precision in runs:
        found: dict[int, list[tuple[float, float, float]]] = {n: [] for n in lengths}
        for draw in chosen:
            rounded = PRECISIONS[precision]
            given = (part, features, units, rho, draw, lengths, rounded)
            for length, moved, embedding in states(*given):
                found[length].append((*score(task, embedding, settings), moved))
        for length, cells in found.items():
            ae, loss, moved = np.mean(cells, axis=0).tolist()
            yield {
                "graph": name,
                "sweep": sweep,
                "value": length if value is None else value,
                "supersteps": length,
                "dim": units,
                "draws": draws,
                "ae": round(ae, 4),
                "ae_worst": round(max(cell[0] for cell in cells), 4),
                "log_loss": round(loss, 4),
                "relative_change": round(moved, 4),
                "ae_of_draws": [round(cell[0], 4) for cell in cells],
                "log_loss_of_draws": [round(cell[1], 4) for cell in cells],
                "change_of_draws": [round(cell[2], 4) for cell in cells],
            }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    graphs = ["cora-2", "tolokers", "twitch-de"]
    sweeps = ["length", "width", "precision"]
    parser.add_argument("--graphs", nargs="*", default=graphs)
    parser.add_argument("--sweeps", nargs="*", default=sweeps)
    parser.add_argument("--draws", type=int, default=3)
    chosen = parser.parse_args()
    for name in chosen.graphs:
        data = Path(os.environ["XNQ_DATA_DIR"])
        for row in measure(data, name, chosen.draws, tuple(chosen.sweeps)):
            sys.stdout.write(json.dumps(row) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
