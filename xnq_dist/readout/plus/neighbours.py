"""Labels and mean posteriors of a node's neighbours, for the label features of xnq+.

Both are sums over the in-neighbours, computed together by halo exchange; this module
has the functions of arrays. There are posteriors for every variant: those of its
first-stage models, replaced by labels where these are visible. That of the first class
follows from the others and is left out. Several cross-fits have columns next to each
other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xnq_dist.core.arrays import Floats, Floats32
from xnq_dist.core.store import Attempt, FileRecord
from xnq_dist.readout.plus.first_stage import FirstStage
from xnq_dist.readout.plus.label_features import HopStart, VisibleLabels
from xnq_dist.readout.rows import Part

__all__ = ["AroundStart", "AroundStep", "FirstFit"]

BLOCK = 1 << 15
"""Rows whose means are computed at a time."""


@dataclass(frozen=True, eq=False)
class FirstFit:
    """First-stage models of every variant, and the labels that they were fitted to."""

    visible: VisibleLabels
    models: FileRecord
    """The arrays of `FirstStage`, in the folder of the labels."""
    priors: Floats
    """Class shares of the labels visible to each variant, shape (V, C)."""
    attempt: Attempt
    """Where its files are written."""

    @property
    def width(self) -> int:
        """Columns of the label counts, of posteriors, and of ones."""
        others = self.priors[:, 1:].size
        return self._counts + others + 1

    @property
    def _counts(self) -> int:
        return self.visible.n_folds * self.visible.n_classes + 1

    def columns(
        self, rounds: Sequence[Floats32]
    ) -> tuple[list[Floats32], list[Floats32]]:
        """Label counts, and posteriors with ones, of each round."""
        at = self._counts
        return [x[:, :at] for x in rounds], [x[:, at:] for x in rounds]


@dataclass(frozen=True, eq=False)
class AroundStart:
    """Label indicators, and a label where it is visible, else the mean posterior."""

    fits: tuple[FirstFit, ...]
    parts: tuple[Part, ...]

    def __call__(self, number: int) -> Floats32:
        """Return one partition's values, shape (n_owned, columns of all fits)."""
        part = self.parts[number]
        models = [
            FirstStage.from_arrays(fit.visible.where.read_arrays(fit.models))
            for fit in self.fits
        ]
        ids = part.read_nodes()["node_id"]
        out = np.empty((len(ids), sum(fit.width for fit in self.fits)), np.float32)
        hops, columns = zip(*_columns(self.fits, out), strict=True)
        for fit, counts in zip(self.fits, hops, strict=True):
            counts[:] = HopStart(fit.visible)(number)

        def score(rows: slice, x: NDArray[Any]) -> None:
            for first, values in zip(models, columns, strict=True):
                means = np.exp(first.scores(x)[..., 1:]).mean(axis=2)
                values[rows, :-1] = means.reshape(len(x), -1)
                values[rows, -1] = 1.0

        for _ in part.over_states(ids, score):
            pass
        for fit, values in zip(self.fits, columns, strict=True):
            labels, folds = fit.visible.load(number)
            known = np.flatnonzero(labels >= 0)
            seen = fit.visible.variants.visible()[:, folds[known]].T[:, :, None]
            hot = np.eye(fit.visible.n_classes, dtype=np.float32)[labels[known], None]
            by_variant = _by_variant(fit, values)
            by_variant[known] = np.where(seen, hot[..., 1:], by_variant[known])
        return out


def _columns(
    fits: Sequence[FirstFit], values: Floats32
) -> list[tuple[Floats32, Floats32]]:
    """Views of the label counts, and of posteriors with ones, of each fit."""
    each = zip(fits, np.hsplit(values, len(fits)), strict=True)
    pairs = [fit.columns([of_fit]) for fit, of_fit in each]
    return [(hops, posteriors) for (hops,), (posteriors,) in pairs]


def _by_variant(fit: FirstFit, values: Floats32) -> Floats32:
    """View of posteriors by variant, shape (n, V, C - 1)."""
    variants, classes = fit.priors.shape
    return values[:, :-1].reshape(len(values), variants, classes - 1)


@dataclass(frozen=True, eq=False)
class AroundStep:
    """Label counts one hop further away, and means of the neighbours' posteriors.

    Means are weighted, with one pseudo-neighbour at the prior.
    """

    fits: tuple[FirstFit, ...]

    def __call__(
        self, number: int, turn: int, values: Floats32, sums: Floats32
    ) -> Floats32:
        """Return the values after one round, in place of the sums."""
        pairs = _columns(self.fits, sums)
        for fit, (_, posteriors) in zip(self.fits, pairs, strict=True):
            for first in range(0, len(sums), BLOCK):
                block = posteriors[first : first + BLOCK]
                total = _by_variant(fit, block)
                total += fit.priors[:, 1:].astype(np.float32)
                total /= block[:, -1:, None] + 1
                block[:, -1] = 1.0
        return sums
