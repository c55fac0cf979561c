"""What xnq+ says of a node by its neighbours: the mean of their posteriors.

Means over the in-neighbours, made by halo exchange; these are the pure parts of it.
Posteriors come in every variant, as labels do: those of the variant's first-stage
models, and the labels that it sees in their place.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xnq_dist.core.arrays import Floats32
from xnq_dist.core.store import FileRecord
from xnq_dist.readout.plus.first_stage import FirstStage
from xnq_dist.readout.plus.label_features import VisibleLabels
from xnq_dist.readout.rows import Part

__all__ = ["PosteriorStart", "PosteriorStep"]


@dataclass(frozen=True)
class PosteriorStart:
    """A label where a variant sees it, elsewhere the mean of its first stages."""

    visible: VisibleLabels
    parts: tuple[Part, ...]
    models: FileRecord
    """The arrays of `FirstStage`, in the folder of the labels."""

    def __call__(self, number: int) -> Floats32:
        """Shape (n_owned, V C)."""
        first = FirstStage.from_arrays(self.visible.where.read_arrays(self.models))
        labels, folds = self.visible.load(number)
        variants, classes = self.visible.variants, self.visible.n_classes
        found = np.empty((len(labels), len(variants), classes), np.float32)
        part = self.parts[number]
        for begin, x in part.states(part.read_nodes()["node_id"]):
            found[begin:][: len(x)] = np.exp(first.scores(x)).mean(axis=2)
        known = np.flatnonzero(labels >= 0)
        seen = variants.visible()[:, folds[known]].T
        hot = np.eye(classes, dtype=np.float32)[labels[known]]
        found[known] = np.where(seen[:, :, None], hot[:, None], found[known])
        return found.reshape(len(labels), -1)


@dataclass(frozen=True)
class PosteriorStep:
    """Weighted mean of the in-neighbours and of one neighbour's worth of the prior."""

    priors: tuple[tuple[float, ...], ...]
    """Of each variant, shape (V, C)."""

    def __call__(
        self, number: int, turn: int, values: Floats32, sums: Floats32
    ) -> Floats32:
        """Shape (n_owned, V C)."""
        priors: NDArray[Any] = np.array(self.priors, np.float32)
        total = sums.reshape(len(sums), *priors.shape)
        # A distribution a neighbour: their sum is the neighbours' weight.
        weight = total.sum(axis=2, keepdims=True)
        mean = (total + priors) / (weight + 1)
        flat: Floats32 = mean.reshape(len(sums), -1).astype(np.float32)
        return flat
