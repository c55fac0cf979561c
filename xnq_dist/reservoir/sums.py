"""Rounds of neighbour sums of a worker's partitions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from xnq_dist.core.arrays import Floats32
from xnq_dist.core.backend import Backend, GpuBackend, choose
from xnq_dist.graph.halo import Partition
from xnq_dist.reservoir import device
from xnq_dist.reservoir.superstep import gather
from xnq_dist.reservoir.worker import Share

__all__ = ["Start", "Step", "Sums"]

Start = Callable[[int], Floats32]
"""``start(number)``: the values of a partition's owned rows, shape (n_owned, w)."""

Step = Callable[[int, int, Floats32, Floats32], Floats32]
"""``step(number, round, values, sums)``: a partition's values after the round (1, 2,
...), from the previous values and the sums over in-neighbours; one row per node. It may
return the sums, changed in place."""


class Sums:
    """The work of rounds of sums (`worker.Work`), up to the round `last`.

    Values are on the host; a GPU has the topology, and some columns at a time.
    """

    first = 0

    def __init__(
        self,
        share: Share,
        start: Start,
        step: Step,
        weighted: bool,
        backend: str,
        last: int,
    ) -> None:
        self.last, self.backend = last, Backend()
        self._share, self._start, self._step = share, start, step
        self._weighted, self._math = weighted, choose(backend)
        self._topology: dict[int, Partition] = {}

    def load(self, partition: Partition) -> Floats32:
        """A partition's values before the first round."""
        number = partition.number
        summed = partition if self._weighted else replace(partition, weights=None)
        self._topology[number] = device.move_partition(self._math, summed)
        return self._start(number)

    def after(
        self, number: int, step: int, values: Floats32, halo: Floats32
    ) -> Floats32:
        """A partition's values after the round `step`.

        Sums are in the order of the original ids; all backends give the same bits.
        """
        partition, sums = self._topology[number], np.empty_like(values)
        if isinstance(self._math, GpuBackend):
            for first in range(0, values.shape[1], device.COLUMNS):
                columns = slice(first, first + device.COLUMNS)
                part = values[:, columns], halo[:, columns], sums[:, columns]
                device.gather(self._math, partition, *part)
        else:
            gather(partition, values, halo, sums, self._share.threads)
        return self._step(number, step, values, sums)
