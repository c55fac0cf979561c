"""Nodes that the selection model is fitted to: scores, labels and places."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from xnq_dist.core.arrays import Bools, Floats, Ints32

__all__ = [
    "MAX_NODES",
    "ScoredRows",
    "bounded",
    "log_rates",
    "model_bytes",
    "normalised",
]


MAX_NODES = 200_000
"""Maximum number of labelled, and of unlabelled, nodes that the model is fitted to."""
MIN_SCORE = 1e-9
"""Lower bound of scores."""


@dataclass(frozen=True, eq=False)
class ScoredRows:
    """Labelled and unlabelled nodes, scored by the same models, and their places."""

    posteriors: Floats
    """Rows on the simplex, computed without the labels of the node's own fold, shape
    (n, C)."""
    labels: Ints32
    """Class codes, -1 unlabelled, shape (n,)."""
    folds: Ints32
    """Folds, within which scores are comparable, shape (n,)."""
    groups: tuple[Ints32, ...]
    """Groups of the graph's partitions, the coarse one first, shape (n,) each."""
    degree: Floats
    """Number of in-neighbours, shape (n,)."""
    rates: Floats
    """Log rates of labelling among the neighbours without the node's own fold, one
    column per hop, shape (n, H)."""

    @property
    def labelled(self) -> Bools:
        """Shape (n,)."""
        return self.labels >= 0

    @property
    def n_classes(self) -> int:
        """Number of classes, C."""
        return int(self.posteriors.shape[1])


def normalised(posteriors: NDArray[np.floating], prior: Floats) -> Floats:
    """Normalise rows to sum to 1; the prior replaces a row of zeros."""
    rows = np.asarray(posteriors, np.float64)
    total = rows.sum(axis=1, keepdims=True)
    rows = rows / np.where(total > 0, total, 1.0)
    return np.where(total > 0, rows, prior / prior.sum())


def bounded(
    posteriors: NDArray[np.floating], prior: Floats, least: float = MIN_SCORE
) -> Floats:
    """Posteriors bounded away from 0; the prior replaces a row of zeros."""
    share = np.maximum(normalised(posteriors, prior), least)
    return np.asarray(share / share.sum(axis=1, keepdims=True))


def log_rates(reached: Floats, degree: Floats, rate: float, visible: float) -> Floats:
    """Log rate of labelling among neighbours, with one pseudo-neighbour at `rate`.

    `reached` are the labelled neighbours in other folds, or walks to them, `degree` all
    neighbours or walks; `visible` is the share of the nodes in other folds.
    """
    return np.log((reached + rate) / (visible * degree + 1.0))


def model_bytes(n_nodes: int, n_classes: int) -> int:
    """Approximate maximum bytes of the selection model in one process.

    Ten float64 arrays with a value per node and class, and sixty values for the columns
    of the terms and their products with weights.
    """
    return min(n_nodes, 2 * MAX_NODES) * 8 * (10 * n_classes + 60)
