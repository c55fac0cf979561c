"""Independent tasks with a common folder: in this process, or on Dask workers."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from numpy.typing import NDArray

from xnq_dist.core import npy
from xnq_dist.core.cluster import smallest_memory
from xnq_dist.core.errors import StageError
from xnq_dist.core.progress import Counts, silent
from xnq_dist.core.threads import map_threads, threads_here
from xnq_dist.core.waiting import gather, run_on_workers, workers

if TYPE_CHECKING:
    from distributed import Client

__all__ = [
    "Shared",
    "Tasks",
    "WorkerTasks",
    "in_process",
    "tasks_on",
]

T = TypeVar("T")
Array = NDArray[Any]
R = TypeVar("R")
SHARE = 4
"""A worker's tasks together use at most its memory over this for their buffers."""
_READING = threading.Lock()


Shared: TypeAlias = Callable[[], T]
"""Returns a value that all tasks read and none changes; picklable for workers."""


@dataclass(frozen=True)
class Tasks:
    """Runs tasks on threads of this process; with one slot, one after the other."""

    folder: Path
    """For files that all tasks and this process read and write."""
    slots: int
    """Number of tasks that run at a time."""
    memory: int
    """Bytes for the buffers of a task."""

    def map(
        self,
        work: Callable[[T], R],
        items: Sequence[T],
        progress: Counts = silent,
    ) -> list[R]:
        """Results of a picklable function for each item, in order.

        A call may be repeated, so it must write to files of names of its own. If calls
        fail, the error of the first item among them is raised.
        """
        return map_threads(work, items, self.slots, progress)

    def everywhere(self, function: Callable[[], Any]) -> list[Any]:
        """Results of a call in each process, or the exceptions."""
        return [function()]

    @contextmanager
    def share(
        self, value: T, make: Callable[..., T], *arrays: Array
    ) -> Iterator[Shared[T]]:
        """Let tasks of this block read a value.

        Other processes make it once from its arrays: ``make(*arrays)``.
        """
        yield lambda: value


def in_process(folder: Path, memory: int) -> Tasks:
    """Tasks on one thread for each processor, with `memory` bytes for all buffers."""
    slots = threads_here()
    return Tasks(folder, slots, memory // slots)


@dataclass(frozen=True)
class WorkerTasks(Tasks):
    """Runs tasks on the workers of a Dask cluster."""

    client: Client

    def map(
        self,
        work: Callable[[T], R],
        items: Sequence[T],
        progress: Counts = silent,
    ) -> list[R]:
        """Results for each item; Dask repeats the tasks of lost workers."""
        futures = [self.client.submit(work, item, pure=False) for item in items]
        return gather(self.client, futures, progress)

    def everywhere(self, function: Callable[[], Any]) -> list[Any]:
        """Results of a call on each worker, or the exceptions."""
        return list(run_on_workers(self.client, function).values())

    @contextmanager
    def share(
        self, value: T, make: Callable[..., T], *arrays: Array
    ) -> Iterator[Shared[T]]:
        """The value in a file of the common folder, until the block ends.

        Raises
        ------
        StageError
            When the file cannot be written.
        """
        path = self.folder / f"shared-{uuid.uuid4().hex}"
        named = {str(at): each for at, each in enumerate(arrays)}
        try:
            with path.open("wb") as file:
                npy.write_arrays(file, named)
        except OSError as error:
            raise StageError(
                f"temporary files in {self.folder} cannot be written "
                f"({error.strerror or error}): set scratch to a folder with more space"
            ) from error
        try:
            yield partial(_shared, path, make)
        finally:
            path.unlink(missing_ok=True)
            self.everywhere(forget)


def _shared(path: Path, make: Callable[..., T]) -> T:
    # A second task of a process waits for the first to load the value.
    with _READING:
        found: T = _loaded(path, make)
        return found


def forget() -> None:
    """Release what tasks of this process have loaded."""
    _loaded.cache_clear()


@cache
def _loaded(path: Path, make: Callable[..., Any]) -> Any:
    with path.open("rb") as file:
        return make(*npy.read_arrays(file).values())


def tasks_on(client: Client, folder: Path, memory: int) -> WorkerTasks:
    """Tasks on all workers of a client.

    Parameters
    ----------
    folder
        An existing folder that all workers can access.
    memory
        Maximum bytes for the buffers of a worker's tasks.
    """
    threads = workers(client).values()
    share = min(memory, smallest_memory(client) // SHARE)
    each = share // max(threads, default=1)
    return WorkerTasks(folder, max(1, sum(threads)), each, client)
