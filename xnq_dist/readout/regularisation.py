"""The choice of C by the log-loss of held-out rows, and the search over a grid."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from xnq_dist.core.arrays import Floats
from xnq_dist.readout.logistic import (
    FitJob,
    LinearModel,
    decision,
    fit_jobs,
    row_losses,
)
from xnq_dist.readout.objective import Rows

__all__ = ["Search", "climb", "cross_fit", "held_out", "search_from_middle"]

Search = Callable[[Callable[[int], float], int], int]
"""Finds the best place of a grid, from the log-loss at a place and the grid's size."""

PATIENCE = 2
"""Steps without a new minimum after which `climb` stops."""
PULL = 0.5
"""Penalty on the log-loss of all rows, for each step from the middle of a grid."""


def cross_fit(
    rows: Sequence[Rows], grid: Sequence[float], search: Search, threads: int = 1
) -> tuple[Sequence[LinearModel], Floats]:
    """Choose C from an ascending grid by the held-out loss.

    `rows`: those for the model without each fold. Returns these models, whose
    `strength` is C, and their `held_out` logits.
    """
    tried: dict[int, Sequence[LinearModel]] = {}

    def loss(place: int) -> float:
        near = min(tried, key=lambda at: abs(at - place), default=None)
        starts = [None] * len(rows) if near is None else tried[near]
        jobs = [
            FitJob(each, (fold,), grid[place], start)
            for fold, (each, start) in enumerate(zip(rows, starts, strict=True))
        ]
        tried[place] = fit_jobs(jobs, threads)
        losses = row_losses(held_out(rows, tried[place]), rows[0].labels)
        return float(losses @ rows[0].used)

    models = tried[search(loss, len(grid))]
    return models, held_out(rows, models)


def held_out(rows: Sequence[Rows], models: Sequence[LinearModel]) -> Floats:
    """Logits of rows by the model without their fold, 0 without a fold.

    Rows are as for `cross_fit`.
    """
    logits = np.zeros((len(rows[0].labels), rows[0].n_classes))
    for fold, (each, model) in enumerate(zip(rows, models, strict=True)):
        own = each.folds == fold
        logits[own] = decision(model, each.x[own])
    return logits


def climb(loss: Callable[[int], float], count: int) -> int:
    """Search up a grid until there is no new minimum for `PATIENCE` steps."""
    losses: list[float] = []
    best = 0
    for place in range(count):
        losses.append(loss(place))
        if losses[place] < losses[best]:
            best = place
        if place - best >= PATIENCE:
            break
    return best


def search_from_middle(loss: Callable[[int], float], count: int) -> int:
    """Search down from the middle while the loss falls, or up if it never does.

    Fits of a small C take the fewest steps. `PULL` is added to the loss for each step
    from the middle.
    """
    middle = (count - 1) // 2
    losses = {middle: loss(middle)}
    for step in (-1, 1):
        place = middle + step
        while 0 <= place < count:
            losses[place] = loss(place) + PULL * abs(place - middle)
            if losses[place] > min(losses.values()):
                break
            place += step
        if min(losses, key=losses.__getitem__) != middle:
            break
    return min(losses, key=losses.__getitem__)
