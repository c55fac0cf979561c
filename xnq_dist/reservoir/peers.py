"""Halo rows of one worker's partitions, exchanged with all other workers of a run."""

from __future__ import annotations

import time
import weakref
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xnq_dist.core.arrays import Floats32, Ints
from xnq_dist.graph.halo import Partition
from xnq_dist.reservoir.mailbox import POLL, Mailbox
from xnq_dist.reservoir.routes import find_routes, pick_rows
from xnq_dist.reservoir.wire import Outgoing, Wire

__all__ = ["PATIENCE", "Clock", "Peers"]

Work = Callable[[int, Callable[[], Floats32]], None]
GiveUp = Callable[[float], None]

PATIENCE = 2.0
"""Seconds that a task waits for blocks before it releases its thread to other tasks."""


@dataclass
class Clock:
    """Seconds that a worker spent on each activity, and bytes that it received."""

    computing: float = 0.0
    picking: float = 0.0
    waiting: float = 0.0
    received: int = 0


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
    widths
        Columns of the generations 0, 1, ..., which repeat.
    dtype
        Type of values.
    timeout
        Seconds after which a worker that does not answer is lost.
    """

    def __init__(
        self,
        run: str,
        partitions: Mapping[int, Partition],
        offsets: Sequence[int],
        placement: Sequence[str],
        widths: Sequence[int],
        dtype: str,
        timeout: float,
    ) -> None:
        self.clock = Clock()
        self.routes = find_routes(partitions, offsets, placement)
        self._placement, self._dtype = placement, np.dtype(dtype)
        self._halos = {number: part.n_halo for number, part in partitions.items()}
        self._mailbox = Mailbox(self.routes.arrivals, widths)
        self._wire = Wire(run, self._mailbox, timeout)
        self._readers: dict[int, list[int]] = {o: [] for o in self.routes.arrivals}
        for number, picks in self.routes.picks.items():
            for owner in picks.keys() & self._readers.keys():
                self._readers[owner].append(number)
        self._memory = np.empty(max(self._halos.values()) * max(widths), dtype)
        weakref.finalize(self, self._wire.close).atexit = False

    def check(self) -> None:
        """Raise `Abandoned` if the running task's future was released."""
        self._wire.check()

    def post(
        self, generation: int, number: int, states: Floats32, columns: slice
    ) -> None:
        """Send a partition's boundary rows, in the background."""
        for worker, rows in self.routes.sends[number].items():
            # Refers to the states, not to self: a block must not keep the run.
            block = partial(_block, states, rows, columns, self._dtype)
            self._wire.send(Outgoing(worker, generation, number, block))

    def collect(
        self,
        generation: int,
        sent: int,
        states: Mapping[int, Floats32],
        columns: slice,
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
            began = time.perf_counter()
            while not ready:
                arrived = self._wait(generation, seen, give_up)
                seen += len(arrived)
                for number in (n for owner in arrived for n in self._readers[owner]):
                    left[number] -= 1
                    if not left[number]:
                        ready.append(number)
            self.clock.waiting += time.perf_counter() - began
            number = ready.popleft()
            before, began = self.clock.picking, time.perf_counter()
            work(number, partial(self._pick, generation, number, states, columns))
            spent = time.perf_counter() - began
            self.clock.computing += spent - (self.clock.picking - before)
        self.clock.received = self._mailbox.received

    def _wait(self, generation: int, seen: int, give_up: GiveUp) -> list[int]:
        """Owners whose blocks arrived after the first `seen` ones."""
        began = time.monotonic()
        while not (arrived := self._mailbox.wait(generation, seen, POLL)):
            give_up(time.monotonic() - began)
            missing = self._mailbox.missing(generation, self._readers)
            self._wire.look(sorted({self._placement[owner] for owner in missing}))
        return arrived

    def _pick(
        self, generation: int, number: int, states: Mapping[int, Any], columns: slice
    ) -> Floats32:
        began = time.perf_counter()
        width, rows = columns.stop - columns.start, self._halos[number]
        halo = self._memory[: rows * width].reshape(rows, width)
        at = 0
        for owner, places in self.routes.picks[number].items():
            part = halo[at : at + len(places)]
            if owner in states:
                pick_rows(places, states[owner], columns, part)
            else:
                block = self._mailbox.read(generation, owner)
                pick_rows(places, block, slice(0, width), part)
            at += len(places)
        self.clock.picking += time.perf_counter() - began
        return halo


def _block(
    states: Floats32, rows: Ints, columns: slice, dtype: np.dtype[Any]
) -> NDArray[np.floating]:
    """Some rows of the states in new memory, shape (n, w)."""
    block = np.empty((len(rows), columns.stop - columns.start), dtype)
    pick_rows(rows, states, columns, block)
    return block
