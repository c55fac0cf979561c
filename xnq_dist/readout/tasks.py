"""Dask under the readouts: folds as tasks beside each other, waiting, lost workers.

The only module of this subpackage that touches Dask. What comes back to the client is
counts and figures; rows and models stay on the workers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from xnq_dist.cluster import workers
from xnq_dist.config import Settings
from xnq_dist.errors import DoesNotFitError
from xnq_dist.progress import Progress
from xnq_dist.readout import row_blocks
from xnq_dist.readout.fit import FoldFit, FoldPlan, climb, fit_fold
from xnq_dist.readout.rows import Labelled, Part, count_used
from xnq_dist.sizes import parse_bytes

if TYPE_CHECKING:
    from distributed import Client, Future

    _Future = Future[Any]

__all__ = [
    "cross_fit",
    "folds_at_once",
    "gathered",
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
    labelled: int = sum(gathered(client, counts))
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
    count = client.submit(_fold_count, plan, pure=False).result()
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

        tried.append(_in_window(submit, count, at_once, tell))
        return gathered(client, client.map(_loss, tried[-1], pure=False))

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


def _in_window(
    submit: Callable[[int], _Future], count: int, size: int, progress: Progress
) -> list[_Future]:
    """Futures of ``submit(0..count-1)``, all done, no more than `size` at a time."""
    from distributed import as_completed

    futures = [submit(number) for number in range(min(size, count))]
    running = as_completed(futures)
    for done, future in enumerate(running, start=1):
        _raise_failed(future)
        progress("folds", done, count)
        if len(futures) < count:
            futures.append(submit(len(futures)))
            running.add(futures[-1])
    return futures


def watch(futures: Sequence[_Future], what: str, progress: Progress) -> None:
    """Wait for futures; the first failure is raised."""
    from distributed import as_completed

    running = as_completed(futures)
    for done, future in enumerate(running, start=1):
        _raise_failed(future)
        progress(what, done, len(futures))


def thread_count(client: Client) -> int:
    """Threads of all workers, at least 1."""
    return max(1, sum(workers(client).values()))


def gathered(client: Client, futures: Sequence[_Future]) -> list[Any]:
    """The results, in order."""
    return list(client.gather(futures))


def _raise_failed(future: _Future) -> None:
    # The result itself stays where it is.
    if future.status in ("error", "cancelled"):
        future.result()
