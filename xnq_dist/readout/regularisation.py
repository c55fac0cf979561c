"""The choice of C by the log-loss of held-out rows, and the search over a grid."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass

from xnq_dist.readout.logistic import FitJob, LinearModel, LogisticFit

__all__ = ["ChosenC", "Fitter", "Search", "climb", "cross_fit", "search_from_middle"]

Fitter = Callable[[Sequence[FitJob]], Sequence[LogisticFit]]
"""Runs fit jobs, here or on workers, and returns their fits in order."""
Search = Generator[int, float, int]
"""Yields places of a grid to try, is sent the log-loss at each, returns the best."""

PATIENCE = 2
"""Steps without a new minimum after which `climb` stops."""
PULL = 0.5
"""Penalty on the log-loss of all rows, for each step from the middle of a grid."""


@dataclass(frozen=True, eq=False)
class ChosenC:
    """Fits of every fold with the C of the lowest loss."""

    place: int
    """Place of C in the grid."""
    losses: dict[int, float]
    """Held-out log-loss of all rows for each place, in the order of the search."""
    fits: Sequence[LogisticFit]
    """One for each fold; empty when C is set and no fold is needed."""


def cross_fit(
    grids: Sequence[Sequence[float]],
    folds: int,
    search: Callable[[int], Search],
    fit_all: Fitter,
) -> list[ChosenC]:
    """Choose C for every block of columns; return the fits of all folds with it.

    Grids are ascending, one for each block; without folds nothing is fitted. `search`
    yields the places of a grid to try, `fit_all` runs the fits of all blocks for one
    step of their searches together.
    """
    if not folds:
        return [ChosenC(0, {}, ()) for _ in grids]
    searches = [search(len(grid)) for grid in grids]
    pending = {block: next(each) for block, each in enumerate(searches)}
    tried: list[dict[int, Sequence[LogisticFit]]] = [{} for _ in grids]
    losses: list[dict[int, float]] = [{} for _ in grids]
    best: dict[int, int] = {}
    while pending:
        jobs = []
        for block, place in pending.items():
            near = min(tried[block], key=lambda at: abs(at - place), default=None)
            starts: list[LinearModel | None] = [None] * folds
            if near is not None:
                starts = [fit.model for fit in tried[block][near]]
            C = grids[block][place]
            jobs += [FitJob((k,), C, start, block) for k, start in enumerate(starts)]
        fits = fit_all(jobs)
        for number, (block, place) in enumerate(list(pending.items())):
            of_block = fits[number * folds : (number + 1) * folds]
            tried[block][place] = of_block
            losses[block][place] = sum(fit.loss for fit in of_block)
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
    """Search up a grid until there is no new minimum for `PATIENCE` steps."""
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
    """Search down from the middle while the loss falls, or up if it never does.

    Fits of a small C take the fewest steps. `PULL` is added to the loss for each step
    from the middle.
    """
    middle = (count - 1) // 2
    losses = {middle: (yield middle)}
    for step in (-1, 1):
        place = middle + step
        while 0 <= place < count:
            losses[place] = (yield place) + PULL * abs(place - middle)
            if losses[place] > min(losses.values()):
                break
            place += step
        if min(losses, key=losses.__getitem__) != middle:
            break
    return min(losses, key=losses.__getitem__)
