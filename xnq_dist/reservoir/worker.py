"""One worker's share of a run: its partitions, their values and the exchange."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeVar

import numpy as np

from xnq_dist.core.arrays import Floats32, Ints
from xnq_dist.core.backend import Backend
from xnq_dist.core.store import Manifest
from xnq_dist.core.threads import map_threads
from xnq_dist.graph.halo import Partition
from xnq_dist.graph.layout import load_partition
from xnq_dist.reservoir.mailbox import POLL, Mailbox, WorkersLost
from xnq_dist.reservoir.routes import find_routes
from xnq_dist.reservoir.wire import Outgoing, Wire

__all__ = ["Share", "Work", "WorkerState"]

R = TypeVar("R")

PATIENCE = 2.0
"""Seconds that a task waits for blocks before it releases its thread to other tasks."""


@dataclass(frozen=True)
class Share:
    """One worker's share of a run: what its object is made from."""

    run: str
    """Unique name, the same on all workers."""
    graph: Manifest
    """Of the stage."""
    placement: Sequence[str]
    """Worker of each partition."""
    worker: str
    threads: int
    timeout: float
    """Seconds after which a worker that does not answer is lost."""


class Work(Protocol):
    """What a worker computes in each step: supersteps, or sums over neighbours."""

    first: int
    """Step after which the loaded values are."""
    last: int
    """Step whose values no neighbour reads."""
    backend: Backend
    """Memory of the exchanged values; blocks between workers go through the host."""

    def load(self, partition: Partition) -> Any:
        """The first values of a partition on the host, a row for each owned node."""

    def after(self, number: int, step: int, values: Any, halo: Any) -> Any:
        """A partition's values after a step, from those before.

        `halo`, shape (n_halo, w): the values of others that it reads; its memory is
        used again.
        """


class WorkerState:
    """Data on a worker between the tasks of one run: partitions, values, routes.

    It never leaves its worker: it is a task's result, which Dask deletes with its
    future. Values are those after `step`. ``make(share, *args)`` is the work.
    """

    def __init__(self, share: Share, make: Callable[..., Work], *args: Any) -> None:
        self.work = work = make(share, *args)
        self.step, self._share = work.first, share
        self._backend = work.backend
        partitions = {
            number: load_partition(share.graph, number)
            for number, worker in enumerate(share.placement)
            if worker == share.worker
        }
        self.values = {number: work.load(part) for number, part in partitions.items()}
        offsets = share.graph.facts["offsets"]
        self.routes = find_routes(partitions, offsets, share.placement)
        self._sends = _moved(self._backend, self.routes.sends)
        self._picks = _moved(self._backend, self.routes.picks)
        self._awaited = {
            number: self.routes.arrivals.keys() & picks.keys()
            for number, picks in self._picks.items()
        }
        """Owners on other workers of the rows that each partition reads."""
        like = next(iter(self.values.values()))
        most = max(part.n_halo for part in partitions.values())
        self._halo = self._backend.empty((most, like.shape[1]), like.dtype)
        self._mailbox = Mailbox(self.routes.arrivals, like.shape[1])
        self._wire = Wire(share.run, self._mailbox, share.timeout)
        weakref.finalize(self, self._wire.close).atexit = False

    def __reduce__(self) -> str | tuple[object, ...]:
        raise TypeError("states of a running embedding do not leave their worker")

    def __sizeof__(self) -> int:
        return sum(2 * int(values.nbytes) for values in self.values.values())

    def advance(self, step: int, count: int) -> None:
        """Run steps ``step + 1`` to ``step + count`` with all other workers.

        Raises `WorkersLost` also if the values are not those after `step`, because Dask
        has made this object again.
        """
        if self.step != step:
            raise WorkersLost(f"a worker is after superstep {self.step}, not {step}")
        if step == self.work.first:
            for number, values in self.values.items():
                self._post(step, number, values)
        for _ in range(count):
            self._advance(self.step + 1)

    def apply(self, function: Callable[[int, Floats32], R]) -> list[tuple[int, R]]:
        """Numbers of partitions and (small) results of a function of their values."""

        def one(number: int) -> tuple[int, R]:
            return number, function(number, self._backend.to_host(self.values[number]))

        return map_threads(one, list(self.values), self._share.threads)

    def _advance(self, step: int) -> None:
        """Compute the values after a step, and send what neighbours read of them."""
        self._mailbox.reach(self.step)
        # Values that are to be sent must not be overwritten before they are.
        self._wire.flush(self.step - 1)
        values: dict[int, Any] = {}
        left, arrived = dict(self._awaited), set[int]()
        while left:
            ready = [number for number, owners in left.items() if owners <= arrived]
            for number in ready:
                self._wire.check()
                given = self.values[number], self._pick(number)
                values[number] = self.work.after(number, step, *given)
                if step < self.work.last:
                    self._post(step, number, values[number])
                del left[number]
            if not ready:
                arrived = self._wait(len(arrived))
        self.values, self.step = values, step

    def _wait(self, seen: int) -> set[int]:
        """Owners whose blocks arrived, more than `seen`."""
        began = time.monotonic()
        while len(arrived := self._mailbox.owners(seen, POLL)) == seen:
            if time.monotonic() - began >= PATIENCE:
                self._wire.give_up_thread()
            missing = self.routes.arrivals.keys() - arrived
            self._wire.look(sorted({self._share.placement[owner] for owner in missing}))
        return arrived

    def _post(self, step: int, number: int, values: Any) -> None:
        """Send a partition's boundary rows, in the background."""
        for worker, rows in self._sends[number].items():
            # Refers to the values, not to self: a block must not keep the run.
            make: Callable[[], Any] = partial(values.take, rows, 0)
            if self._backend.on_device:  # only the task's thread uses the device
                make = partial(np.asarray, self._backend.to_host(values[rows]))
            self._wire.send(Outgoing(worker, step, number, make))

    def _pick(self, number: int) -> Any:
        """The values of a partition's halo rows in local order, (n_halo, w)."""
        at = 0
        for owner, places in self._picks[number].items():
            here = owner in self.values
            rows = self.values[owner] if here else self._mailbox.read(owner)
            part = self._halo[at : at + len(places)]
            if self._backend.on_device:
                self._backend.to_device(rows).take(places, 0, part)
            else:  # places are in range; "clip" avoids the copy of "raise"
                np.take(rows, places, 0, part, "clip")
            at += len(places)
        return self._halo[:at]


def _moved(
    backend: Backend, lists: Mapping[int, Mapping[Any, Ints]]
) -> dict[int, dict[Any, Any]]:
    """Lists of rows in the backend's memory."""
    return {
        number: {key: backend.to_device(rows) for key, rows in each.items()}
        for number, each in lists.items()
    }
