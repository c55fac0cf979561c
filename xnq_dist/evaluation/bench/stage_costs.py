"""Unit costs of the work after the supersteps, measured on the files of a small run.

Seconds are CPU seconds of the process, which include Arrow's threads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xnq_dist.core.store import Attempt, RunDirectory
from xnq_dist.evaluation.bench.harness import Bench
from xnq_dist.evaluation.bench.pipeline_runs import GENERATE, MEASURE

__all__ = ["fit_costs", "run_costs"]

DIM = 64
SETTINGS = (
    "partitions=2",
    "cluster.workers=2",
    "cluster.threads=1",
    f"reservoir.dim={DIM}",
    "reservoir.supersteps=2",
    "reservoir.recurrent_scale=1.0",
    "reservoir.input_scale=0.3",
    "method=xnq",
    "quantifier=sld",
    "readout.C=1.0",
)
Busy = Callable[..., float]
"""Returns CPU seconds of one ``work(core)`` while every core runs one."""


def run_costs(bench: Bench, busy: Busy) -> dict[str, float]:
    """Costs of reading and writing the files of a run, per byte, node or value.

    `busy` measures the CPU seconds of a call while all cores are busy.
    """
    from xnq_dist.graph import layout
    from xnq_dist.quantify.loading import load_node_table
    from xnq_dist.readout.apply import SavedReadout
    from xnq_dist.readout.logistic import decision
    from xnq_dist.readout.rows import LabelFile, Part, write_posteriors

    graph = str(bench.folder / "graph-stages")
    nodes = bench.choose(1_000, 100_000)
    bench.child(GENERATE, {"out": graph, "nodes": nodes})
    out = str(bench.folder / "run-stages")
    arguments = {"graph": graph, "out": out, "overrides": list(SETTINGS)}
    bench.child(MEASURE, arguments)
    run = RunDirectory(out)
    graph_manifest = run.complete("graph")
    embedded = run.complete("embeddings")
    fitted = run.complete("readout")
    stage, rows = run.stage("graph"), run.stage("embeddings")
    (record,) = fitted.named("readout-")
    saved = SavedReadout.from_arrays(run.stage("readout").read_arrays(record))
    known = run.complete("labels").named("labels-")[0]
    part = Part(
        stage,
        graph_manifest.named("nodes-")[0],
        rows,
        embedded.named("part-")[0],
        False,
        labels=LabelFile(run.stage("labels"), known),
    )
    ids = part.read_nodes()["node_id"]
    x = np.concatenate([values for _, values in part.states(ids)])
    attempt = RunDirectory(bench.folder / "tables").stage("embeddings").begin()
    read = busy(lambda _: sum(len(block) for _, block in part.states(ids)))
    score = busy(lambda _: decision(saved.model, x))

    def scored(core: int) -> None:
        stage = run.stage("readout")
        write_posteriors(part, core, stage, record, attempt, ["0", "1"])

    posterior = busy(scored)
    edges = layout.load_partition(stage, graph_manifest, 0)
    load = busy(lambda _: layout.load_partition(stage, graph_manifest, 0))
    prior = fitted.facts["prior"]
    return {
        "load": load / (4 * len(edges.indices)),
        "table": busy(lambda core: _write_table(attempt, core, ids, x)) / x.nbytes,
        "read": read / x.nbytes,
        "score": score / x.size,
        "posterior": max(posterior - read - score, 0.0) / len(x),
        "known": busy(lambda _: load_node_table(run, prior)) / nodes,
        "name": busy(lambda _: layout.load_ids(stage, graph_manifest)) / nodes,
    }


def _write_table(attempt: Attempt, number: int, ids: Any, x: NDArray[Any]) -> None:
    import pyarrow as pa

    values = pa.FixedSizeListArray.from_arrays(pa.array(x.reshape(-1)), x.shape[1])
    with attempt.table_writer(f"rows-{number:05d}", "embeddings") as writer:
        writer.write(pa.table({"node_id": ids, "embedding": values}))


def fit_costs(bench: Bench, busy: Busy) -> dict[str, float]:
    """Costs of fitting and applying readouts and second stages."""
    rng = np.random.default_rng(0)
    rows = bench.choose(1_000, 16_000)
    return {
        "square": _square_cost(rng, rows, busy),
        **_tree_costs(rng, rows, busy),
        "feature": _feature_cost(rng, rows, busy),
    }


def _planted(
    rng: np.random.Generator, rows: int, width: int
) -> tuple[NDArray[np.float32], NDArray[np.int32]]:
    """Rows whose logits have standard deviation 2, as those of a typical readout."""
    x = rng.standard_normal((rows, width)).astype(np.float32)
    logits = x @ rng.standard_normal(width) * (2.0 / np.sqrt(width))
    return x, (logits + rng.logistic(size=rows) > 0).astype(np.int32)


def _square_cost(rng: np.random.Generator, rows: int, busy: Busy) -> float:
    """Seconds per pair of values of a row in the moments of all rows."""
    from xnq_dist.readout.objective import Group, group_moments

    width = 256
    x, labels = _planted(rng, rows, width)
    group = Group(x, labels, np.zeros(rows, np.int32))
    return busy(lambda _: group_moments(group, 1), 5) / (rows * width * width)


def _tree_costs(rng: np.random.Generator, rows: int, busy: Busy) -> dict[str, float]:
    """Costs of trees from few and many rows, on one core as in a run."""
    from time import thread_time

    from xnq_dist.readout.plus.second_stage import KINDS
    from xnq_dist.readout.plus.trees import ROUNDS, boosted_logits, fit_trees

    columns, few = 24, rows // 8
    x, labels = _planted(rng, rows, columns)
    z = x.astype(np.float64)
    seconds = {}
    model = fit_trees(z[:few], labels[:few], 2, KINDS["trees"])
    for count in (few, rows):
        began = thread_time()
        model = fit_trees(z[:count], labels[:count], 2, KINDS["trees"])
        seconds[count] = (thread_time() - began) / ROUNDS
    value = (seconds[rows] - seconds[few]) / ((rows - few) * columns)
    scored = busy(lambda _: boosted_logits(model, z), 5)
    return {
        "tree": max(seconds[few] - few * columns * value, 0.0),
        "bin": max(value, 0.0),
        "leaf": scored / (rows * ROUNDS),
    }


def _feature_cost(rng: np.random.Generator, rows: int, busy: Busy) -> float:
    from xnq_dist.readout.plus.label_features import HOPS, label_features
    from xnq_dist.readout.plus.variants import Variants

    variants, prior = Variants(5), np.array([0.6, 0.4])
    hops = [
        rng.integers(0, 9, (rows, 2 * variants.folds + 1)).astype(np.float32)
        for _ in range(HOPS)
    ]
    means = [
        rng.random((rows, 2 * len(variants)), dtype=np.float32) for _ in range(HOPS)
    ]
    chosen = rng.integers(0, variants.folds, rows)
    arguments = hops, means, np.tile(prior, (len(variants), 1)), chosen, variants, 10.0
    seconds = busy(lambda _: label_features(*arguments), 5)
    return seconds / label_features(*arguments).size
