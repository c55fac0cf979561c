"""Folds of the nodes, whose labels are hidden in turn from the models of xnq+.

Every node, labelled or not, is in one of K folds, assigned regardless of classes. For
each fold there are models and label features that use no label of that fold. A labelled
node is scored by those without its own fold, so its score never depends on its label.
An unlabelled node is scored by all K; where it is compared with labelled nodes, by
those without its fold alone.
"""

from __future__ import annotations

import numpy as np

from xnq_dist.core.arrays import Floats, Ints, Ints32
from xnq_dist.core.random_bits import Purpose, mixed_bits, stream_key

__all__ = ["class_priors", "node_folds"]

PSEUDO = 0.5
"""Pseudo-counts of every class in class shares, so that none is 0."""


def node_folds(index: Ints, folds: int, seed: int) -> Ints32:
    """Fold of each node, from its canonical index and the seed alone, shape (n,)."""
    bits = mixed_bits(index, stream_key(seed, Purpose.NODE_FOLDS))
    return ((bits >> np.uint64(32)) * np.uint64(folds) >> np.uint64(32)).astype(
        np.int32
    )


def class_priors(
    labels: Ints32,
    folds: Ints32,
    count: int,
    n_classes: int,
    weights: Floats | None = None,
) -> Floats:
    """Smoothed class shares among the labels outside each fold, shape (K, C)."""
    counts = np.zeros((count, n_classes))
    np.add.at(counts, (folds, labels), 1.0 if weights is None else weights)
    visible = (1.0 - np.eye(count)) @ counts + PSEUDO
    return np.asarray(visible / visible.sum(axis=1, keepdims=True), np.float64)
