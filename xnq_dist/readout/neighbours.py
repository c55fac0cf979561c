"""What xnq+ says of a node by its neighbours: their posteriors, their node features.

Means over the in-neighbours, made by halo exchange; these are the pure parts of it.
Posteriors come in K variants, as labels do: in variant k they are those of fold k's
first-stage model and of the labels that fold k sees, so that nothing of a row of fold k
in its own variant depends on its label.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from xnq_dist.graph.layout import load_nodes
from xnq_dist.readout.label_features import VisibleLabels
from xnq_dist.readout.logistic import LinearModel, decision
from xnq_dist.readout.rows import Part
from xnq_dist.store import FileRecord, Manifest, Stage

__all__ = [
    "FeatureStart",
    "FeatureStep",
    "FirstStage",
    "PosteriorStart",
    "PosteriorStep",
]

Array = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class FirstStage:
    """Logistic readouts of the K folds, all at the same C."""

    coef: NDArray[np.float64]
    """Shape (K, C, d')."""
    intercept: NDArray[np.float64]
    """Shape (K, C)."""

    def logits(self, x: NDArray[Any]) -> NDArray[np.float64]:
        """Logits of rows by every fold's model, shape (n, K, C)."""
        count, classes, dim = self.coef.shape
        stacked = LinearModel(
            self.coef.reshape(-1, dim), self.intercept.ravel(), 1.0, True
        )
        return decision(stacked, x).reshape(len(x), count, classes)


@dataclass(frozen=True)
class PosteriorStart:
    """A label where a variant sees it, elsewhere the posterior of its first stage."""

    visible: VisibleLabels
    parts: tuple[Part, ...]
    models: FileRecord
    """The arrays of `FirstStage`, in the folder of the labels."""

    def __call__(self, number: int) -> Array:
        """Shape (n_owned, K C)."""
        arrays = self.visible.where.read_arrays(self.models)
        first = FirstStage(arrays["coef"], arrays["intercept"])
        seen, hot = self.visible.clamped(number)
        found = np.empty((len(hot), first.coef.shape[0], hot.shape[1]), np.float32)
        part = self.parts[number]
        for begin, x in part.states(part.read_nodes()["node_id"]):
            found[begin:][: len(x)] = softmax(first.logits(x), axis=2)
        found = np.where(seen[:, :, None], hot[:, None, :], found)
        return found.reshape(len(hot), -1)


@dataclass(frozen=True)
class PosteriorStep:
    """Weighted mean of the in-neighbours and of one neighbour's worth of the prior."""

    n_folds: int
    prior: tuple[float, ...]

    def __call__(self, number: int, turn: int, values: Array, sums: Array) -> Array:
        """Shape (n_owned, K C)."""
        total = sums.reshape(len(sums), self.n_folds, len(self.prior))
        # A distribution a neighbour: their sum is the neighbours' weight.
        weight = total.sum(axis=2, keepdims=True)
        mean = (total + np.array(self.prior, np.float32)) / (weight + 1)
        flat: Array = mean.reshape(len(sums), -1).astype(np.float32)
        return flat


@dataclass(frozen=True)
class FeatureStart:
    """The node features, and a column of ones that will count weights."""

    graph: Stage
    manifest: Manifest

    def __call__(self, number: int) -> Array:
        """Shape (n_owned, F + 1)."""
        nodes = load_nodes(self.graph, self.manifest, number, ["features"])
        column = nodes["features"].combine_chunks()
        values = column.flatten().to_numpy(zero_copy_only=False)
        x = values.reshape(len(column), column.type.list_size).astype(np.float32)
        return np.concatenate([x, np.ones((len(x), 1), np.float32)], axis=1)


@dataclass(frozen=True)
class FeatureStep:
    """Weighted mean of the in-neighbours; without any a node keeps what it has."""

    def __call__(self, number: int, turn: int, values: Array, sums: Array) -> Array:
        """Shape (n_owned, F + 1), the last column ones."""
        weight = sums[:, -1:]
        mean: Array = np.divide(sums, weight, out=values.copy(), where=weight > 0)
        return mean
