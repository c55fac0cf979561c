"""Dask tasks of the readouts: fits in parallel, and progress.

Only counts, facts and models are returned to the client; rows stay on the workers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, groupby
from typing import TYPE_CHECKING, Any

from xnq_dist.core.cluster import thread_count
from xnq_dist.core.progress import Progress
from xnq_dist.core.waiting import Heartbeats, gather, raise_failure, wait_all, wait_some
from xnq_dist.readout.logistic import FitJob, LogisticFit, fit_jobs

if TYPE_CHECKING:
    from distributed import Client, Future

    _Future = Future[Any]

__all__ = ["TaskFits", "in_window", "watch"]


@dataclass(frozen=True)
class TaskFits:
    """A `Fitter` that runs fits as tasks, divided among the threads of the workers."""

    client: Client
    rows: Sequence[_Future]
    """`Rows` of each block of columns, on the workers."""
    what: str
    """Name of the work in progress lines."""
    progress: Progress

    def __call__(self, jobs: Sequence[FitJob]) -> list[LogisticFit]:
        """Run the jobs; return their fits in order."""
        threads = thread_count(self.client)
        tasks = []
        for block, group in groupby(jobs, lambda job: job.block):
            same = list(group)
            size = -(-len(same) // threads)
            tasks += [
                self.client.submit(
                    fit_jobs, self.rows[block], same[first : first + size], pure=False
                )
                for first in range(0, len(same), size)
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
    """Run ``submit(0..count-1)``, at most `size` at a time; return the futures."""
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
    """Wait for futures and report progress; raise the first failure."""
    wait_all(client, futures, partial(progress, what))
