"""One worker's share of an embedding: its partitions, their states and supersteps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from xnq_dist.core.arrays import Floats32
from xnq_dist.core.backend import Backend, GpuBackend, choose
from xnq_dist.core.store import Manifest, Stage
from xnq_dist.core.threads import map_threads
from xnq_dist.graph.halo import Partition
from xnq_dist.graph.layout import load_partition
from xnq_dist.reservoir.context import ReservoirSpec, draw_all, feature_matrix
from xnq_dist.reservoir.device import OnDevice
from xnq_dist.reservoir.drive import Drive, FeatureDrive
from xnq_dist.reservoir.mailbox import PeerLost
from xnq_dist.reservoir.peers import PATIENCE, GiveUp, Peers
from xnq_dist.reservoir.superstep import OnHost
from xnq_dist.reservoir.wire import hold_slot

__all__ = ["Share", "WorkerState", "advance_worker", "apply_on_worker"]

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

    def peers(
        self,
        partitions: Mapping[int, Partition],
        width: int,
        dtype: str,
        backend: Backend,
    ) -> Peers:
        """The exchange with the other workers, of rows of `width` values."""
        offsets, placement = self.manifest.facts["offsets"], self.placement
        values = width, dtype, backend
        return Peers(self.run, partitions, offsets, placement, *values, self.timeout)


class WorkerState:
    """Data on a worker between the tasks of one run: partitions, states, routes.

    It never leaves its worker: it is a task's result, which Dask deletes with its
    future. States, shapes (n_owned, d'), are those after superstep `step`, first that
    of the checkpoint, or 1. With a GPU, all arrays are in its memory.
    """

    def __init__(
        self,
        share: Share,
        spec: ReservoirSpec,
        checkpoint: tuple[int, Stage, Manifest] | None,
    ) -> None:
        self.step = 1 if checkpoint is None else checkpoint[0]
        self.threads, self._length = share.threads, spec.supersteps
        drawn = draw_all(spec, int(share.manifest.facts["n_features"]))
        backend = choose(spec.backend)
        self._math: OnHost | OnDevice
        if isinstance(backend, GpuBackend):
            self._math = OnDevice(backend, drawn)
        else:
            self._math = OnHost(drawn, spec.exchange_dtype, share.threads)
        partitions: dict[int, Partition] = {}
        self._partitions: dict[int, Partition] = {}
        self._drives: dict[int, Drive] = {}
        self.states: dict[int, Floats32] = {}
        for number in share.numbers:
            partition = load_partition(share.graph, share.manifest, number)
            features = feature_matrix(share.graph, share.manifest, number)
            drive = self._math.drive(FeatureDrive.of(features, drawn))
            if checkpoint is None:
                states = self._math.first_states(drive)
            else:
                _, stage, stored = checkpoint
                record = stored.named(f"state-{number:05d}")[0]
                states = self._math.placed(stage.read_arrays(record)["states"])
            partitions[number], self._drives[number] = partition, drive
            self._partitions[number] = self._math.moved(partition)
            self.states[number] = states
        values = spec.dim, spec.exchange_dtype, backend
        self.peers = share.peers(partitions, *values)
        self._posted = self.step - 1
        # States alternate between two arrays: the system must clear new memory first.
        self._next = {
            number: backend.empty(before.shape, before.dtype)
            for number, before in self.states.items()
        }

    def __reduce__(self) -> str | tuple[object, ...]:
        raise TypeError("states of a running embedding do not leave their worker")

    def __sizeof__(self) -> int:
        return sum(
            2 * states.nbytes + self._drives[number].nbytes
            for number, states in self.states.items()
        )

    def advance(self, count: int) -> None:
        """Run `count` supersteps together with all other workers."""
        give_up = hold_slot(PATIENCE)
        if self._posted < self.step:
            for number, states in self.states.items():
                self.peers.post(self.step, number, states)
            self._posted = self.step
        for _ in range(count):
            self._superstep(give_up)
            self.states, self._next = self._next, self.states
            self.step += 1

    def _superstep(self, give_up: GiveUp) -> None:
        """Compute the next states in the array of the previous ones, and send them."""
        step, after = self.step, self._next
        follows = step + 1 < self._length

        def run_partition(number: int, pick: Callable[[], Floats32]) -> None:
            before = self._partitions[number], self.states[number], pick()
            self._math.superstep(*before, self._drives[number], after[number])
            if follows:
                self.peers.post(step + 1, number, after[number])

        # The states to send must not be overwritten before they are sent.
        self.peers.collect(step, step - 1, self.states, run_partition, give_up)
        if follows:
            self._posted = step + 1

    def on_host(self, number: int) -> Floats32:
        """A partition's states in the memory of the host."""
        return self._math.on_host(self.states[number])


def advance_worker(state: WorkerState, step: int, count: int) -> None:
    """Run supersteps ``step + 1`` to ``step + count`` of a worker.

    Raises `PeerLost` also if the state is not after superstep `step`, because Dask has
    made it again.
    """
    if state.step != step:
        raise PeerLost("", f"is after superstep {state.step}, not {step}")
    state.advance(count)


def apply_on_worker(
    state: WorkerState, function: Callable[[int, Floats32], R]
) -> list[tuple[int, R]]:
    """Numbers of the partitions and (small) results of a function of their states."""

    def one(number: int) -> tuple[int, R]:
        states = state.on_host(number)
        result: Any = function(number, states)
        if isinstance(result, np.ndarray) and np.may_share_memory(result, states):
            result = result.copy()  # later supersteps overwrite the states
        return number, result

    return map_threads(one, list(state.states), state.threads)
