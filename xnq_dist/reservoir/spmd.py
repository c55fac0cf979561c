"""Halo exchange between supersteps, engine ``spmd``: one task a worker for many.

Each worker keeps its partitions in a `WorkerState` and runs several supersteps in one
task; blocks go from worker to worker without Dask's scheduler (`wire`). A worker that
is gone or does not answer ends the engine with `WorkersLost`, and the driver begins
again from the last checkpoint, as with the engine ``tasks``.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Collection
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from xnq_dist.core.store import Manifest, Stage
from xnq_dist.core.waiting import Heartbeats
from xnq_dist.graph.arrays import Floats32
from xnq_dist.reservoir.context import ReservoirSpec
from xnq_dist.reservoir.exchange import PinnedTasks
from xnq_dist.reservoir.worker_state import WorkerState, advance_worker, apply_on_worker

if TYPE_CHECKING:
    from distributed import Client, Future

__all__ = ["SpmdExchange"]

R = TypeVar("R")

MOST, SECONDS = 64, 2.0
"""Supersteps of one task: at most so many, about as many as take so long."""


class SpmdExchange(PinnedTasks):
    """Engine ``spmd``; a worker that does not answer for `timeout` seconds is lost."""

    def __init__(
        self,
        client: Client,
        graph: Stage,
        manifest: Manifest,
        spec: ReservoirSpec,
        avoid: Collection[str] = (),
        beats: Heartbeats | None = None,
        timeout: float = 60.0,
    ) -> None:
        super().__init__(client, graph, manifest, spec, avoid, beats)
        self._timeout = timeout
        self._kept: dict[str, Future[Any]] = {}
        self._step = 1
        self._rows = 0
        self.stride = 4
        """Supersteps that are best run at a time."""
        self.clocks: list[dict[str, float]] = []
        """Where each worker's time went since `begin`; see `worker_state.Clock`."""

    @property
    def bytes_per_superstep(self) -> int:
        """Bytes that cross between workers in one superstep, by the plan."""
        return (
            self._rows * self._spec.dim * np.dtype(self._spec.exchange_dtype).itemsize
        )

    def begin(self, checkpoint: tuple[Stage, Manifest] | None) -> None:
        """Load the partitions, and states from a checkpoint (else superstep 1)."""
        run = uuid.uuid4().hex
        kept = None
        self._step = 1
        if checkpoint is not None:
            self._step = int(checkpoint[1].facts["superstep"])
            kept = (self._step, *checkpoint)
        self._kept = {
            worker: self._submit_to(
                worker,
                WorkerState,
                *(run, self._graph, self._manifest, self._spec, self.placement),
                *(worker, self._threads[worker], self._timeout, kept),
            )
            for worker in sorted(set(self.placement))
        }
        # Nobody sends before everybody can receive.
        self._wait(list(self._kept.values()))
        self._rows = sum(self._everywhere(attrgetter("routes.rows_sent")))
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
        self.stride = min(MOST, max(1, round(SECONDS / max(taken, 1e-6))))

    def apply(self, function: Callable[[int, Floats32], R]) -> list[R]:
        """A small result of each partition's states, computed where they are."""
        futures = [
            self._submit_to(
                worker, apply_on_worker, function, number, self._kept[worker]
            )
            for number, worker in enumerate(self.placement)
        ]
        return self._gather(futures)

    def close(self) -> None:
        """Let go of everything on the workers."""
        # Seats go with their futures; there may still be references in a traceback.
        for kept in self._kept.values():
            kept.release()
        self._kept = {}

    def _everywhere(self, function: Callable[..., R], *args: Any) -> list[R]:
        """A function of every kept, all at the same time."""
        futures = [
            self._submit_to(worker, function, kept, *args)
            for worker, kept in self._kept.items()
        ]
        return self._gather(futures)

    def _gather(self, futures: list[Future[Any]]) -> list[Any]:
        try:
            return self._results(futures)
        finally:
            # Tasks that still run see by themselves that nobody wants them any more.
            for future in futures:
                future.release()
