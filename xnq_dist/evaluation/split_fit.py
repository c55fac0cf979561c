"""Fits the readout of one configuration in one split, without Dask.

Training rows are gathered from all parts, and all rows are scored part by part, so
that memory holds the embeddings of the training rows and not of all nodes.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xnq_dist.core.arrays import Floats32, Ints
from xnq_dist.core.errors import DoesNotFitError
from xnq_dist.core.sizes import human
from xnq_dist.core.store import Manifest
from xnq_dist.evaluation.work import EvaluationWork, Scores
from xnq_dist.graph.layout import load_nodes
from xnq_dist.readout.logistic import decision, fit
from xnq_dist.reservoir.context import matrix_of

__all__ = ["NodeRows", "fit_split"]


@dataclass(frozen=True)
class NodeRows:
    """Rows of the nodes in parts: their embeddings, or the raw features."""

    work: EvaluationWork
    embeddings: Manifest | None = None
    """The stage whose rows are used; None: the features in the graph's node tables."""

    def parts(self) -> Iterator[tuple[Ints, NDArray[Any]]]:
        """Canonical indexes and rows of each part, shapes (n,) and (n, d')."""
        manifest = self.work.graph()
        for number in range(int(manifest.facts["partitions"])):
            if self.embeddings:
                nodes = load_nodes(manifest, number, ["index"])
                file = self.embeddings.named("part-")[number]
                table = self.embeddings.where.read_table(file, "embeddings")
                column = table["embedding"]
            else:
                nodes = load_nodes(manifest, number, ["index", "features"])
                column = nodes["features"]
            yield nodes["index"].to_numpy(), matrix_of(column)

    def matrix(self, nodes: Ints | None = None) -> Floats32:
        """Rows of these canonical indexes, ascending, shape (n, d'); None: of all."""
        indexes, pieces = [], []
        for index, x in self.parts():
            chosen = slice(None) if nodes is None else np.isin(index, nodes)
            indexes.append(index[chosen])
            pieces.append(x[chosen])
        rows: Floats32 = np.concatenate(pieces)
        return rows[np.argsort(np.concatenate(indexes))]


def fit_split(rows: NodeRows, C: float, split: int) -> Scores:
    """Fit a logistic readout to the training rows and score all.

    Parameters
    ----------
    C
        Inverse L2 strength.

    Raises
    ------
    DoesNotFitError
        When the training rows need more than ``readout.memory``.
    """
    began, work = time.perf_counter(), rows.work
    task, memory = work.task(), work.settings.readout.memory_bytes
    train, n_classes = task.rows(split, "train"), task.n_classes
    _, first = next(rows.parts())
    # Pieces of 4 bytes a value, and the array that they are joined to.
    need = 8 * len(train) * first.shape[1]
    if need > memory:
        raise DoesNotFitError(
            f"{len(train)} training rows of {first.shape[1]} values take "
            f"{human(need)}, more than readout.memory = {human(memory)}: raise it, or "
            "set a smaller reservoir.dim"
        )
    model = fit(rows.matrix(train), task.labels[train], n_classes, C)
    logits = np.empty((len(task.labels), n_classes))
    for index, x in rows.parts():
        logits[index] = decision(model, x)
    seconds = time.perf_counter() - began
    if rows.embeddings:
        seconds += rows.embeddings.seconds
    return Scores.of(task, split, task.rows(split, "calibration"), logits, seconds)
