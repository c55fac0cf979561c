"""One worker's share of rounds of neighbour sums: its partitions and their values."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from xnq_dist.core.arrays import Floats32
from xnq_dist.core.backend import Backend, GpuBackend, choose, cpu
from xnq_dist.core.errors import StageError
from xnq_dist.core.store import Attempt, FileRecord, Manifest, Stage
from xnq_dist.core.threads import map_threads
from xnq_dist.graph.halo import Partition
from xnq_dist.graph.layout import load_partition
from xnq_dist.reservoir import device
from xnq_dist.reservoir.mailbox import PeerLost
from xnq_dist.reservoir.peers import PATIENCE
from xnq_dist.reservoir.superstep import gather
from xnq_dist.reservoir.wire import hold_slot
from xnq_dist.reservoir.worker_state import Share

__all__ = ["Rounds", "SumsState", "round_of_sums", "sum_neighbours"]

Start = Callable[[int], Floats32]
"""``start(number)``: the values of a partition's owned rows, shape (n_owned, w)."""

Step = Callable[[int, int, Floats32, Floats32], Floats32]
"""``step(number, round, values, sums)``: a partition's values after the round (1, 2,
...), from the previous values and the sums over in-neighbours; one row per node. It may
return the sums, changed in place."""

Publish = Callable[[Floats32], Floats32]
"""``publish(values)``: the values to sum over, row by row, (m, w) to (m, any)."""


@dataclass(frozen=True)
class Rounds:
    """What is computed in every round, and where it is written; see `propagate`."""

    start: Start
    step: Step
    attempt: Attempt
    stem: str
    publish: Publish | None
    weighted: bool
    backend: str

    def first(self, number: int) -> Floats32:
        """A partition's values before the first round."""
        return np.ascontiguousarray(self.start(number), dtype=np.float32)

    def published(self, values: Floats32) -> Floats32:
        """The values that neighbours sum."""
        seen = values if self.publish is None else self.publish(values)
        return np.ascontiguousarray(seen, dtype=np.float32)

    def load(self, graph: Stage, manifest: Manifest, number: int) -> Partition:
        """A partition with the weights that count."""
        partition = load_partition(graph, manifest, number)
        return partition if self.weighted else replace(partition, weights=None)

    def write(self, number: int, turn: int, values: Floats32) -> FileRecord:
        """Write a partition's values after a round."""
        stem = f"{self.stem}-{turn:03d}-{number:05d}"
        return self.attempt.write_arrays(stem, values=values)


def sum_neighbours(
    partition: Partition,
    values: Floats32,
    halo: Floats32,
    backend: Backend,
    threads: int = 1,
) -> Floats32:
    """Weighted sums of in-neighbours' values, in the order of the original ids.

    `values` are the published values of the owned rows, shape (n_owned, w); `halo`
    those of the halo rows, both on the host. `partition` is in the memory of `backend`;
    all backends give the same bits.
    """
    if len(values) != partition.n_owned:
        raise StageError(
            f"partition {partition.number} has {partition.n_owned} nodes but "
            f"{len(values)} rows of values: internal error, please report it"
        )
    sums = np.empty(values.shape, dtype=np.float32)
    if not isinstance(backend, GpuBackend):
        gather(partition, values, halo, sums, threads)
        return sums
    for first in range(0, values.shape[1], device.COLUMNS):
        columns = slice(first, first + device.COLUMNS)
        part = values[:, columns], halo[:, columns], sums[:, columns]
        device.gather(backend, partition, *part)
    return sums


class SumsState:
    """Data on a worker during the rounds: topology and values of its partitions.

    It never leaves its worker, like `worker_state.WorkerState`. Values are on the host;
    a GPU has the topology, and some columns of the values at a time.
    """

    def __init__(self, share: Share, rounds: Rounds) -> None:
        self.turn = 0
        self._rounds, self._threads = rounds, share.threads
        self._backend = choose(rounds.backend)
        numbers = share.numbers
        load = partial(rounds.load, share.graph, share.manifest)
        parts = map_threads(load, numbers, share.threads)
        first = map_threads(rounds.first, numbers, share.threads)
        self._values = dict(zip(numbers, first, strict=True))
        self._inner_threads = max(1, share.threads // len(numbers))
        self._width = rounds.published(self._values[numbers[0]][:1]).shape[1]
        partitions = dict(zip(numbers, parts, strict=True))
        self._peers = share.peers(partitions, self._width, "float32", cpu())
        if isinstance(self._backend, GpuBackend):
            for number, part in partitions.items():
                partitions[number] = device.move_partition(self._backend, part)
        self._partitions = partitions

    def __reduce__(self) -> str | tuple[object, ...]:
        raise TypeError("values of running rounds do not leave their worker")

    def __sizeof__(self) -> int:
        return sum(values.nbytes for values in self._values.values())

    def advance(self) -> None:
        """Run one round together with all other workers."""
        give_up = hold_slot(PATIENCE)
        turn, before = self.turn + 1, self._values
        seen = {n: self._rounds.published(values) for n, values in before.items()}
        for number, values in seen.items():
            if values.shape[1] != self._width:
                raise StageError(
                    f"values of round {turn} have {values.shape[1]} columns, not "
                    f"{self._width}: internal error, please report it"
                )
            self._peers.post(turn, number, values)
        after: dict[int, Future[Floats32]] = {}
        running: deque[Future[Floats32]] = deque()
        with ThreadPoolExecutor(self._threads) as pool:

            def work(number: int, pick: Callable[[], Floats32]) -> None:
                if len(running) > self._threads:  # halo rows in memory are bounded
                    running.popleft().result()
                values = before[number], seen[number], np.array(pick())
                after[number] = pool.submit(self._after, number, turn, *values)
                running.append(after[number])

            self._peers.collect(turn, turn - 1, seen, work, give_up)
            self._values = {number: made.result() for number, made in after.items()}
        self.turn = turn

    def _after(
        self,
        number: int,
        turn: int,
        values: Floats32,
        published: Floats32,
        halo: Floats32,
    ) -> Floats32:
        """A partition's values after a round."""
        given = self._partitions[number], published, halo
        sums = sum_neighbours(*given, self._backend, self._inner_threads)
        after = self._rounds.step(number, turn, values, sums)
        return np.ascontiguousarray(after, dtype=np.float32)

    def write(self) -> list[tuple[int, FileRecord]]:
        """Write the values of every partition; their numbers and files."""

        def one(number: int) -> tuple[int, FileRecord]:
            values = self._values[number]
            return number, self._rounds.write(number, self.turn, values)

        return map_threads(one, list(self._values), self._threads)


def round_of_sums(state: SumsState, turn: int, keep: bool) -> Any:
    """Run the round `turn` (0: the start) on a worker; write its values if `keep`.

    Raises `PeerLost` if the state is not that after the previous round, because Dask
    has made it again.
    """
    if turn and state.turn != turn - 1:
        raise PeerLost("", f"is after round {state.turn}, not {turn - 1}")
    if turn:
        state.advance()
    return state.write() if keep else []
