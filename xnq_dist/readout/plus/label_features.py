"""Label features of xnq+: what the labels around a node say, in every variant.

Labels are counted fold by fold, so a variant's counts are a sum over the folds that it
sees: features of a variant cannot depend on a label that it hides, not by a self-loop,
not by a walk that comes back. Everything is a neighbour sum, made by halo exchange;
these are the pure parts of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from xnq_dist.core.arrays import Floats, Floats32, Ints, Ints32
from xnq_dist.core.store import FileRecord, Stage
from xnq_dist.readout.plus.variants import Variants

__all__ = [
    "HOPS",
    "HopStart",
    "HopStep",
    "VisibleLabels",
    "feature_count",
    "label_features",
]


HOPS = 2
"""Steps from a node within which labels are counted, and posteriors averaged."""
BLOCK = 1 << 15
"""Rows that are described at a time."""


@dataclass(frozen=True)
class VisibleLabels:
    """Labels and folds of every partition's owned rows, in files."""

    where: Stage
    records: tuple[FileRecord, ...]
    n_folds: int
    n_classes: int

    @property
    def variants(self) -> Variants:
        """Of these folds."""
        return Variants(self.n_folds)

    def load(self, number: int) -> tuple[Ints32, Ints32]:
        """Class codes, -1 where nothing is known, and folds, shape (n_owned,)."""
        arrays = self.where.read_arrays(self.records[number])
        return arrays["labels"], arrays["folds"]


@dataclass(frozen=True)
class HopStart:
    """Labels of each fold apart, and a column of ones that will count edges."""

    visible: VisibleLabels

    def __call__(self, number: int) -> Floats32:
        """Shape (n_owned, K C + 1)."""
        labels, folds = self.visible.load(number)
        shape = (len(labels), self.visible.n_folds, self.visible.n_classes)
        hot = np.zeros(shape, np.float32)
        known = np.flatnonzero(labels >= 0)
        hot[known, folds[known], labels[known]] = 1.0
        ones = np.ones((len(hot), 1), np.float32)
        return np.concatenate([hot.reshape(len(hot), -1), ones], axis=1)


@dataclass(frozen=True)
class HopStep:
    """Counts of labels one hop further away."""

    def __call__(
        self, number: int, turn: int, values: Floats32, sums: Floats32
    ) -> Floats32:
        """The sums as they are."""
        return sums


def feature_count(n_classes: int) -> int:
    """Label features: shares, a count and mean posteriors for each hop, the degree."""
    return HOPS * (2 * (n_classes - 1) + 1) + 1


def label_features(
    hops: Sequence[Floats32],
    means: Sequence[Floats32],
    priors: Floats,
    chosen: Ints,
    variants: Variants,
    smoothing: float,
) -> Floats32:
    """Label features of rows, each in its chosen variant, shape (n, `feature_count`).

    For each hop the share of each class but the first among the labels that the walks
    of that length reach, drawn to the prior by `smoothing` labels' worth of it, and
    log(1 + labels reached), counts divided by the share of the folds that are seen; the
    neighbours' mean probability at each hop; log(1 + degree). `hops` and `means` are
    rows of `HopStart` and of `neighbours.PosteriorStep` after rounds 1 and 2.
    """
    found = np.empty((len(chosen), feature_count(priors.shape[1])), np.float32)
    # In blocks: float64 on the way, of all rows at once, would be several times this.
    for start in range(0, len(chosen), BLOCK):
        block = slice(start, start + BLOCK)
        found[block] = _features_of_rows(
            [values[block] for values in hops],
            [values[block] for values in means],
            priors,
            chosen[block],
            variants,
            smoothing,
        )
    return found


def _features_of_rows(
    hops: Sequence[Floats32],
    means: Sequence[Floats32],
    priors: Floats,
    chosen: Ints,
    variants: Variants,
    smoothing: float,
) -> Floats:
    rows, classes = len(chosen), priors.shape[1]
    seen, prior = variants.visible()[chosen], priors[chosen]
    share_seen = seen.mean(axis=1)[:, None]
    columns = []
    for values in hops:
        apart = values[:, :-1].reshape(rows, variants.folds, classes)
        # Added up fold by fold, never "all less one": a rounding residue of one's own
        # label would be a leak that trees can find.
        kept = np.zeros((rows, classes))
        for fold in range(variants.folds):
            kept += np.where(seen[:, fold, None], apart[:, fold], 0.0)
        kept /= share_seen
        reached = kept.sum(axis=1, keepdims=True)
        share = (kept + smoothing * prior) / (reached + smoothing)
        columns += [share[:, 1:], np.log1p(reached)]
    for values in means:
        own = values.reshape(rows, len(variants), classes)
        columns.append(own[np.arange(rows), chosen, 1:])
    columns.append(np.log1p(hops[0][:, -1:].astype(np.float64)))
    return np.concatenate(columns, axis=1)
