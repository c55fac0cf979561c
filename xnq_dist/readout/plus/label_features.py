"""Label features of xnq+: labels and posteriors around a node, in every variant.

Labels are counted by fold, and a variant's counts are a sum over its visible folds: so
features of a variant cannot depend on a hidden label, neither through a self-loop nor
through a walk that returns. All features derive from sums over neighbours, computed by
halo exchange; this module has the functions of arrays.
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
    "VisibleLabels",
    "feature_count",
    "label_features",
]


HOPS = 2
"""Steps from a node within which labels are counted, and posteriors averaged."""
BLOCK = 1 << 15
"""Rows whose features are computed at a time."""


@dataclass(frozen=True)
class VisibleLabels:
    """Labels and folds of every partition's owned rows, in files."""

    where: Stage
    records: tuple[FileRecord, ...]
    n_folds: int
    n_classes: int

    @property
    def variants(self) -> Variants:
        """The variants of these folds."""
        return Variants(self.n_folds)

    def load(self, number: int) -> tuple[Ints32, Ints32]:
        """Load class codes, -1 for unlabelled or hidden, and folds, (n_owned,)."""
        arrays = self.where.read_arrays(self.records[number])
        return arrays["labels"], arrays["folds"]


@dataclass(frozen=True)
class HopStart:
    """Indicators of labels by fold and class, and a column of ones to count edges."""

    visible: VisibleLabels

    def __call__(self, number: int) -> Floats32:
        """Return one partition's indicators, shape (n_owned, K C + 1)."""
        labels, folds = self.visible.load(number)
        shape = (len(labels), self.visible.n_folds, self.visible.n_classes)
        hot = np.zeros(shape, np.float32)
        known = np.flatnonzero(labels >= 0)
        hot[known, folds[known], labels[known]] = 1.0
        ones = np.ones((len(hot), 1), np.float32)
        return np.concatenate([hot.reshape(len(hot), -1), ones], axis=1)


def feature_count(n_classes: int) -> int:
    """Number of features: shares, count, mean posteriors for each hop; the degree."""
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

    For each hop: the share of each class but the first among the labels that walks of
    that length reach, smoothed to the prior with `smoothing` pseudo-labels, and
    log(1 + labels reached), with counts divided by the share of visible folds; the
    neighbours' mean probabilities at each hop; log(1 + degree). `hops` are the columns
    of `HopStart`, and `means` those of posteriors and ones in `neighbours`, after
    rounds 1 and 2.
    """
    features = np.empty((len(chosen), feature_count(priors.shape[1])), np.float32)
    # In blocks, because float64 intermediates take several times the memory.
    for start in range(0, len(chosen), BLOCK):
        block = slice(start, start + BLOCK)
        features[block] = _features_of_rows(
            [values[block] for values in hops],
            [values[block] for values in means],
            priors,
            chosen[block],
            variants,
            smoothing,
        )
    return features


def _features_of_rows(
    hops: Sequence[Floats32],
    means: Sequence[Floats32],
    priors: Floats,
    chosen: Ints,
    variants: Variants,
    smoothing: float,
) -> Floats:
    rows, classes = len(chosen), priors.shape[1]
    visible, prior = variants.visible()[chosen], priors[chosen]
    visible_share = visible.mean(axis=1)[:, None]
    columns = []
    for values in hops:
        by_fold = values[:, :-1].reshape(rows, variants.folds, classes)
        # Visible folds are added; subtracting hidden ones from a total would leave a
        # rounding residue of the node's own label, a leak that trees can exploit.
        counts = np.zeros((rows, classes))
        for fold in range(variants.folds):
            counts += np.where(visible[:, fold, None], by_fold[:, fold], 0.0)
        counts /= visible_share
        reached = counts.sum(axis=1, keepdims=True)
        share = (counts + smoothing * prior) / (reached + smoothing)
        columns += [share[:, 1:], np.log1p(reached)]
    for values in means:
        by_variant = values[:, :-1].reshape(rows, len(variants), classes - 1)
        columns.append(by_variant[np.arange(rows), chosen])
    columns.append(np.log1p(hops[0][:, -1:].astype(np.float64)))
    return np.concatenate(columns, axis=1)
