"""The first stage of xnq+: one logistic regression a block of columns and variant.

Blocks (reservoir, features, spectrum) are scaled to a total variance of 1 each, so one
grid of C serves all. C is chosen by the out-of-fold loss of the single folds, with a
weak pull to the middle of the grid that decides where labels are few.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax

from xnq_dist.products import product
from xnq_dist.readout.logistic import LinearModel, decision, fit, row_losses

__all__ = ["GRID", "BlockFit", "FirstStage", "fit_hidden", "search"]

GRID = tuple(float(10.0**step) for step in range(-1, 6))
"""Values of C for rows of total variance 1."""
PULL = 0.5
"""Of the log-loss of all rows, for each step away from the middle of a grid."""


@dataclass(frozen=True, eq=False)
class BlockFit:
    """The model of one block and variant, and what it says of the hidden rows."""

    model: LinearModel
    loss: float
    """Sum of the log-losses of the hidden rows."""


@dataclass(frozen=True, eq=False)
class FirstStage:
    """Logistic readouts of every variant and block, on columns as they are."""

    blocks: tuple[int, ...]
    """Columns of each block."""
    coef: NDArray[np.float64]
    """Shape (V, C, columns)."""
    intercept: NDArray[np.float64]
    """Shape (V, B, C)."""

    @classmethod
    def of(
        cls, blocks: Sequence[int], models: Sequence[Sequence[LinearModel]]
    ) -> FirstStage:
        """Of the models of each block, one a variant."""
        coef = [np.stack([model.coef for model in block]) for block in models]
        shifts = [np.stack([model.intercept for model in block]) for block in models]
        return cls(
            tuple(blocks), np.concatenate(coef, axis=2), np.stack(shifts, axis=1)
        )

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Arrays for an npz file; `from_arrays` reads them."""
        return {
            "first_blocks": np.array(self.blocks),
            "first_coef": self.coef,
            "first_intercept": self.intercept,
        }

    @classmethod
    def from_arrays(cls, arrays: dict[str, NDArray[Any]]) -> FirstStage:
        """The stage whose `to_arrays` these are."""
        blocks = tuple(arrays["first_blocks"].tolist())
        return cls(blocks, arrays["first_coef"], arrays["first_intercept"])

    def single(self, folds: int) -> FirstStage:
        """The variants that hide a fold alone."""
        return FirstStage(self.blocks, self.coef[:folds], self.intercept[:folds])

    def scores(self, x: NDArray[Any]) -> NDArray[np.float64]:
        """Log-probabilities of rows, shape (n, V, B, C)."""
        count, classes, _ = self.coef.shape
        found = np.empty((len(x), count, len(self.blocks), classes))
        for at, columns in enumerate(columns_of(self.blocks)):
            weights = self.coef[:, :, columns].reshape(count * classes, -1)
            values = product(np.ascontiguousarray(x[:, columns]), weights.T.copy())
            logits = values.reshape(len(x), count, classes) + self.intercept[:, at]
            found[:, :, at] = log_softmax(logits, axis=2)
        return found


def columns_of(blocks: Sequence[int]) -> list[slice]:
    """The columns of each block."""
    ends = np.concatenate([[0], np.cumsum(blocks)]).tolist()
    return [slice(first, last) for first, last in pairwise(ends)]


def fit_hidden(
    x: NDArray[Any],
    labels: NDArray[np.int32],
    folds: NDArray[np.int32],
    n_classes: int,
    columns: slice,
    C: float,
    hidden: tuple[int, ...],
    before: BlockFit | None = None,
    weights: NDArray[np.float64] | None = None,
) -> BlockFit:
    """Fit one block to the rows of the folds that are not hidden: the unit of work.

    Parameters
    ----------
    x
        All columns of the labelled rows, shape (n, columns).
    labels, folds
        Class codes and folds, shape (n,).
    columns
        The block.
    C
        Inverse L2 strength, for a block of total variance 1.
    hidden
        Folds left out.
    before
        The same at another C, to start from.
    weights
        Of the labels, shape (n,); None: 1 each.
    """
    block = x[:, columns].astype(np.float64)
    # Of all rows: no class is looked at.
    size = float(np.sqrt(block.var(axis=0).sum())) or 1.0
    held = np.isin(folds, hidden)
    start = None
    if before is not None:
        start = replace(before.model, coef=before.model.coef * size)
    model = fit(
        block[~held] / size,
        labels[~held],
        n_classes,
        C,
        start,
        rough=True,
        smooth=True,
        weights=None if weights is None else weights[~held],
    )
    model = replace(model, coef=model.coef / size)
    logits = decision(model, block[held])
    losses = row_losses(logits, labels[held])
    if weights is not None:
        losses = losses * weights[held]
    return BlockFit(model, float(losses.sum()))


def search(count: int) -> Generator[int, float, int]:
    """Places of a grid to try, from the middle on; ends with the best.

    Sent the log-loss of all rows at each place. Goes up as long as that gains, and
    down where the first step up does not.
    """
    middle = (count - 1) // 2
    losses = {middle: (yield middle)}
    for step in (1, -1):
        place = middle + step
        while 0 <= place < count:
            losses[place] = (yield place) + PULL * abs(place - middle)
            if losses[place] > min(losses.values()):
                break
            place += step
        if min(losses, key=losses.__getitem__) != middle:
            break
    return min(losses, key=losses.__getitem__)
