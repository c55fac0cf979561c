"""Unit costs of the work after the supersteps, measured on the files of a small run.

Seconds are CPU seconds of the process, which include Arrow's threads.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xnq_dist.core.store import Attempt, RunDirectory
from xnq_dist.evaluation.bench.harness import Bench
from xnq_dist.evaluation.bench.pipeline_runs import GENERATE, MEASURE
from xnq_dist.readout.objective import MemoryRows

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
    bench.child(MEASURE, {"graph": graph, "out": out, "overrides": list(SETTINGS)})
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
    table = busy(lambda core: _write_table(attempt, core, ids, x))
    plain = busy(lambda core: attempt.write_arrays(f"plain-{core}", x=x))
    return {
        "load": load / (4 * len(edges.indices)),
        "table": max(table - plain, 0.0) / x.nbytes,
        "read": read / x.nbytes,
        "posterior": max(posterior - read - score, 0.0) / len(x),
        "known": busy(lambda _: load_node_table(run, fitted.facts["prior"])) / nodes,
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
        **_logistic_costs(rng, rows, busy),
        **_score_costs(rng, rows, busy),
        **_tree_costs(rng, rows),
        "feature": _feature_cost(rng, rows, busy),
    }


def _planted(
    rng: np.random.Generator, rows: int, width: int
) -> tuple[NDArray[np.float32], NDArray[np.int32]]:
    """Rows whose logits have standard deviation 2, as those of a typical readout."""
    x = rng.standard_normal((rows, width)).astype(np.float32)
    logits = x @ rng.standard_normal(width) * (2.0 / np.sqrt(width))
    return x, (logits + rng.logistic(size=rows) > 0).astype(np.int32)


@dataclass(frozen=True, eq=False)
class _CountedRows(MemoryRows):
    """Labelled rows that count the passes over them."""

    passes: list[str] = field(default_factory=list)

    def over(self, work: Callable[..., Any], *arguments: Any) -> Any:
        """Results of ``work(group, *arguments)``, counted as one pass."""
        self.passes.append(work.__name__)
        return super().over(work, *arguments)


def _logistic_costs(
    rng: np.random.Generator, rows: int, busy: Busy
) -> dict[str, float]:
    """Costs of a fit: evaluations of few rows, moments, factors of the Hessian."""
    from scipy.linalg import cholesky
    from scipy.linalg.lapack import dtrtri

    from xnq_dist.core.blocks import one_blas_thread
    from xnq_dist.readout.logistic import FitJob, fit_jobs
    from xnq_dist.readout.objective import Group, group_moments

    width = 256
    x, labels = _planted(rng, rows, width)
    folds = np.zeros(rows, np.int32)
    group = Group(x, labels, folds)
    square = busy(lambda _: group_moments(group, 1), 5) / (rows * width * width)
    hessian = np.cov(x, rowvar=False) + np.eye(width)
    with one_blas_thread():
        factors = busy(lambda _: dtrtri(cholesky(hessian, lower=True), lower=1))
    few = _CountedRows.of(x[:64, :8], labels[:64], folds[:64], 2, smooth=True)
    fits = busy(lambda _: fit_jobs(few, [FitJob((), 1.0)]))
    few.passes.clear()  # type: ignore[attr-defined]
    fit_jobs(few, [FitJob((), 1.0)])
    points = few.passes.count("group_sums")  # type: ignore[attr-defined]
    return {"point": fits / points, "square": square, "cube": factors / width**3}


def _score_costs(rng: np.random.Generator, rows: int, busy: Busy) -> dict[str, float]:
    """Costs of 32 logits of a row, in the product and in the probabilities."""
    from xnq_dist.core.products import product
    from xnq_dist.readout.plus.first_stage import log_shares

    x, _ = _planted(rng, rows, 256)
    weights = rng.standard_normal((256, 32)) / 16
    logits = product(x, weights).reshape(rows, 16, 2)
    products = busy(lambda _: product(x, weights))
    shares = busy(lambda _: log_shares(logits, np.ones((16, 2)), np.empty_like(logits)))
    return {"score": products / (32 * x.size), "share": shares / logits.size}


def _tree_costs(rng: np.random.Generator, rows: int) -> dict[str, float]:
    """Costs of trees, from few and many rows and columns, on one core as in a run.

    As many rows are held out as in one of five folds.
    """
    from time import thread_time

    from xnq_dist.readout.plus.second_stage import KINDS
    from xnq_dist.readout.plus.trees import boosted_logits, fit_trees

    narrow, wide, few = 16, 96, rows // 8
    x, labels = _planted(rng, rows + rows // 4, wide)
    z = x.astype(np.float64)
    many = (labels + 2 * (z[:, 0] > 0) + 4 * (z[:, 1] > 0)).astype(np.int32)

    def seconds(count: int, width: int, classes: int) -> tuple[float, float]:
        """Seconds of a fit and its trees, the means of the kinds."""
        fitted, held = slice(count), slice(count, count + count // 4)
        columns, codes = z[:, :width], labels if classes == 2 else many
        totals = np.zeros(2)
        for shape in KINDS.values():
            began = thread_time()
            train = columns[fitted], codes[fitted], classes, shape
            trees = fit_trees(*train, (columns[held], codes[held]))
            totals += thread_time() - began, len(trees.tests) - 1
        spent, grown = totals / len(KINDS)
        return float(spent), float(grown)

    seconds(few, narrow, 2)
    looked = [
        [shape.looks(width) for shape in KINDS.values()] for width in (narrow, wide)
    ]
    less, more = np.mean(looked, axis=1)
    # Columns are sorted into bins once, for many trees of many classes.
    sizes = (few, narrow), (few, wide), (rows, wide)
    each = [spent / trees for spent, trees in (seconds(*size, 8) for size in sizes)]
    value = max(each[2] - each[1], 0.0) / ((rows - few) * more[1])
    gap = each[1] - each[0] - few * value * (more[1] - less[1])
    column = max(gap / (more[0] - less[0]), 0.0)
    tree = max(each[0] - column * less[0] - few * value * less[1], 0.0)
    binned = []
    for count in few, rows:
        spent, trees = seconds(count, wide, 2)
        spent -= trees * (tree + column * more[0] + count * value * more[1])
        binned.append(max(spent, 0.0) / wide)
    place = max(binned[1] - binned[0], 0.0) / (rows - few)
    model = fit_trees(z[:few], labels[:few], 2, KINDS["trees"])
    began = thread_time()
    boosted_logits(model, z)
    return {
        "tree": tree,
        "column": column,
        "bin": value,
        "bins": max(binned[0] - few * place, 0.0),
        "place": place,
        "leaf": (thread_time() - began) / (len(z) * (len(model.tests) - 1)),
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
        rng.random((rows, len(variants) + 1), dtype=np.float32) for _ in range(HOPS)
    ]
    chosen = rng.integers(0, variants.folds, rows)
    arguments = hops, means, np.tile(prior, (len(variants), 1)), chosen, variants, 10.0
    seconds = busy(lambda _: label_features(*arguments), 5)
    return seconds / label_features(*arguments).size
