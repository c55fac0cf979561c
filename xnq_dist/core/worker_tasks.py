"""Independent tasks on the workers of a Dask cluster, which share a folder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from xnq_dist.core.cluster import smallest_memory, workers
from xnq_dist.core.waiting import (
    DONE,
    Heartbeats,
    gather,
    raise_failure,
    run_on_workers,
    wait_some,
)

if TYPE_CHECKING:
    from distributed import Client, Future

__all__ = ["Tasks", "WorkerTasks", "tasks_on"]

T = TypeVar("T")
R = TypeVar("R")
SHARE = 4
"""A worker's tasks together use at most its memory over this for their buffers."""


def _silent(done: int, total: int) -> None:
    pass


class Tasks(Protocol):
    """Runs tasks, in other processes or in this one."""

    @property
    def folder(self) -> Path:
        """For files that all tasks and this process read and write."""

    @property
    def slots(self) -> int:
        """Number of tasks that run at a time."""

    @property
    def memory(self) -> int:
        """Bytes for the buffers of a task."""

    def map(
        self,
        work: Callable[[T], R],
        items: Sequence[T],
        progress: Callable[[int, int], object] = _silent,
    ) -> list[R]:
        """Results of a picklable function for each item, in order.

        A call may be repeated, so it must write to files of names of its own. If calls
        fail, the error of the first item among them is raised.
        """

    def everywhere(self, function: Callable[[], Any]) -> list[Any]:
        """Results of a call in each process, or the exceptions."""


@dataclass(frozen=True)
class WorkerTasks:
    """`Tasks` on the workers of a Dask cluster."""

    client: Client
    folder: Path
    slots: int
    memory: int

    def map(
        self,
        work: Callable[[T], R],
        items: Sequence[T],
        progress: Callable[[int, int], object] = _silent,
    ) -> list[R]:
        """Results for each item; Dask repeats the tasks of lost workers."""
        futures = [self.client.submit(work, item, pure=False) for item in items]
        look = Heartbeats(self.client).look
        left: Sequence[Future[Any]] = futures
        while left:
            _, left = wait_some(left, look)
            # Later failures wait: an error names the first fault of a table.
            for future in futures:
                if future.status not in DONE:
                    break
                raise_failure(future)
            progress(len(futures) - len(left), len(futures))
        return gather(self.client, futures)

    def everywhere(self, function: Callable[[], Any]) -> list[Any]:
        """Results of a call on each worker, or the exceptions."""
        return list(run_on_workers(self.client, function).values())


def tasks_on(client: Client, folder: Path, memory: int) -> WorkerTasks:
    """Tasks on all workers of a client.

    Parameters
    ----------
    folder
        An existing folder that all workers can access.
    memory
        Maximum bytes for the buffers of a worker's tasks.
    """
    threads = workers(client)
    share = min(memory, smallest_memory(client) // SHARE)
    each = share // max(threads.values(), default=1)
    return WorkerTasks(client, folder, max(1, sum(threads.values())), each)
