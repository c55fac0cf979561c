"""Halo exchange on Dask: the engine ``tasks``, and the base class of all engines.

With the engine ``tasks`` every superstep of a partition is one task pinned to the
worker that holds its state. It publishes one block of its boundary rows, from which
readers take the rows they need. States never leave their worker, and only small results
reach the client. Tasks are pure, so that Dask may run them again. If a worker is lost,
the engine raises `WorkersLost`, and the driver starts again from the last checkpoint
with the remaining workers.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from xnq_dist.core.arrays import Floats32, Ints
from xnq_dist.core.errors import DoesNotFitError
from xnq_dist.core.store import FileRecord, Manifest, Stage
from xnq_dist.core.waiting import POLL, Heartbeats, raise_failure, wait_some, watched
from xnq_dist.graph.layout import halo_sizes
from xnq_dist.reservoir import device
from xnq_dist.reservoir.context import (
    Context,
    ReservoirSpec,
    exchanged_bytes,
    load_context,
    place,
)
from xnq_dist.reservoir.mailbox import Abandoned, PeerLost
from xnq_dist.reservoir.superstep import first_states, gather, superstep, update

if TYPE_CHECKING:
    from distributed import Client, Future

__all__ = ["PinnedTasks", "TasksExchange", "WorkersLost", "again_if_lost"]

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


class PinnedTasks:
    """Base class of the engines: partitions on workers, and tasks pinned to them.

    Engines differ in how they advance states, not in the resulting bits. `spec` are the
    parameters of the work, of the type that the engine needs. Workers in
    `avoid` are used only if there are no others. `beats` detects lost workers; None:
    with the timeout of the client's connection.

    Raises
    ------
    WorkersLost
        When no worker is left; from `_wait`, when one that holds states was lost.
    """

    step = 1
    """Superstep after which the states are."""
    deadline = math.inf
    """Value of `time.monotonic` from which waits raise `TimeoutError`."""

    def __init__(
        self,
        client: Client,
        graph: Stage,
        manifest: Manifest,
        spec: Any,
        avoid: Collection[str] = (),
        beats: Heartbeats | None = None,
    ) -> None:
        self._client = client
        self._graph = graph
        self._manifest = manifest
        self._spec = spec
        self._beats = beats or Heartbeats(client)
        self._threads = self._beats.look()
        if not self._threads:
            raise WorkersLost("no worker is left")
        trusted = [worker for worker in self._threads if worker not in avoid]
        edges = manifest.facts["edges"]
        self.placement = place(edges, trusted or list(self._threads))

    def _submit_to(
        self, worker: str, function: Callable[..., Any], *args: Any
    ) -> Future[Any]:
        return self._client.submit(
            function, *args, workers=[worker], allow_other_workers=False, pure=False
        )

    def _inner_threads(self, number: int) -> int:
        worker = self.placement[number]
        return max(1, self._threads[worker] // self.placement.count(worker))

    def _submit(
        self, number: int, function: Callable[..., Any], *args: Any
    ) -> Future[Any]:
        return self._submit_to(self.placement[number], function, *args)

    def _wait(self, futures: Sequence[Future[Any]]) -> None:
        """Wait for all futures; raise the first failure."""
        left = list(futures)
        while left:
            done, left = wait_some(left, self._check_workers)
            for future in done:
                _check_future(future)
        self._check_workers()

    def _results(self, futures: Sequence[Future[Any]]) -> list[Any]:
        """Wait for all futures and return their (small) results in order."""
        self._wait(futures)
        return list(watched(lambda: self._client.gather(futures), self._check_workers))

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


class TasksExchange(PinnedTasks):
    """Engine ``tasks``: pinned superstep tasks."""

    max_stride = 4
    """Supersteps submitted at a time; few, to bound the scheduler's memory."""

    stride_seconds = 8.0
    """Approximate seconds of one call of `advance`: a signal waits for its end."""

    _spec: ReservoirSpec
    _contexts: Sequence[Future[Any]] = ()
    _states: Sequence[Future[Any]] = ()

    @property
    def bytes_per_superstep(self) -> int:
        """Bytes exchanged between workers in one superstep, by the plan."""
        facts = self._manifest.facts
        row_bytes = self._spec.dim * self._spec.wire_bytes
        return exchanged_bytes(
            self._halo_sizes, facts["boundary"], self.placement, row_bytes
        )

    @cached_property
    def _halo_sizes(self) -> Ints:
        return halo_sizes(self._graph, self._manifest)

    def begin(self, checkpoint: tuple[Stage, Manifest] | None) -> None:
        """Load partitions and a checkpoint's states; None: start at superstep 1."""
        parts = range(len(self.placement))
        shared, spec = (self._graph, self._manifest), self._spec
        self._contexts = [
            self._submit(p, load_context, *shared, p, spec, self._inner_threads(p))
            for p in parts
        ]
        self.step = 1
        if checkpoint is None:
            kept: list[tuple[Any, ...]] = [() for _ in parts]
        else:
            stage, manifest = checkpoint
            self.step = int(manifest.facts["superstep"])
            kept = [(stage, manifest.named(f"state-{p:05d}")[0]) for p in parts]
        self._states = [
            self._submit(p, _first_states, self._contexts[p], *kept[p]) for p in parts
        ]
        self._wait(self._states)

    def advance(self, count: int) -> None:
        """Run `count` supersteps."""
        for _ in range(count):
            self._states, self.step = self._superstep(), self.step + 1
        self.complete()

    def complete(self) -> None:
        """Wait for the supersteps that an interrupted call of `advance` has begun."""
        self._wait(self._states)

    def apply(self, function: Callable[[int, Floats32], R]) -> list[R]:
        """Results of a function of each partition's states, called on its worker."""
        futures = [
            self._submit(p, _apply, function, p, self._contexts[p], state)
            for p, state in enumerate(self._states)
        ]
        return self._results(futures)

    def close(self) -> None:
        """Release everything on the workers."""
        # Dropping futures releases their tasks, also waiting ones. A forced cancel can
        # fail in the scheduler for dependents without a future (distributed 2026.7).
        self._states = self._contexts = ()

    def _superstep(self) -> list[Future[Any]]:
        tiles, contexts, states = self._spec.tiles(), self._contexts, self._states
        parts, threads = range(len(states)), self._inner_threads
        owners = [np.flatnonzero(column).tolist() for column in self._halo_sizes.T]
        pieces: list[list[Future[Any]]] = [[] for _ in parts]
        function = _superstep if len(tiles) == 1 else _gather
        for tile in tiles:
            # A tile's blocks wait until the previous tile is gathered: at most one tile
            # of halo rows is in memory on a worker.
            after = [
                made[-1:] and self._submit(p, _done, made[-1])
                for p, made in enumerate(pieces)
            ]
            blocks = [
                self._submit(p, _publish, contexts[p], states[p], tile, after[p])
                for p in parts
            ]
            for p in parts:
                arriving = {owner: blocks[owner] for owner in owners[p]}
                # Blocks arrive once the states before are complete, and are released
                # once their rows are in local order: none waits for a superstep.
                halo = self._submit(p, _receive, contexts[p], states[p], arriving, tile)
                args = contexts[p], states[p], halo, tile, threads(p)
                pieces[p].append(self._submit(p, function, *args))
        if len(tiles) == 1:
            return [made[0] for made in pieces]
        return [
            self._submit(p, _update, contexts[p], pieces[p], threads(p)) for p in parts
        ]


