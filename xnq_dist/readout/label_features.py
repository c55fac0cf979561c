"""Label features of xnq+: what the labels around a node say, its own left out.

Labels are seen in K variants. In variant k the labels of fold k are hidden, wherever
they would count, so that the features of a node of fold k in variant k cannot depend
on its own label: not by a self-loop, not by a walk that comes back. Everything is a
neighbour sum, made by halo exchange; these are the pure parts of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from xnq_dist.store import FileRecord, Stage

__all__ = [
    "HOPS",
    "NEIGHBOUR_HOPS",
    "HopStart",
    "HopStep",
    "VisibleLabels",
    "VoteStart",
    "VoteStep",
    "feature_count",
    "label_features",
]

Array = NDArray[np.float32]

HOPS = 2
"""Steps from a node within which labels are counted."""

BLOCK = 1 << 15
"""Rows that are described at a time."""

NEIGHBOUR_HOPS = 2
"""Rounds of means over the in-neighbours, of posteriors and of node features."""


@dataclass(frozen=True)
class VisibleLabels:
    """Labels and folds of every partition's owned rows, in files."""

    where: Stage
    records: tuple[FileRecord, ...]
    n_folds: int
    n_classes: int

    def load(self, number: int) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Class codes and folds, both -1 where nothing is known, shape (n_owned,)."""
        arrays = self.where.read_arrays(self.records[number])
        return arrays["labels"], arrays["folds"]

    def by_fold(self, number: int) -> Array:
        """1 at a node's fold and class, shape (n_owned, K, C)."""
        labels, folds = self.load(number)
        hot = np.zeros((len(labels), self.n_folds, self.n_classes), np.float32)
        known = np.flatnonzero(labels >= 0)
        hot[known, folds[known], labels[known]] = 1.0
        return hot

    def clamped(self, number: int) -> tuple[NDArray[np.bool_], Array]:
        """Whether each variant sees a node's label, and all labels as one-hot rows.

        Shapes (n_owned, K) and (n_owned, C).
        """
        labels, folds = self.load(number)
        variants = np.arange(self.n_folds)
        seen = (labels >= 0)[:, None] & (folds[:, None] != variants)
        return seen, self.by_fold(number).sum(axis=1)


@dataclass(frozen=True)
class HopStart:
    """Labels of each fold apart, and a column of ones that will count edges."""

    visible: VisibleLabels

    def __call__(self, number: int) -> Array:
        """Shape (n_owned, K C + 1)."""
        hot = self.visible.by_fold(number)
        ones = np.ones((len(hot), 1), np.float32)
        return np.concatenate([hot.reshape(len(hot), -1), ones], axis=1)


@dataclass(frozen=True)
class HopStep:
    """Counts of labels one hop further away."""

    def __call__(self, number: int, turn: int, values: Array, sums: Array) -> Array:
        """The sums as they are."""
        return sums


@dataclass(frozen=True)
class VoteStart:
    """wvRN before the first round: visible labels, the prior elsewhere."""

    visible: VisibleLabels
    prior: tuple[float, ...]

    def __call__(self, number: int) -> Array:
        """Shape (n_owned, K C)."""
        seen, hot = self.visible.clamped(number)
        prior = np.array(self.prior, np.float32)
        found = np.where(seen[:, :, None], hot[:, None, :], prior)
        return found.reshape(len(hot), -1)


@dataclass(frozen=True)
class VoteStep:
    """A round of wvRN: weighted mean of the in-neighbours, visible labels clamped.

    A node without in-neighbours, or with edges of weight 0 alone, stays where it is.

    References
    ----------
    Macskassy & Provost, "A simple relational classifier", MRDM 2003.
    """

    visible: VisibleLabels

    def __call__(self, number: int, turn: int, values: Array, sums: Array) -> Array:
        """Shape (n_owned, K C)."""
        seen, hot = self.visible.clamped(number)
        shape = (len(hot), self.visible.n_folds, self.visible.n_classes)
        votes = sums.reshape(shape)
        total = votes.sum(axis=2, keepdims=True)
        mean = np.divide(
            votes, total, out=values.reshape(shape).copy(), where=total > 0
        )
        found = np.where(seen[:, :, None], hot[:, None, :], mean)
        return found.reshape(len(hot), -1).astype(np.float32)


def feature_count(n_classes: int, means: int) -> int:
    """Label features: shares and a count for each hop, votes and means, the degree."""
    return HOPS * n_classes + means * (n_classes - 1) + 1


def label_features(
    hops: Sequence[Array],
    means: Sequence[Array],
    prior: NDArray[np.float64],
    n_folds: int,
    smoothing: float,
) -> Array:
    """Label features of rows, in every variant.

    For each hop the share of each class but the first among the labels that the walks
    of that length reach, drawn to the prior by `smoothing` labels' worth of it, and
    log(1 + labels reached); wvRN's probability of each class but the first, and the
    neighbours' mean probability; log(1 + degree).

    Parameters
    ----------
    hops
        Rows of `HopStep` after rounds 1 and 2, shape (n, K C + 1) each.
    means
        Rows of `VoteStep` and of `neighbours.PosteriorStep` after the rounds wanted,
        shape (n, K C) each.
    prior
        Class proportions of the labels, shape (C,).
    n_folds
        K.
    smoothing
        Labels' worth of the prior in a share, above 0: where no label is reached the
        share is the prior.

    Returns
    -------
    NDArray
        float32, shape (n, K, F), F as `feature_count` says.
    """
    rows, classes = len(hops[0]), len(prior)
    width = feature_count(classes, len(means))
    found = np.empty((rows, n_folds, width), np.float32)
    # In blocks: float64 on the way, of all rows at once, would be several times this.
    for start in range(0, rows, BLOCK):
        block = slice(start, start + BLOCK)
        found[block] = _features_of_rows(
            [values[block] for values in hops],
            [values[block] for values in means],
            prior,
            n_folds,
            smoothing,
        )
    return found


def _features_of_rows(
    hops: Sequence[Array],
    means: Sequence[Array],
    prior: NDArray[np.float64],
    n_folds: int,
    smoothing: float,
) -> NDArray[np.float64]:
    rows, classes = len(hops[0]), len(prior)
    columns = []
    for values in hops:
        apart = values[:, :-1].reshape(rows, n_folds, classes).astype(np.float64)
        # Added up fold by fold, never "all less one": a rounding residue of one's own
        # label would be a leak that trees can find.
        kept = np.stack(
            [
                sum_of(apart, [other for other in range(n_folds) if other != fold])
                for fold in range(n_folds)
            ],
            axis=1,
        )
        reached = kept.sum(axis=2, keepdims=True)
        share = (kept + smoothing * prior) / (reached + smoothing)
        columns += [share[:, :, 1:], np.log1p(reached)]
    for values in means:
        columns.append(values.reshape(rows, n_folds, classes)[:, :, 1:])
    degree = np.log1p(hops[0][:, -1].astype(np.float64))
    columns.append(np.repeat(degree[:, None, None], n_folds, axis=1))
    return np.concatenate(columns, axis=2)


def sum_of(apart: NDArray[np.float64], folds: Sequence[int]) -> NDArray[np.float64]:
    """Sum of some folds' counts in their order, from (n, K, C) to (n, C)."""
    total = np.zeros((apart.shape[0], apart.shape[2]))
    for fold in folds:
        total += apart[:, fold]
    return total
