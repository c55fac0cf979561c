"""Dask under the readouts: fits as tasks that run side by side, progress.

What comes back to the client is counts, figures and models; rows stay on the workers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, groupby
from typing import TYPE_CHECKING, Any

from xnq_dist.core.cluster import workers
from xnq_dist.core.config import Settings
from xnq_dist.core.errors import DoesNotFitError
from xnq_dist.core.progress import Progress
from xnq_dist.core.sizes import parse_bytes
from xnq_dist.core.waiting import Heartbeats, gather, raise_failure, wait_all, wait_some
from xnq_dist.readout import objective
from xnq_dist.readout.logistic import FitJob, LogisticFit, fit_jobs
from xnq_dist.readout.rows import Part, count_used

if TYPE_CHECKING:
    from distributed import Client, Future

    _Future = Future[Any]

__all__ = ["TaskFits", "in_window", "rows_fit", "thread_count", "watch"]

VALUE_BYTES = 8
"""Of a labelled row's value: float32 as gathered, and in the rows put in order."""


def rows_fit(
    client: Client, parts: Sequence[Part], dim: int, settings: Settings
) -> bool:
    """Whether `readout.memory` holds the labelled rows; if not, files do.

    Where it does not even hold one group of them, `DoesNotFitError`.
    """
    there = parse_bytes(settings.readout.memory)
    counts = client.map(count_used, parts, pure=False)
    labelled: int = sum(gather(client, counts))
    need = max(1, labelled * dim * VALUE_BYTES)
    if need <= there:
        return True
    group = objective.GROUP_ROWS
    if labelled > group and group * dim * VALUE_BYTES <= there:
        return False
    labelled = min(labelled, group)
    need = labelled * dim * VALUE_BYTES
    raise DoesNotFitError(
        f"the embeddings of {labelled:,} labelled nodes (d' = {dim}) need "
        f"{need / 2**30:.3g} GiB but readout.memory is {there / 2**30:.3g} "
        f"GiB: set readout.memory to {-(-need // 2**20)}MiB or more, or lower "
        "reservoir.dim"
    )


@dataclass(frozen=True)
class TaskFits:
    """A `Fitter` whose fits are tasks, shared out among the threads of the workers."""

    client: Client
    rows: Sequence[_Future]
    """`MemoryRows` of each block of columns, on the workers."""
    what: str
    """What progress is reported of."""
    progress: Progress

    def __call__(self, jobs: Sequence[FitJob]) -> list[LogisticFit]:
        """Fits of the jobs, in order."""
        threads = thread_count(self.client)
        tasks = []
        for block, same in groupby(jobs, lambda job: job.block):
            mine = list(same)
            size = -(-len(mine) // threads)
            tasks += [
                self.client.submit(
                    fit_jobs, self.rows[block], mine[first : first + size], pure=False
                )
                for first in range(0, len(mine), size)
            ]
        watch(self.client, tasks, self.what, self.progress)
        return list(chain.from_iterable(gather(self.client, tasks)))


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
