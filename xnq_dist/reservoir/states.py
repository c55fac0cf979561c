"""Supersteps and neighbour sums of a worker's partitions, on its CPUs or its GPU."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from xnq_dist.core.arrays import Floats32
from xnq_dist.core.backend import Backend, GpuBackend, choose
from xnq_dist.core.store import Manifest
from xnq_dist.graph.halo import Partition
from xnq_dist.reservoir import device
from xnq_dist.reservoir.context import ReservoirSpec, feature_matrix
from xnq_dist.reservoir.device import OnDevice, move_partition
from xnq_dist.reservoir.superstep import (
    Drive,
    FeatureDrive,
    OnHost,
    drive_width,
    first_states,
    gather,
)
from xnq_dist.reservoir.worker import Share

__all__ = ["Start", "Step", "Sums", "Supersteps"]

Start = Callable[[int], Floats32]
"""``start(number)``: the values of a partition's owned rows, shape (n_owned, w)."""
Step = Callable[[int, int, Floats32, Floats32], Floats32]
"""``step(number, round, values, sums)``: a partition's values after the round (1, 2,
...), from the previous values and the sums over in-neighbours; one row per node. It may
return the sums, changed in place."""


class Supersteps:
    """The work of an embedding (`worker.Work`): values are states, (n_owned, d').

    The first ones are those after superstep `first`, from the checkpoint `stored`; if
    None, they are computed, for superstep 1. With a GPU, all arrays are in its memory.
    """

    def __init__(
        self, share: Share, spec: ReservoirSpec, first: int, stored: Manifest | None
    ) -> None:
        self.first, self.last = first, spec.supersteps
        self.backend = choose(spec.backend)
        self._share, self._stored = share, stored
        self._dtype = spec.exchange_dtype
        features = int(share.graph.facts["n_features"])
        self._drawn = [part.draw(features) for part in spec.parts]
        recurrent = [weights.recurrent for weights in self._drawn]
        self._math: OnHost | OnDevice
        if isinstance(self.backend, GpuBackend):
            self._math = OnDevice(self.backend, recurrent)
        else:
            self._math = OnHost(recurrent, share.threads)
        self._topology: dict[int, Partition] = {}
        self._drives: dict[int, Drive] = {}
        self._spare: dict[int, Any] = {}
        """States before the last: memory, which the system would have to clear."""

    def load(self, partition: Partition) -> Any:
        """A partition's first states."""
        share, number = self._share, partition.number
        features = feature_matrix(share.graph, number)
        computed = FeatureDrive.of(features, self._drawn)
        wide = drive_width(features.shape[1], computed.dim) == computed.dim
        kept = wide or self.backend.on_device
        drive: Drive = computed.stored(share.threads) if kept else computed
        if (stored := self._stored) is None:
            states = first_states(drive, self._dtype, share.threads)
        else:
            states = stored.where.read_arrays(stored.files[number])["states"]
        self._drives[number] = self.backend.to_device(drive) if kept else drive
        self._topology[number] = move_partition(self.backend, partition)
        return self.backend.to_device(states)

    def after(self, number: int, step: int, values: Any, halo: Any) -> Any:
        """The states after superstep `step`, in the memory of those before the last."""
        out = self._spare.pop(number, None)
        if out is None:
            out = self.backend.empty(values.shape, values.dtype)
        drive = self._drives[number]
        self._math.superstep(self._topology[number], values, halo, drive, out)
        self._spare[number] = values
        return out


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
        self._topology[number] = move_partition(self._math, summed)
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
