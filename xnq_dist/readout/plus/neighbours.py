"""Mean posteriors of a node's neighbours, for the label features of xnq+.

Means are over the in-neighbours, computed by halo exchange; this module has the
functions of arrays. There are posteriors for every variant: those of its first-stage
models, replaced by labels where these are visible.
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
    """A label where it is visible to a variant, else the mean of its first stages."""

    visible: VisibleLabels
    parts: tuple[Part, ...]
    models: FileRecord
    """The arrays of `FirstStage`, in the folder of the labels."""

    def __call__(self, number: int) -> Floats32:
        """Return one partition's values, shape (n_owned, V C)."""
        first = FirstStage.from_arrays(self.visible.where.read_arrays(self.models))
        labels, folds = self.visible.load(number)
        variants, classes = self.visible.variants, self.visible.n_classes
        values = np.empty((len(labels), len(variants), classes), np.float32)
        part = self.parts[number]
        for begin, x in part.states(part.read_nodes()["node_id"]):
            values[begin:][: len(x)] = np.exp(first.scores(x)).mean(axis=2)
        known = np.flatnonzero(labels >= 0)
        seen = variants.visible()[:, folds[known]].T
        hot = np.eye(classes, dtype=np.float32)[labels[known]]
        values[known] = np.where(seen[:, :, None], hot[:, None], values[known])
        return values.reshape(len(labels), -1)


@dataclass(frozen=True)
class PosteriorStep:
    """Weighted mean over the in-neighbours and one pseudo-neighbour at the prior."""

    priors: tuple[tuple[float, ...], ...]
    """Of each variant, shape (V, C)."""

    def __call__(
        self, number: int, turn: int, values: Floats32, sums: Floats32
    ) -> Floats32:
        """Return the means from the sums of one round, shape (n_owned, V C)."""
        priors: NDArray[Any] = np.array(self.priors, np.float32)
        total = sums.reshape(len(sums), *priors.shape)
        # Posteriors sum to 1, so their total is the neighbours' weight.
        weight = total.sum(axis=2, keepdims=True)
        mean = (total + priors) / (weight + 1)
        flat: Floats32 = mean.reshape(len(sums), -1).astype(np.float32)
        return flat
