"""Dask under the readouts: folds as tasks that run side by side, progress.

What comes back to the client is counts and figures; rows and models stay on the
workers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from xnq_dist.cluster import workers
from xnq_dist.config import Settings
from xnq_dist.errors import DoesNotFitError
from xnq_dist.progress import Progress
from xnq_dist.readout import row_blocks
from xnq_dist.readout.fit import FoldFit, FoldPlan, climb, fit_fold
from xnq_dist.readout.rows import Labelled, Part, count_used
from xnq_dist.sizes import parse_bytes
from xnq_dist.waiting import (
    Heartbeats,
    gather,
    raise_failure,
    result,
    wait_all,
    wait_some,
)

if TYPE_CHECKING:
    from distributed import Client, Future

    _Future = Future[Any]

__all__ = [
    "cross_fit",
    "folds_at_once",
    "in_window",
    "thread_count",
    "watch",
]

VALUE_BYTES = 8
"""The readout is fitted in float64."""


def folds_at_once(
    client: Client, parts: Sequence[Part], dim: int, settings: Settings
) -> int:
    """Folds that the memory set for the readout lets run beside each other.

    0 when the labelled rows must be taken group by group, from files.

    Raises
    ------
    DoesNotFitError
        When even one group of them needs more.
    """
    there = parse_bytes(settings.readout.memory)
    counts = client.map(count_used, parts, pure=False)
    labelled: int = sum(gather(client, counts))
    need = max(1, labelled * dim * VALUE_BYTES)
    if need > there:
        group = row_blocks.GROUP_ROWS
        if labelled > group and group * dim * VALUE_BYTES <= there:
            return 0
        labelled = min(labelled, group)
        need = labelled * dim * VALUE_BYTES
        raise DoesNotFitError(
            f"the embeddings of {labelled:,} labelled nodes (d' = {dim}) need "
            f"{need / 2**30:.3g} GiB but readout.memory is {there / 2**30:.3g} "
            f"GiB: set readout.memory to {-(-need // 2**20)}MiB or more, or lower "
            "reservoir.dim"
        )
    return int(there // need)


def cross_fit(
    client: Client,
    rows: _Future,
    plan: _Future,
    n_classes: int,
    grid: Sequence[float],
    at_once: int,
    progress: Progress,
) -> tuple[list[_Future], int, list[float]]:
    """All folds at the best C, left on the workers; its place, the losses.

    Parameters
    ----------
    rows, plan
        A `Labelled` and a `FoldPlan` on the workers.
    grid
        Ascending values of C.
    at_once
        Folds that may run beside each other.
    """
    count = result(client, client.submit(_fold_count, plan, pure=False))
    if not count:
        return [], 0, []
    tried: list[list[_Future]] = []

    def fit_all(C: float) -> list[float]:
        before = tried[-1] if tried else [None] * count

        def submit(fold: int) -> _Future:
            return client.submit(
                _fold, rows, plan, n_classes, C, fold, before[fold], pure=False
            )

        def tell(what: str, done: int, total: int) -> None:
            progress(what, len(tried) * count + done, len(grid) * count)

        tried.append(in_window(client, submit, count, at_once, "folds", tell))
        return gather(client, client.map(_loss, tried[-1], pure=False))

    best, losses = climb(grid, fit_all)
    progress("folds", len(grid) * count, len(grid) * count)
    return tried[best], best, losses


def _fold_count(plan: FoldPlan) -> int:
    return plan.count


def _fold(
    rows: Labelled,
    plan: FoldPlan,
    n_classes: int,
    C: float,
    fold: int,
    before: FoldFit | None,
) -> FoldFit:
    return fit_fold(rows.x, rows.labels, plan, n_classes, C, fold, before)


def _loss(fitted: FoldFit) -> float:
    return fitted.loss


def in_window(
    client: Client,
    submit: Callable[[int], _Future],
    count: int,
    size: int,
    what: str,
    progress: Progress,
) -> list[_Future]:
    """Futures of ``submit(0..count-1)``, all done, no more than `size` at a time."""
    look = Heartbeats(client).look
    futures: list[_Future] = []
    left: list[_Future] = []
    while left or len(futures) < count:
        while len(futures) < count and len(left) < size:
            futures.append(submit(len(futures)))
            left.append(futures[-1])
        done, left = wait_some(left, look)
        for future in done:
            raise_failure(future)
        progress(what, len(futures) - len(left), count)
    return futures


def watch(
    client: Client, futures: Sequence[_Future], what: str, progress: Progress
) -> None:
    """Wait for futures; the first failure is raised."""
    wait_all(client, futures, partial(progress, what))


def thread_count(client: Client) -> int:
    """Threads of all workers, at least 1."""
    return max(1, sum(workers(client).values()))
