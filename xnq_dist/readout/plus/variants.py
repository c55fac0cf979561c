"""Variants of the models of xnq+: the sets of folds that are hidden from them.

Every node, labelled or not, is in one of K folds, assigned regardless of classes. A
variant is a set of one or two folds whose labels are not used at all. A node of fold k
is scored by models and label features of the variant {k}; a labelled node of fold j
that the models of fold k are fitted to has inputs of the variant {j, k}. So a score
never depends on the node's own label. An unlabelled node is scored by all K variants;
where it is compared with labelled nodes, by that of its fold alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np

from xnq_dist.core.arrays import Bools, Floats, Ints, Ints32
from xnq_dist.core.random_bits import Purpose, mixed_bits

__all__ = ["Variants", "class_priors", "node_folds"]

PSEUDO = 0.5
"""Pseudo-counts of every class in class shares, so that none is 0."""


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