def _first_states(
    context: Context, stage: Stage | None = None, record: FileRecord | None = None
) -> Any:
    """States of a checkpoint, else those of superstep 1, which needs no exchange."""
    if stage is not None and record is not None:
        return context.place(np.ascontiguousarray(stage.read_arrays(record)["states"]))
    if context.backend.on_device:
        resident = context.spec.resident
        first = device.first_states(context.backend, context.drive, resident)
    else:
        first = first_states(context.drive, context.recurrent)
    return context.rounded(first)


def _publish(context: Context, states: Floats32, columns: slice, _after: Any) -> Any:
    return context.publish(states, columns)


def _done(_piece: Any) -> bool:
    return True


def _receive(
    context: Context,
    _states: Floats32,
    blocks: Mapping[int, NDArray[np.floating]],
    columns: slice,
) -> Any:
    return context.receive(blocks, columns.stop - columns.start)


def _superstep(
    context: Context, states: Floats32, halo: Floats32, _columns: slice, threads: int
) -> Floats32:
    before = context.partition, states, lambda _columns: halo
    weights = context.drive, context.recurrent, context.spec.tiles()
    after = superstep(context.backend, *before, *weights, threads)
    return context.rounded(after)


def _gather(
    context: Context, states: Floats32, halo: Floats32, columns: slice, threads: int
) -> Floats32:
    width = columns.stop - columns.start
    out = np.empty((states.shape[0], width), dtype=np.float32)
    gather(context.backend, context.partition, states, columns, halo, out, threads)
    return out


def _update(context: Context, pieces: list[Floats32], threads: int) -> Floats32:
    gathered = np.concatenate(pieces, axis=1)
    update(context.backend, gathered, context.drive, context.recurrent, threads)
    return context.rounded(gathered)


def _apply(
    function: Callable[[int, Floats32], R], number: int, context: Context, states: Any
) -> R:
    return function(number, context.on_host(states))
