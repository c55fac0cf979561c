"""The choice of C by the log-loss of rows left out, and which values are tried."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass

from xnq_dist.readout.logistic import FitJob, LogisticFit

__all__ = ["ChosenC", "Fitter", "Search", "climb", "cross_fit", "search_from_middle"]

Fitter = Callable[[Sequence[FitJob]], Sequence[LogisticFit]]
"""Fits jobs and returns their fits in order, wherever the work runs."""
Search = Generator[int, float, int]
"""Places of a grid to try; is sent the log-loss at each, and returns the best."""

PATIENCE = 2
"""Steps without a new low after which `climb` stops."""
PULL = 0.5
"""Of the log-loss of all rows, for each step away from the middle of a grid."""


@dataclass(frozen=True, eq=False)
class ChosenC:
    """Fits of every fold at the C with the least loss."""

    place: int
    """Of C in the grid."""
    losses: dict[int, float]
    """Log-loss of all rows, each left out, by places tried, in their order."""
    fits: Sequence[LogisticFit]
    """One a fold; none when C is given and no fold is needed."""


def cross_fit(
    grids: Sequence[Sequence[float]],
    folds: int,
    search: Callable[[int], Search],
    fit_all: Fitter,
) -> list[ChosenC]:
    """Fit every fold of every block of columns at the C that suits the block.

    Grids ascend; without folds nothing is fitted. `search` gives the places of a grid
    to try, `fit_all` runs the fits: those of one step, of all blocks, together.
    """
    if not folds:
        return [ChosenC(0, {}, ()) for _ in grids]
    searches = [search(len(grid)) for grid in grids]
    pending = {block: next(some) for block, some in enumerate(searches)}
    tried: list[dict[int, Sequence[LogisticFit]]] = [{} for _ in grids]
    losses: list[dict[int, float]] = [{} for _ in grids]
    best: dict[int, int] = {}
    while pending:
        jobs = []
        for block, place in pending.items():
            last = next(reversed(tried[block].values()), None)
            starts = [None] * folds if last is None else [fit.model for fit in last]
            C = grids[block][place]
            jobs += [FitJob((k,), C, start, block) for k, start in enumerate(starts)]
        found = fit_all(jobs)
        for number, (block, place) in enumerate(list(pending.items())):
            mine = found[number * folds : (number + 1) * folds]
            tried[block][place] = mine
            losses[block][place] = sum(fit.loss for fit in mine)
            try:
                pending[block] = searches[block].send(losses[block][place])
            except StopIteration as ended:
                best[block] = ended.value
                del pending[block]
    return [
        ChosenC(best[block], losses[block], tried[block][best[block]])
        for block in range(len(grids))
    ]


def climb(count: int) -> Search:
    """Go up a grid until there is no new low for `PATIENCE` steps."""
    losses: list[float] = []
    best = 0
    for place in range(count):
        losses.append((yield place))
        if losses[place] < losses[best]:
            best = place
        if place - best >= PATIENCE:
            break
    return best


def search_from_middle(count: int) -> Search:
    """Go up from the middle as long as that gains, or down where it does not.

    Losses away from the middle are raised by `PULL` a step.
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
