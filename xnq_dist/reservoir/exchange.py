"""Halo exchange on Dask: one object on each worker, one task for several supersteps.

Each worker keeps its partitions in an object that never leaves it, and workers send
blocks to each other without Dask's scheduler (`wire`). Only small results reach the
client. If a worker is lost or does not answer, `WorkersLost` is raised, and
`again_if_lost` starts again from the last checkpoint with the remaining workers.
"""

from __future__ import annotations

import logging
import math
import time
import uuid
from collections.abc import Callable, Collection, Sequence
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar

from xnq_dist.core.arrays import Floats32
from xnq_dist.core.errors import DoesNotFitError
from xnq_dist.core.store import Manifest, Stage
from xnq_dist.core.waiting import POLL, Heartbeats, raise_failure, wait_some, watched
from xnq_dist.reservoir.context import ReservoirSpec, place
from xnq_dist.reservoir.mailbox import Abandoned, PeerLost
from xnq_dist.reservoir.wire import Receiver
from xnq_dist.reservoir.worker_state import (
    Share,
    WorkerState,
    advance_worker,
    apply_on_worker,
)

if TYPE_CHECKING:
    from distributed import Client, Future

__all__ = ["Exchange", "OnWorkers", "WorkersLost", "again_if_lost"]

log = logging.getLogger(__name__)

R = TypeVar("R")

MAX_LOSSES = 3
"""Maximum number of times that workers are lost without a checkpoint in between."""


class WorkersLost(Exception):  # noqa: N818 - an event, which the driver handles
    """A worker that held states was lost, or does not answer."""

    def __init__(self, message: str, suspects: Collection[str] = ()) -> None:
        super().__init__(message)
        self.suspects = frozenset(suspects)
        """Workers to avoid, although the scheduler may still list them."""


def again_if_lost(
    beats: Heartbeats,
    once: Callable[[frozenset[str]], R],
    reached: Callable[[], int] = lambda: 0,
) -> R:
    """The result of ``once(suspects)``, which is called again when workers are lost.

    Parameters
    ----------
    beats
        Detects that a worker is alive.
    once
        Does the work without the suspected workers, if there are others.
    reached
        The superstep after which `once` starts.

    Raises
    ------
    DoesNotFitError
        When workers are lost repeatedly without a later start in between.
    """
    losses, before = 0, -1
    suspects: frozenset[str] = frozenset()
    while True:
        try:
            while not beats.look():  # until a worker is alive; raises at timeout
                time.sleep(POLL)
            return once(suspects)
        except WorkersLost as event:
            suspects |= event.suspects
            step = reached()
            losses = losses + 1 if step <= before else 1
            before = step
            if losses > MAX_LOSSES:
                raise DoesNotFitError(
                    f"workers were lost {losses} times after superstep {step} "
                    f"({event}), most likely for lack of memory: use more "
                    "partitions on more workers, a larger cluster.memory_limit, "
                    "or a smaller reservoir.dim"
                ) from event
            log.warning("%s: starting again after superstep %d", event, step)


