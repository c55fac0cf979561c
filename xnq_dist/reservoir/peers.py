"""Halo rows of one worker's partitions, exchanged with all other workers of a run."""

from __future__ import annotations

import time
import weakref
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from xnq_dist.core.arrays import Floats32, Ints
from xnq_dist.core.backend import Backend
from xnq_dist.graph.halo import Partition
from xnq_dist.reservoir.mailbox import POLL, Mailbox
from xnq_dist.reservoir.routes import find_routes
from xnq_dist.reservoir.wire import Outgoing, Wire

__all__ = ["PATIENCE", "Peers"]

Work = Callable[[int, Callable[[], Floats32]], None]
GiveUp = Callable[[float], None]

PATIENCE = 2.0
"""Seconds that a task waits for blocks before it releases its thread to other tasks."""


class Peers:
    """Sends and receives the boundary rows of a worker's partitions, in generations.

    Made in a task on the worker, under a name of the run that all its workers use.

    Parameters
    ----------
    partitions
        The worker's partitions.
    offsets
        Global id of each partition's first node, shape (P + 1,).
    placement
        Worker of each partition.
    width
        Columns of the exchanged rows.
    dtype
        Type of their values.
    backend
        Where states and halo rows are; blocks between workers go through the host.
    timeout
        Seconds after which a worker that does not answer is lost.
    """

    def __init__(
        self,
        run: str,
        partitions: Mapping[int, Partition],
        offsets: Sequence[int],
        placement: Sequence[str],
        width: int,
        dtype: str,
        backend: Backend,
        timeout: float,
    ) -> None:
        self.routes = find_routes(partitions, offsets, placement)
        self._placement, self._width, self._backend = placement, width, backend
        self._sends = _moved(backend, self.routes.sends)
        self._picks = _moved(backend, self.routes.picks)
        self._halos = {number: part.n_halo for number, part in partitions.items()}
        self._mailbox = Mailbox(self.routes.arrivals, width)
        self._wire = Wire(run, self._mailbox, timeout)
        self._readers: dict[int, list[int]] = {o: [] for o in self.routes.arrivals}
        for number, picks in self.routes.picks.items():
            for owner in picks.keys() & self._readers.keys():
                self._readers[owner].append(number)
        self._memory = backend.empty((max(self._halos.values()), width), dtype)
        weakref.finalize(self, self._wire.close).atexit = False

    def post(self, generation: int, number: int, states: Floats32) -> None:
        """Send a partition's boundary rows, in the background."""
        for worker, rows in self._sends[number].items():
            # Refers to the states, not to self: a block must not keep the run.
            make: Callable[[], Any] = partial(states.take, rows, 0)
            if self._backend.on_device:  # only the task's thread uses the device
                make = partial(np.asarray, self._backend.to_host(states[rows]))
            self._wire.send(Outgoing(worker, generation, number, make))

    def collect(
        self,
        generation: int,
        sent: int,
        states: Mapping[int, Floats32],
        work: Work,
        give_up: GiveUp,
    ) -> None:
        """Call ``work(partition, pick)`` for each partition once its blocks arrived.

        ``pick()`` returns the halo rows' states in local order, shape (n_halo, w), in
        memory that is reused for the next partition. First waits until own blocks up to
        generation `sent` are sent, whose states may then be overwritten. `states`:
        those of the worker's own partitions, of which other ones read rows. `give_up`
        is called with the seconds waited, twice a second.
        """
        self._mailbox.reach(generation)
        self._wire.flush(sent)
        left = dict.fromkeys(self._halos, 0)
        for readers in self._readers.values():
            for number in readers:
                left[number] += 1
        ready = deque(number for number, count in left.items() if not count)
        seen = 0
        for _ in left:
            self._wire.check()
            while not ready:
                arrived = self._wait(generation, seen, give_up)
                seen += len(arrived)
                for number in (n for owner in arrived for n in self._readers[owner]):
                    left[number] -= 1
                    if not left[number]:
                        ready.append(number)
            number = ready.popleft()
            work(number, partial(self._pick, generation, number, states))

    def _wait(self, generation: int, seen: int, give_up: GiveUp) -> list[int]:
        """Owners whose blocks arrived after the first `seen` ones."""
        began = time.monotonic()
        while not (arrived := self._mailbox.wait(generation, seen, POLL)):
            give_up(time.monotonic() - began)
            missing = self._mailbox.missing(generation, self._readers)
            self._wire.look(sorted({self._placement[owner] for owner in missing}))
        return arrived

    def _pick(
        self, generation: int, number: int, states: Mapping[int, Any]
    ) -> Floats32:
        halo, at = self._memory[: self._halos[number]], 0
        for owner, places in self._picks[number].items():
            here = owner in states
            rows = states[owner] if here else self._mailbox.read(generation, owner)
            part = halo[at : at + len(places)]
            if self._backend.on_device:
                self._backend.to_device(rows).take(places, 0, part)
            else:  # places are in range; "clip" avoids the copy of "raise"
                np.take(rows, places, 0, part, "clip")
            at += len(places)
        return halo  # type: ignore[no-any-return]


def _moved(
    backend: Backend, lists: Mapping[int, Mapping[Any, Ints]]
) -> dict[int, dict[Any, Any]]:
    """Lists of rows in the backend's memory."""
    return {
        number: {key: backend.to_device(rows) for key, rows in each.items()}
        for number, each in lists.items()
    }
