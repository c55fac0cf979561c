"""The input drive ``W_in x + b`` of some nodes: stored, or computed where it is used.

With few features, computing a block of rows again in every superstep takes little
longer than reading it, and a node takes its features instead of d' values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from xnq_dist.core.arrays import Floats32
from xnq_dist.core.blocks import for_each_block
from xnq_dist.core.products import multiply, pack
from xnq_dist.reservoir.weights import Weights

__all__ = ["Drive", "FeatureDrive", "drive_width"]

FEW = 32
"""Maximum number of features from which the drive is computed, at most `SHARE` of d'.
A superstep then takes .94 to 1.14 times as long (see docs/results.md)."""
SHARE = 1 / 4


@dataclass(frozen=True)
class FeatureDrive:
    """The input drive of nodes, computed from their features a block at a time.

    The bits of a row do not depend on other rows.
    """

    features: Floats32
    """Features and a one, shape (n, F + 1), C-contiguous."""
    panels: NDArray[np.float32]
    """``[W_in, b]`` of all reservoirs, packed. A product adds in the order of columns,
    so the sum ends with b."""
    dim: int
    """d'."""

    @classmethod
    def of(cls, features: Floats32, drawn: Sequence[Weights]) -> FeatureDrive:
        """The drive of nodes with these features, shape (n, F)."""
        ones = np.ones((len(features), 1), np.float32)
        inputs = [np.column_stack([weights.inputs, weights.bias]) for weights in drawn]
        matrix = np.concatenate(inputs)
        return cls(np.hstack([features, ones]), pack(matrix.T), len(matrix))

    @property
    def shape(self) -> tuple[int, int]:
        """(n, d')."""
        return len(self.features), self.dim

    def __getitem__(self, rows: slice) -> Floats32:
        """These rows."""
        features = self.features[rows]
        out = np.empty((len(features), self.dim), np.float32)
        multiply(features, self.panels, out)
        return out

    def stored(self, threads: int = 1) -> Floats32:
        """All rows, shape (n, d')."""
        out = np.empty(self.shape, np.float32)

        def work(first: int, last: int) -> None:
            multiply(self.features[first:last], self.panels, out[first:last])

        for_each_block(len(out), threads, work)
        return out


Drive: TypeAlias = Floats32 | FeatureDrive
"""Stored, shape (n, d'), or computed."""


def drive_width(features: int, dim: int) -> int:
    """Number of values that a CPU keeps of a node's drive: d' if it is stored."""
    return features + 1 if features <= min(FEW, SHARE * dim) else dim
