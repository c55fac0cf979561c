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

from xnq_dist.core.errors import DoesNotFitError
from xnq_dist.core.store import FileRecord, Stage
from xnq_dist.evaluation.work import EvaluationWork, Scores
from xnq_dist.graph.layout import load_nodes
from xnq_dist.readout.logistic import decision, fit

__all__ = ["NodeRows", "fit_split"]


@dataclass(frozen=True)
class NodeRows:
    """Rows of the nodes in parts: their embeddings, or the raw features."""

    work: EvaluationWork
    embeddings: Stage | None = None
    """The stage whose rows are used; None: the features in the graph's node tables."""
    files: tuple[FileRecord, ...] = ()
    """Its files, one per partition."""

    def parts(self) -> Iterator[tuple[NDArray[np.int64], NDArray[Any]]]:
        """Canonical indexes and rows of each part, shapes (n,) and (n, d')."""
        graph, manifest = self.work.graph()
        for number in range(int(manifest.facts["partitions"])):
            names = ["index"] if self.embeddings else ["index", "features"]
            nodes = load_nodes(graph, manifest, number, names)
            if self.embeddings:
                table = self.embeddings.read_table(self.files[number], "embeddings")
                column = table["embedding"].combine_chunks()
            else:
                column = nodes["features"].combine_chunks()
            values = column.flatten().to_numpy(zero_copy_only=False)
            width = column.type.list_size
            yield nodes["index"].to_numpy(), values.reshape(len(column), width)

    def matrix(self) -> NDArray[np.float32]:
        """Rows of all nodes, shape (N, d')."""
        index, parts = zip(*self.parts(), strict=True)
        rows: NDArray[np.float32] = np.concatenate(parts)
        return rows[np.argsort(np.concatenate(index))]


def fit_split(rows: NodeRows, C: float, seconds: float, split: int) -> Scores:
    """Fit a logistic readout to the training rows and score all.

    Parameters
    ----------
    C
        Inverse L2 strength.
    seconds
        Wall time to make the rows.

    Raises
    ------
    DoesNotFitError
        When the training rows need more than ``readout.memory``.
    """
    began, work = time.perf_counter(), rows.work
    task, memory = work.task(), work.settings.readout.memory_bytes
    train = task.rows(split, "train")
    is_train = np.zeros(len(task.labels), np.bool_)
    is_train[train] = True
    pieces, indexes = [], []
    size = 0
    for index, x in rows.parts():
        chosen = is_train[index]
        pieces.append(x[chosen])
        indexes.append(index[chosen])
        # Both the pieces and the array that they are joined to, 4 bytes per value each.
        size += pieces[-1].size * 8
        if size > memory:
            need = x.shape[1] * 8 * len(train)
            raise DoesNotFitError(
                f"{len(train)} training rows of {x.shape[1]} values take "
                f"{need / 2**20:.0f} MiB, more than readout.memory = "
                f"{memory / 2**20:.0f} MiB: raise it, or set a smaller reservoir.dim"
            )
    order = np.argsort(np.concatenate(indexes))
    x_train = np.concatenate(pieces)[order]
    del pieces
    n_classes = len(task.classes)
    model = fit(x_train, task.labels[train], n_classes, C)
    del x_train
    logits = np.empty((len(task.labels), n_classes))
    for index, x in rows.parts():
        logits[index] = decision(model, x)
    seconds += time.perf_counter() - began
    return Scores.of(task, split, task.rows(split, "calibration"), logits, seconds)
