"""Sizes of communities in node weights: persons, views or followers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from xnq_dist.core.arrays import Floats, Ints, Ints32

__all__ = ["WeightedSizes"]


@dataclass(frozen=True, eq=False)
class WeightedSizes:
    """Sizes of S communities in node weights instead of nodes."""

    known: Floats
    """Weight of the labelled members of each class, shape (S, C)."""
    estimated: Floats
    """Weight of the unlabelled members, shape (S,)."""
    effective: Floats
    """Kish's effective number of members, (sum u)^2 / sum u^2, shape (S,)."""

    @property
    def total(self) -> Floats:
        """Weight of all members, shape (S,)."""
        return np.asarray(self.known.sum(axis=1) + self.estimated)

    @classmethod
    def of(
        cls, weights: Floats, labels: Ints32, community: Ints, shape: tuple[int, int]
    ) -> WeightedSizes:
        """From each membership's weight, label and community; shape is (S, C)."""
        size, n_classes = shape
        free = labels < 0

        def summed(at: Ints, values: Floats, cells: int) -> Floats:
            return np.bincount(at, values, cells).astype(np.float64)

        cells = community[~free] * n_classes + labels[~free]
        known = summed(cells, weights[~free], size * n_classes).reshape(shape)
        estimated = summed(community[free], weights[free], size)
        squares = summed(community, weights * weights, size)
        total = known.sum(axis=1) + estimated
        effective = total * total / np.where(squares > 0, squares, 1.0)
        return cls(known, estimated, effective)
