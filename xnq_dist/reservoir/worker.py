"""One worker's share of a run: its partitions, their values and the exchange."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np

from xnq_dist.core.arrays import Floats32
from xnq_dist.core.backend import Backend
from xnq_dist.core.store import Manifest, Stage
from xnq_dist.core.threads import map_threads
from xnq_dist.graph.halo import Partition
from xnq_dist.reservoir.mailbox import PeerLost
from xnq_dist.reservoir.peers import PATIENCE, GiveUp, Peers
from xnq_dist.reservoir.wire import hold_slot

__all__ = ["Share", "Work", "WorkerState", "advance_worker", "apply_on_worker"]

R = TypeVar("R")


@dataclass(frozen=True)
class Share:
    """One worker's share of a run: what its object is made from."""

    run: str
    """Unique name, the same on all workers."""
    graph: Stage
    manifest: Manifest
    """Of the stage ``graph``."""
    placement: Sequence[str]
    """Worker of each partition."""
    worker: str
    threads: int
    timeout: float
    """Seconds after which a worker that does not answer is lost."""

    @property
    def numbers(self) -> list[int]:
        """The worker's partitions."""
        return [p for p, chosen in enumerate(self.placement) if chosen == self.worker]


class Work(Protocol):
    """What a worker computes in each step: supersteps, or sums over neighbours."""

    first: int
    """Step after which the loaded values are."""
    last: int
    """Step whose values no neighbour reads."""
    backend: Backend
    """Memory of the exchanged values."""

    def load(self, number: int) -> tuple[Partition, Any]:
        """A partition on the host, and its values, one row for each owned node."""

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
        self.step, self.threads = work.first, share.threads
        loaded = [work.load(number) for number in share.numbers]
        partitions = {part.number: part for part, _ in loaded}
        self.values = {part.number: values for part, values in loaded}
        like = next(iter(self.values.values()))
        offsets, placement = share.manifest.facts["offsets"], share.placement
        rows = like.shape[1], like.dtype, work.backend
        given = share.run, partitions, offsets, placement, *rows
        self.peers = Peers(*given, share.timeout)
        self._posted = self.step - 1

    def __reduce__(self) -> str | tuple[object, ...]:
        raise TypeError("states of a running embedding do not leave their worker")

    def __sizeof__(self) -> int:
        return sum(2 * int(values.nbytes) for values in self.values.values())

    def advance(self, count: int) -> None:
        """Run `count` steps together with all other workers."""
        give_up = hold_slot(PATIENCE)
        if self._posted < self.step:
            for number, values in self.values.items():
                self.peers.post(self.step, number, values)
            self._posted = self.step
        for _ in range(count):
            self._advance(self.step + 1, give_up)

    def _advance(self, step: int, give_up: GiveUp) -> None:
        """Compute the values after a step, and send what neighbours read of them."""
        values = {}
        follows = step < self.work.last

        def run_partition(number: int, pick: Callable[[], Any]) -> None:
            values[number] = self.work.after(number, step, self.values[number], pick())
            if follows:
                self.peers.post(step, number, values[number])

        # Values that are to be sent must not be overwritten before they are.
        sent = step - 2
        self.peers.collect(step - 1, sent, self.values, run_partition, give_up)
        self.values, self.step = values, step
        if follows:
            self._posted = step


def advance_worker(state: WorkerState, step: int, count: int) -> None:
    """Run steps ``step + 1`` to ``step + count`` of a worker.

    Raises `PeerLost` also if the state is not after `step`, because Dask has made it
    again.
    """
    if state.step != step:
        raise PeerLost("", f"is after superstep {state.step}, not {step}")
    state.advance(count)


def apply_on_worker(
    state: WorkerState, function: Callable[[int, Floats32], R]
) -> list[tuple[int, R]]:
    """Numbers of the partitions and (small) results of a function of their values."""

    def one(number: int) -> tuple[int, R]:
        values = state.work.backend.to_host(state.values[number])
        result: Any = function(number, values)
        if isinstance(result, np.ndarray) and np.may_share_memory(result, values):
            result = result.copy()  # later steps overwrite the values
        return number, result

    return map_threads(one, list(state.values), state.threads)
