"""Supersteps of a worker's partitions, on its CPUs or its GPU."""

from __future__ import annotations

from typing import Any

from xnq_dist.core.backend import GpuBackend, choose
from xnq_dist.core.store import Manifest
from xnq_dist.graph.halo import Partition
from xnq_dist.reservoir.context import ReservoirSpec, feature_matrix
from xnq_dist.reservoir.device import OnDevice, move_partition
from xnq_dist.reservoir.drive import Drive, FeatureDrive, drive_width
from xnq_dist.reservoir.superstep import OnHost, first_states
from xnq_dist.reservoir.worker import Share

__all__ = ["Supersteps"]


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
