"""What is hidden from whom: one fold of the nodes, or two.

Every node, labelled or not, is in one of K folds that never look at classes. A variant
is a set of folds whose labels count nowhere. A node of fold k is scored by models and
label features of the variant {k}; a labelled node of fold j that the models of fold k
are fitted to is described by the variant {j, k}. So nothing of a score was made with
the node's own label, and labelled and unlabelled nodes of a fold are scored alike.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np

from xnq_dist.core.arrays import Bools, Floats, Ints, Ints32
from xnq_dist.core.random_bits import Purpose, mixed_bits, stream_key

__all__ = ["Variants", "class_priors", "node_folds"]

PSEUDO = 0.5
"""Labels' worth of every class in any share: none is impossible."""


@dataclass(frozen=True)
class Variants:
    """The sets of hidden folds: each fold alone, then each pair."""

    folds: int

    @property
    def hidden(self) -> tuple[tuple[int, ...], ...]:
        """Folds that each variant hides."""
        every = range(self.folds)
        return (*((fold,) for fold in every), *combinations(every, 2))

    def __len__(self) -> int:
        return self.folds * (self.folds + 1) // 2

    def visible(self) -> Bools:
        """Whether a variant sees a fold, shape (V, K)."""
        seen = np.ones((len(self), self.folds), np.bool_)
        for place, folds in enumerate(self.hidden):
            seen[place, list(folds)] = False
        return seen

    def places(self) -> Ints:
        """The variant that hides two folds, a fold alone on the diagonal, (K, K)."""
        found = np.empty((self.folds, self.folds), np.int64)
        for place, folds in enumerate(self.hidden):
            found[folds[0], folds[-1]] = found[folds[-1], folds[0]] = place
        return found


def node_folds(index: Ints, folds: int, seed: int) -> Ints32:
    """Fold of each node by its canonical index alone, shape (n,)."""
    bits = mixed_bits(index, stream_key(seed, Purpose.NODE_FOLDS))
    return ((bits >> np.uint64(32)) * np.uint64(folds) >> np.uint64(32)).astype(
        np.int32
    )


def class_priors(
    labels: Ints32,
    folds: Ints32,
    n_classes: int,
    variants: Variants,
    weights: Floats | None = None,
) -> Floats:
    """Class shares among the labels that each variant sees, smoothed, shape (V, C)."""
    counts = np.zeros((variants.folds, n_classes))
    np.add.at(counts, (folds, labels), 1.0 if weights is None else weights)
    seen = variants.visible().astype(np.float64) @ counts + PSEUDO
    return np.asarray(seen / seen.sum(axis=1, keepdims=True), np.float64)
