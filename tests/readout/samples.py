"""Labelled rows that resemble reservoir states, drawn for each test."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from tests.conftest import write_graph
from xnq_dist.core.progress import silent
from xnq_dist.graph.sources import Sources
from xnq_dist.readout.fit import fit_rows, held_out_logits
from xnq_dist.readout.folds import plan_folds
from xnq_dist.readout.logistic import FitJob, LinearModel, fit_jobs
from xnq_dist.readout.objective import Rows
from xnq_dist.readout.stage import fit_readout, write_posteriors


def states(
    rows: int, width: int, classes: int, seed: int = 0, signal: float = 0.4
) -> tuple[NDArray[np.float32], NDArray[np.int32]]:
    """Collinear tanh features with a class signal, and labels of all classes."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, classes, rows).astype(np.int32)
    labels[: 2 * classes] = np.tile(np.arange(classes), 2)
    hidden = rng.standard_normal((rows, max(4, width // 3)))
    hidden[:, :classes] += signal * np.eye(classes)[labels] * 3
    mixed = hidden @ rng.standard_normal((hidden.shape[1], width)) * 0.4
    noise = 0.3 * rng.standard_normal((rows, width))
    return np.tanh(mixed + noise + 0.3).astype(np.float32), labels


def biased_logits(
    rows: int, classes: int, temperature: float, bias: list[float], seed: int = 0
) -> tuple[NDArray[np.float64], NDArray[np.int32]]:
    """Logits, and labels drawn from softmax(logits / temperature + bias)."""
    rng = np.random.default_rng(seed)
    logits = 2 * rng.standard_normal((rows, classes))
    p = np.exp(logits / temperature + np.array(bias))
    p /= p.sum(axis=1, keepdims=True)
    labels = (rng.random((rows, 1)) > p.cumsum(axis=1)).sum(axis=1)
    return logits, np.minimum(labels, classes - 1).astype(np.int32)


def fit_smooth(x, y, n_classes, C, weights=1.0) -> LinearModel:
    """Fit all rows with half a label of each class at their mean."""
    rows = Rows(x, y, np.zeros(len(y), np.int32), n_classes, weights, smooth=True)
    return fit_jobs([FitJob(rows, (), C)])[0]


def fit_and_write(run, settings, client, progress=silent):
    """The stages ``readout`` and ``posteriors``; the manifest of the second."""
    fit_readout(run, settings, client, progress)
    return write_posteriors(run, settings, client, progress)


def fit_readout_arrays(
    x, labels, roles, n_classes, settings, seed, index=None
) -> SimpleNamespace:
    """Fit, select C, calibrate: rows in memory, nothing in files."""
    index = np.arange(len(labels)) if index is None else index
    names = list(range(n_classes))
    folds = plan_folds(labels, roles, names, settings.folds, seed)
    rows = Rows(x, labels, folds, n_classes)
    saved, facts = fit_rows(x, index, labels, roles, folds, names, settings)
    models, logits = held_out_logits(rows, settings)
    return SimpleNamespace(
        folds=folds,
        model=models[-1],
        logits=logits,
        calibration=saved["calibration"],
        saved=saved,
        facts=facts,
    )


def graph_with_scores(folder: Path) -> Sources:
    """`write_graph` with the true class, and columns for `columns.scores`.

    ``good`` is the class with noise, ``gaps`` the same with missing values.
    """
    graph = write_graph(folder, nodes=400, edges=1600)
    truth = np.random.default_rng(0).integers(0, 2, 400)
    known = graph.labels >= 0
    assert (graph.labels[known] == truth[known]).all()
    rng = np.random.default_rng(7)
    good = 1 / (1 + np.exp(-4 * (truth - 0.5) - rng.standard_normal(400)))
    columns = {
        "truth": pa.array(truth),
        "good": pa.array(good),
        "noise": pa.array(rng.random(400)),
        "gaps": pa.array(good, mask=rng.random(400) < 0.3),
    }
    nodes = pq.read_table(graph.sources.nodes)
    for name, values in columns.items():
        nodes = nodes.append_column(name, values)
    pq.write_table(nodes, graph.sources.nodes)
    return graph.sources
