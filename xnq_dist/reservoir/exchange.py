"""Halo exchange on Dask: one object on each worker, one task for several supersteps.

Each worker keeps its partitions in an object that never leaves it, and workers send
blocks to each other without Dask's scheduler (`wire`). Only small results reach the
client. If a worker is lost or does not answer, `WorkersLost` is raised, and
`on_workers` starts again from the last checkpoint with the remaining workers.
"""

from __future__ import annotations

import logging
import math
import time
import uuid
from collections.abc import Callable, Collection, Sequence
from contextlib import closing
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar

from xnq_dist.core.arrays import Floats32
from xnq_dist.core.errors import DoesNotFitError
from xnq_dist.core.store import Manifest
from xnq_dist.core.waiting import (
    TIMEOUT,
    Heartbeats,
    raise_failure,
    wait_some,
    watched,
)
from xnq_dist.reservoir.context import place
from xnq_dist.reservoir.mailbox import WorkersLost
from xnq_dist.reservoir.wire import Receiver
from xnq_dist.reservoir.worker import Share, Work, WorkerState

if TYPE_CHECKING:
    from distributed import Client, Future

__all__ = ["Exchange", "on_workers"]

log = logging.getLogger(__name__)

R = TypeVar("R")

MAX_LOSSES = 3
"""Maximum number of times that workers are lost without a checkpoint in between."""


def on_workers(
    client: Client,
    graph: Manifest,
    use: Callable[[Exchange], R],
    reached: Callable[[], int] = lambda: 0,
) -> R:
    """The result of ``use(exchange)``, which is called again when workers are lost.

    Parameters
    ----------
    use
        Does the work; suspected workers have no part in it, if there are others.
    reached
        The superstep after which `use` starts.

    Raises
    ------
    DoesNotFitError
        When workers are lost repeatedly without a later start in between.
    """
    losses, before = 0, -1
    suspects: frozenset[str] = frozenset()
    while True:
        try:
            with closing(Exchange(client, graph, suspects)) as made:
                return use(made)
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


class Exchange:
    """Steps on workers: one object on each of them, used by one task at a time.

    Workers in `avoid` are used only if there are no others; if there is none at all,
    one is waited for.

    Raises
    ------
    WorkersLost
        From all methods, when a worker that has an object was lost.
    """

    step = 0
    """Step after which the values are."""
    deadline = math.inf
    """Value of `time.monotonic` from which waits raise `TimeoutError`."""

    def __init__(
        self, client: Client, graph: Manifest, avoid: Collection[str] = ()
    ) -> None:
        self._client = client
        self._graph = graph
        self._beats = Heartbeats(client)
        self._threads = self._beats.wait_for_one()
        trusted = [worker for worker in self._threads if worker not in avoid]
        edges = graph.facts["edges"]
        self.placement = place(edges, trusted or list(self._threads))
        """Worker of each partition."""
        self._objects: dict[str, Future[Any]] = {}
        self._underway: tuple[int, list[Future[Any]]] = 0, []

    def begin(self, step: int, make: Callable[..., Work], *args: Any) -> None:
        """Make the object of each worker, whose work, after `step`, `make` makes."""
        watched(lambda: self._client.register_plugin(Receiver()), self._check_workers)
        shared = uuid.uuid4().hex, self._graph, self.placement
        for worker in sorted(set(self.placement)):
            share = Share(*shared, worker, self._threads[worker], TIMEOUT.get())
            self._objects[worker] = self._submit(
                worker, WorkerState, share, make, *args
            )
        # All workers must be able to receive before any of them sends.
        self._wait(list(self._objects.values()))
        self.step = step

    def close(self) -> None:
        """Release everything on the workers."""
        # Release futures explicitly: a traceback may still hold references to them.
        # Running tasks detect by themselves that their futures were released.
        for future in (*self._underway[1], *self._objects.values()):
            future.release()

    def advance(self, count: int) -> None:
        """Run `count` steps."""
        self._underway = count, self._start(WorkerState.advance, self.step, count)
        self.complete()

    def complete(self) -> None:
        """Wait for the steps that an interrupted call of `advance` has begun."""
        count, futures = self._underway
        self._wait(futures)
        self.step, self._underway = self.step + count, (0, [])

    def apply(self, function: Callable[[int, Floats32], R]) -> list[R]:
        """Results of a function of each partition's values, called on its worker."""
        futures = self._start(WorkerState.apply, function)
        try:
            self._wait(futures)
            found = watched(lambda: self._client.gather(futures), self._check_workers)
        finally:
            # Running tasks detect by themselves that their futures were released.
            for future in futures:
                future.release()
        return [result for _, result in sorted(chain(*found))]

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

    def _wait(self, futures: Sequence[Future[Any]]) -> None:
        """Wait for all futures; raise the first failure."""
        from distributed.scheduler import KilledWorker

        left = list(futures)
        while left:
            done, left = wait_some(left, self._check_workers)
            for future in done:
                try:
                    raise_failure(future)
                except KilledWorker as error:
                    raise WorkersLost(f"a task ended: {error}") from error
        self._check_workers()

    def _check_workers(self) -> None:
        if time.monotonic() > self.deadline:
            raise TimeoutError("the time for it is over")
        if lost := set(self.placement) - self._beats.look().keys():
            raise WorkersLost(f"lost {', '.join(sorted(lost))}", lost)
