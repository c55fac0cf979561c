"""Halo exchange with the engine ``spmd``: one task per worker for several supersteps.

Each worker keeps its partitions in a `WorkerState` and runs several supersteps in one
task; workers send blocks to each other without Dask's scheduler (`wire`). If a worker
is lost or does not answer, the engine raises `WorkersLost`, and the driver starts again
from the last checkpoint, as with the engine ``tasks``.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from xnq_dist.core.arrays import Floats32
from xnq_dist.core.store import Manifest, Stage
from xnq_dist.core.waiting import Heartbeats, watched
from xnq_dist.reservoir.context import ReservoirSpec
from xnq_dist.reservoir.exchange import PinnedTasks
from xnq_dist.reservoir.worker_state import WorkerState, advance_worker, apply_on_worker

if TYPE_CHECKING:
    from distributed import Client, Future

__all__ = ["LongTasks", "SpmdExchange"]

R = TypeVar("R")


class LongTasks(PinnedTasks):
    """Base class of engines with one object on each worker, used by one task at a time.

    A worker that does not answer for `timeout` seconds is lost.
    """

    def __init__(
        self,
        client: Client,
        graph: Stage,
        manifest: Manifest,
        spec: Any,
        avoid: Collection[str] = (),
        beats: Heartbeats | None = None,
        timeout: float = 60.0,
    ) -> None:
        super().__init__(client, graph, manifest, spec, avoid, beats)
        self._timeout = timeout
        self._worker_states: dict[str, Future[Any]] = {}

    def _open(self, make: Callable[..., Any], *args: Any) -> None:
        """Make the object of each worker."""
        from xnq_dist.reservoir.wire import Receiver

        watched(lambda: self._client.register_plugin(Receiver()), self._check_workers)
        run = uuid.uuid4().hex
        shared = run, self._graph, self._manifest, self.placement
        self._worker_states = {
            worker: self._submit_to(
                worker,
                make,
                *(*shared, worker, self._threads[worker], self._timeout, *args),
            )
            for worker in sorted(set(self.placement))
        }
        # All workers must be able to receive before any of them sends.
        self._wait(list(self._worker_states.values()))

    def close(self) -> None:
        """Release everything on the workers."""
        # Release futures explicitly: a traceback may still hold references to them.
        for state in self._worker_states.values():
            state.release()
        self._worker_states = {}

    def _everywhere(self, function: Callable[..., R], *args: Any) -> list[R]:
        """Results of a function of every worker's object, called in parallel."""
        return self._gather(self._start(function, *args))

    def _start(self, function: Callable[..., Any], *args: Any) -> list[Future[Any]]:
        return [
            self._submit_to(worker, function, state, *args)
            for worker, state in self._worker_states.items()
        ]

    def _gather(self, futures: list[Future[Any]]) -> list[Any]:
        try:
            return self._results(futures)
        finally:
            # Running tasks detect by themselves that their futures were released.
            for future in futures:
                future.release()


class SpmdExchange(LongTasks):
    """Engine ``spmd``."""

    max_stride, stride_seconds = 64, 2.0
    """Maximum number of supersteps of one task, and its approximate duration."""

    _spec: ReservoirSpec

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._rows = 0
        self._underway: tuple[int, list[Future[Any]]] = 0, []
        self.clocks: list[dict[str, float]] = []
        """Times of each worker since `begin`; see `peers.Clock`."""

    @property
    def bytes_per_superstep(self) -> int:
        """Bytes exchanged between workers in one superstep, by the plan."""
        return (
            self._rows * self._spec.dim * np.dtype(self._spec.exchange_dtype).itemsize
        )

    def begin(self, checkpoint: tuple[Stage, Manifest] | None) -> None:
        """Load partitions and a checkpoint's states; None: start at superstep 1."""
        start = None
        self.step = 1
        if checkpoint is not None:
            self.step = int(checkpoint[1].facts["superstep"])
            start = (self.step, *checkpoint)
        self._open(WorkerState, self._spec, start)
        self._rows = sum(self._everywhere(attrgetter("peers.routes.rows_sent")))
        self.clocks = []

    def advance(self, count: int) -> None:
        """Run `count` supersteps."""
        self._underway = count, self._start(advance_worker, self.step, count)
        self.complete()

    def complete(self) -> None:
        """Wait for the supersteps that an interrupted call of `advance` has begun."""
        count, futures = self._underway
        if not futures:
            return
        spent = self._results(futures)
        self.step, self._underway = self.step + count, (0, [])
        if not self.clocks:
            self.clocks = [dict.fromkeys(clock, 0.0) for clock in spent]
        for total, clock in zip(self.clocks, spent, strict=True):
            for name, value in clock.items():
                total[name] += value

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
