"""Halo exchange with the engine ``spmd``: one task per worker for several supersteps.

Each worker keeps its partitions in a `WorkerState` and runs several supersteps in one
task; workers send blocks to each other without Dask's scheduler (`wire`). If a worker
is lost or does not answer, the engine raises `WorkersLost`, and the driver starts again
from the last checkpoint, as with the engine ``tasks``.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Collection
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from xnq_dist.core.arrays import Floats32
from xnq_dist.core.store import Manifest, Stage
from xnq_dist.core.waiting import Heartbeats
from xnq_dist.reservoir.context import ReservoirSpec
from xnq_dist.reservoir.exchange import PinnedTasks
from xnq_dist.reservoir.worker_state import WorkerState, advance_worker, apply_on_worker

if TYPE_CHECKING:
    from distributed import Client, Future

__all__ = ["LongTasks", "SpmdExchange"]

R = TypeVar("R")

MAX_STRIDE, SECONDS = 64, 2.0
"""Maximum number of supersteps of one task, and its approximate duration."""


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
        futures = [
            self._submit_to(worker, function, state, *args)
            for worker, state in self._worker_states.items()
        ]
        return self._gather(futures)

    def _gather(self, futures: list[Future[Any]]) -> list[Any]:
        try:
            return self._results(futures)
        finally:
            # Running tasks detect by themselves that their futures were released.
            for future in futures:
                future.release()


class SpmdExchange(LongTasks):
    """Engine ``spmd``."""

    _spec: ReservoirSpec

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._step = 1
        self._rows = 0
        self.stride = 4
        """Best number of supersteps for one call of `advance`."""
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
        self._step = 1
        if checkpoint is not None:
            self._step = int(checkpoint[1].facts["superstep"])
            start = (self._step, *checkpoint)
        self._open(WorkerState, self._spec, start)
        self._rows = sum(self._everywhere(attrgetter("peers.routes.rows_sent")))
        self.clocks = []

    def advance(self, count: int) -> None:
        """Run `count` supersteps."""
        began = time.perf_counter()
        spent = self._everywhere(advance_worker, self._step, count)
        self._step += count
        if not self.clocks:
            self.clocks = [dict.fromkeys(clock, 0.0) for clock in spent]
        for total, clock in zip(self.clocks, spent, strict=True):
            for name, value in clock.items():
                total[name] += value
        taken = (time.perf_counter() - began) / count
        self.stride = min(MAX_STRIDE, max(1, round(SECONDS / max(taken, 1e-6))))

    def apply(self, function: Callable[[int, Floats32], R]) -> list[R]:
        """Results of a function of each partition's states, called on its worker."""
        results = dict(chain(*self._everywhere(apply_on_worker, function)))
        return [results[number] for number in range(len(self.placement))]
