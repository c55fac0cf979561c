"""The first stage of xnq+: a logistic regression for each block of columns and variant.

Blocks (reservoir, features, spectrum) are scaled to a total variance of 1 each, so they
share one grid of C. C is chosen by the out-of-fold loss of the single folds, with a
weak penalty on the distance from the middle of the grid, for tasks with few labels.

Every node, labelled or not, is in one of K folds, assigned regardless of classes. A
variant is a set of one or two folds whose labels are not used at all. A node of fold k
is scored by models and label features of the variant {k}; a labelled node of fold j
that the models of fold k are fitted to has inputs of the variant {j, k}. So a score
never depends on the node's own label. An unlabelled node is scored by all K variants;
where it is compared with labelled nodes, by that of its fold alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xnq_dist.core.arrays import Bools, Floats, Ints, Ints32, offsets_of
from xnq_dist.core.kernel import kernel
from xnq_dist.core.products import product
from xnq_dist.core.random_bits import Purpose, mixed_bits
from xnq_dist.readout.logistic import FitJob, LinearModel, fit_jobs
from xnq_dist.readout.objective import STACKED, Rows
from xnq_dist.readout.regularisation import cross_fit, search_from_middle

__all__ = [
    "GRID",
    "FirstStage",
    "Variants",
    "block_rows",
    "class_priors",
    "columns_of",
    "fit_block",
    "node_folds",
]

PSEUDO = 0.5
"""Pseudo-counts of every class in class shares, so that none is 0."""

GRID = tuple(10.0**step for step in range(-1, 6))
"""Values of C for rows of total variance 1."""


@dataclass(frozen=True)
class Variants:
    """The sets of hidden folds: each fold alone, then each pair."""

    folds: int

    @property
    def hidden(self) -> tuple[tuple[int, ...], ...]:
        """Hidden folds of each variant."""
        every = range(self.folds)
        return (*((fold,) for fold in every), *combinations(every, 2))

    def __len__(self) -> int:
        return len(self.hidden)

    def visible(self) -> Bools:
        """Whether each fold is visible to each variant, shape (V, K)."""
        visible = np.ones((len(self), self.folds), np.bool_)
        for place, folds in enumerate(self.hidden):
            visible[place, list(folds)] = False
        return visible

    def of_rows(self, folds: Ints32) -> Ints:
        """Variants of labelled rows' inputs, by the folds of the rows, shape (n, K).

        Each fold and the row's own hidden.
        """
        numbers = np.empty((self.folds, self.folds), np.int64)
        for place, hidden in enumerate(self.hidden):
            numbers[hidden[0], hidden[-1]] = numbers[hidden[-1], hidden[0]] = place
        return numbers[folds]


def node_folds(index: Ints, folds: int, seed: int) -> Ints32:
    """Fold of each node, from its canonical index and the seed alone, shape (n,)."""
    bits = mixed_bits(index, seed, Purpose.NODE_FOLDS)
    return ((bits >> np.uint64(32)) * np.uint64(folds) >> np.uint64(32)).astype(
        np.int32
    )


def class_priors(
    labels: Ints32,
    folds: Ints32,
    weights: Floats,
    n_classes: int,
    variants: Variants,
) -> Floats:
    """Smoothed class shares among the labels visible to each variant, shape (V, C)."""
    counts = np.zeros((variants.folds, n_classes))
    np.add.at(counts, (folds, labels), weights)
    visible = variants.visible() @ counts + PSEUDO
    return np.asarray(visible / visible.sum(axis=1, keepdims=True), np.float64)


@dataclass(frozen=True, eq=False)
class FirstStage:
    """Logistic readouts of every variant and block, for unscaled columns."""

    blocks: Sequence[int]
    """Columns of each block."""
    coef: Floats
    """Shape (V, C, columns)."""
    intercept: Floats
    """Shape (V, B, C)."""

    def scores(self, x: NDArray[Any]) -> Floats:
        """Return log-probabilities of rows, shape (n, V, B, C)."""
        count, classes, _ = self.coef.shape
        logs = np.empty((len(x), count, len(self.blocks), classes))
        for at, columns in enumerate(columns_of(self.blocks)):
            weights = self.coef[:, :, columns].reshape(count * classes, -1).T
            logits = product(x[:, columns], weights).reshape(len(x), count, classes)
            _shifted_log_shares(logits, self.intercept[:, at], logs[:, :, at])
        return logs


def columns_of(blocks: Sequence[int]) -> list[slice]:
    """Return the columns of each block."""
    ends = offsets_of(blocks).tolist()
    return [slice(first, last) for first, last in pairwise(ends)]


def block_rows(
    x: NDArray[Any], labels: Ints32, folds: Ints32, weights: Floats, n_classes: int
) -> Rows:
    """Rows of one block's columns `x`, as its models are fitted to."""
    # Each pass over a view of some columns takes up to three times as long.
    fields = np.ascontiguousarray(x), labels, folds, n_classes, weights
    rows = Rows(*fields, smooth=True, tolerance=STACKED)
    rows.penalty = rows.moments.total_variance()
    return rows


def fit_block(
    x: NDArray[Any],
    columns: slice,
    labels: Ints32,
    folds: Ints32,
    weights: Floats,
    n_classes: int,
    grid: Sequence[float],
    variants: Variants,
    threads: int,
) -> list[LinearModel]:
    """Choose one block's C, and fit its models of every variant; runs as one task."""
    rows = block_rows(x[:, columns], labels, folds, weights, n_classes)
    each = [rows] * variants.folds
    single, _ = cross_fit(each, grid, search_from_middle, threads)
    # No start from a model of one hidden fold: it was fitted to the other fold.
    pairs = variants.hidden[variants.folds :]
    jobs = [FitJob(rows, hidden, single[0].strength) for hidden in pairs]
    return [*single, *fit_jobs(jobs, threads)]


@kernel
def _shifted_log_shares(logits: Floats, shifts: Floats, out: Floats) -> None:
    """Log-probabilities, (n, V, C), of ``logits + shifts``."""
    for row in range(len(logits)):
        for v in range(len(shifts)):
            values, best = out[row, v], 0
            for c in range(len(values)):
                values[c] = logits[row, v, c] + shifts[v, c]
                if values[c] > values[best]:
                    best = c
            top, mass = values[best], 0.0
            for c in range(len(values)):
                values[c] -= top
                if c != best:
                    mass += math.exp(values[c])
            values -= math.log1p(mass)