class OnWorkers:
    """One object on each worker that has partitions, used by one task at a time.

    Workers in `avoid` are used only if there are no others. `beats` detects lost
    workers.

    Raises
    ------
    WorkersLost
        When no worker is left; from all methods, when one that has an object was lost.
    """

    deadline = math.inf
    """Value of `time.monotonic` from which waits raise `TimeoutError`."""

    def __init__(
        self,
        client: Client,
        graph: Stage,
        manifest: Manifest,
        beats: Heartbeats,
        avoid: Collection[str] = (),
    ) -> None:
        self._client = client
        self._graph = graph
        self._manifest = manifest
        self._beats = beats
        self._threads = beats.look()
        if not self._threads:
            raise WorkersLost("no worker is left")
        trusted = [worker for worker in self._threads if worker not in avoid]
        edges = manifest.facts["edges"]
        self.placement = place(edges, trusted or list(self._threads))
        """Worker of each partition."""
        self._objects: dict[str, Future[Any]] = {}

    def _open(self, make: Callable[..., Any], *args: Any) -> None:
        """Make the object of each worker, ``make(share, *args)``."""
        watched(lambda: self._client.register_plugin(Receiver()), self._check_workers)
        shared = uuid.uuid4().hex, self._graph, self._manifest, self.placement
        for worker in sorted(set(self.placement)):
            threads, timeout = self._threads[worker], self._beats.timeout
            share = Share(*shared, worker, threads, timeout)
            self._objects[worker] = self._submit(worker, make, share, *args)
        # All workers must be able to receive before any of them sends.
        self._wait(list(self._objects.values()))

    def close(self) -> None:
        """Release everything on the workers."""
        # Release futures explicitly: a traceback may still hold references to them.
        for made in self._objects.values():
            made.release()
        self._objects = {}

    def _everywhere(self, function: Callable[..., R], *args: Any) -> list[R]:
        """Results of a function of every worker's object, called in parallel."""
        return self._gather(self._start(function, *args))

    def _start(self, function: Callable[..., Any], *args: Any) -> list[Future[Any]]:
        return [
            self._submit(worker, function, made, *args)
            for worker, made in self._objects.items()
        ]

    def _submit(
        self, worker: str, function: Callable[..., Any], *args: Any
    ) -> Future[Any]:
        return self._client.submit(
            function, *args, workers=[worker], allow_other_workers=False, pure=False
        )

    def _gather(self, futures: list[Future[Any]]) -> list[Any]:
        """Wait for all futures and return their (small) results in order."""
        try:
            self._wait(futures)
            gathered = watched(
                lambda: self._client.gather(futures), self._check_workers
            )
            return list(gathered)
        finally:
            # Running tasks detect by themselves that their futures were released.
            for future in futures:
                future.release()

    def _wait(self, futures: Sequence[Future[Any]]) -> None:
        """Wait for all futures; raise the first failure."""
        left = list(futures)
        while left:
            done, left = wait_some(left, self._check_workers)
            for future in done:
                _check_future(future)
        self._check_workers()

    def _check_workers(self) -> None:
        if time.monotonic() > self.deadline:
            raise TimeoutError("the time for it is over")
        needed = set(self.placement)
        lost = needed - set(self._beats.look(needed))
        if lost:
            raise WorkersLost(f"lost {', '.join(sorted(lost))}", lost)


def _check_future(future: Future[Any]) -> None:
    from distributed.scheduler import KilledWorker

    try:
        raise_failure(future)
    except PeerLost as error:
        raise WorkersLost(str(error), {error.worker}) from error
    except (KilledWorker, Abandoned) as error:
        raise WorkersLost(f"a task ended: {error}") from error


class Exchange(OnWorkers):
    """Supersteps of one embedding on workers."""

    step = 1
    """Superstep after which the states are."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._underway: tuple[int, list[Future[Any]]] = 0, []
        self.rows = 0
        """Rows exchanged between workers in one superstep."""

    def begin(
        self, spec: ReservoirSpec, checkpoint: tuple[Stage, Manifest] | None
    ) -> None:
        """Load partitions and a checkpoint's states; None: start at superstep 1."""
        start = None
        self.step = 1
        if checkpoint is not None:
            self.step = int(checkpoint[1].facts["superstep"])
            start = (self.step, *checkpoint)
        self._open(WorkerState, spec, start)
        self.rows = sum(self._everywhere(attrgetter("peers.routes.rows_sent")))

    def advance(self, count: int) -> None:
        """Run `count` supersteps."""
        self._underway = count, self._start(advance_worker, self.step, count)
        self.complete()

    def complete(self) -> None:
        """Wait for the supersteps that an interrupted call of `advance` has begun."""
        count, futures = self._underway
        if not futures:
            return
        self._wait(futures)
        self.step, self._underway = self.step + count, (0, [])

    def close(self) -> None:
        """Release everything on the workers."""
        # Running tasks detect by themselves that their futures were released.
        for future in self._underway[1]:
            future.release()
        super().close()

    def apply(self, function: Callable[[int, Floats32], R]) -> list[R]:
        """Results of a function of each partition's states, called on its worker."""
        results = dict(chain(*self._everywhere(apply_on_worker, function)))
        return [results[number] for number in range(len(self.placement))]
