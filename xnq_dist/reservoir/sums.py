"""Rounds of neighbour sums of a worker's partitions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from xnq_dist.core.arrays import Floats32
from xnq_dist.core.backend import Backend, GpuBackend, choose
from xnq_dist.core.errors import StageError
from xnq_dist.core.store import Attempt, FileRecord
from xnq_dist.graph.halo import Partition
from xnq_dist.graph.layout import load_partition
from xnq_dist.reservoir import device
from xnq_dist.reservoir.superstep import gather
from xnq_dist.reservoir.worker import Share

__all__ = ["Rounds", "Sums", "sum_neighbours"]

Start = Callable[[int], Floats32]
"""``start(number)``: the values of a partition's owned rows, shape (n_owned, w)."""

Step = Callable[[int, int, Floats32, Floats32], Floats32]
"""``step(number, round, values, sums)``: a partition's values after the round (1, 2,
...), from the previous values and the sums over in-neighbours; one row per node. It may
return the sums, changed in place."""


@dataclass(frozen=True)
class Rounds:
    """What is computed in every round, and where it is written; see `propagate`."""

    start: Start
    step: Step
    attempt: Attempt
    stem: str
    weighted: bool
    backend: str

    def write(self, turn: int, number: int, values: Floats32) -> FileRecord:
        """Write a partition's values after the round `turn`."""
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

    `values` are those of the owned rows, shape (n_owned, w); `halo` those of the halo
    rows, both on the host. `partition` is in the memory of `backend`;
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


class Sums:
    """The work of rounds of sums (`worker.Work`), up to the round `last`.

    Values are on the host; a GPU has the topology, and some columns at a time.
    """

    first = 0

    def __init__(self, share: Share, rounds: Rounds, last: int) -> None:
        self.last, self.backend = last, Backend()
        self._share, self._rounds = share, rounds
        self._math = choose(rounds.backend)
        self._topology: dict[int, Partition] = {}

    def load(self, number: int) -> tuple[Partition, Floats32]:
        """A partition, and its values before the first round."""
        partition = load_partition(self._share.graph, self._share.manifest, number)
        summed = partition
        if not self._rounds.weighted:
            summed = replace(partition, weights=None)
        self._topology[number] = device.move_partition(self._math, summed)
        return partition, _float32(self._rounds.start(number))

    def after(
        self, number: int, step: int, values: Floats32, halo: Floats32
    ) -> Floats32:
        """A partition's values after the round `step`."""
        given = self._topology[number], values, halo, self._math
        sums = sum_neighbours(*given, self._share.threads)
        return _float32(self._rounds.step(number, step, values, sums))


def _float32(values: Floats32) -> Floats32:
    return np.ascontiguousarray(values, dtype=np.float32)
