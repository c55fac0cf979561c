"""The engine ``tasks`` with states on a disk, for states larger than all memory.

A superstep of a partition is one pinned task that reads and writes files which all
workers can access (`state_files`); workers exchange no data directly. Files of a
superstep are removed once all partitions have finished the next one, so that a task
that runs twice reads the same files.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from xnq_dist.core.arrays import Floats32
from xnq_dist.core.errors import StageError
from xnq_dist.core.store import Manifest, Stage
from xnq_dist.core.waiting import Heartbeats
from xnq_dist.reservoir.context import ReservoirSpec
from xnq_dist.reservoir.exchange import PinnedTasks
from xnq_dist.reservoir.state_files import (
    PartitionOnDisk,
    StateFiles,
    advance_partition,
    open_partition,
    read_states,
)

if TYPE_CHECKING:
    from distributed import Client, Future

__all__ = ["DiskExchange"]

R = TypeVar("R")


class DiskExchange(PinnedTasks):
    """Engine ``tasks`` with states in files.

    Files are in a new subfolder of the folder of `files`, which `close` removes. All
    methods raise `WorkersLost` when a worker is lost.
    """

    max_stride, stride_seconds = 1, 0.0
    """All partitions finish a superstep before the next one starts."""
    bytes_per_superstep = 0
    """Bytes exchanged between workers: none, because rows are read from files."""

    def __init__(
        self,
        client: Client,
        graph: Stage,
        manifest: Manifest,
        spec: ReservoirSpec,
        files: StateFiles,
        avoid: Collection[str] = (),
        beats: Heartbeats | None = None,
    ) -> None:
        super().__init__(client, graph, manifest, spec, avoid, beats)
        folder = Path(files.folder, uuid.uuid4().hex[:12])
        try:
            folder.mkdir(mode=0o700, parents=True)
        except OSError as error:
            raise StageError(
                f"states cannot be written to {files.folder} ({error.strerror}): set "
                "scratch to a folder with space that all workers can access"
            ) from error
        self._files = replace(files, folder=str(folder))
        self._held: list[Future[Any]] = []
        self._underway: list[Future[Any]] = []
        self._moved: list[int] = []

    @property
    def disk_bytes_per_superstep(self) -> int:
        """Mean bytes read and written in a superstep so far."""
        return sum(self._moved) // max(1, len(self._moved))

    def begin(self, checkpoint: tuple[Stage, Manifest] | None) -> None:
        """Load partitions and a checkpoint's states; None: start at superstep 1."""
        self.step = 1
        if checkpoint is not None:
            self.step = int(checkpoint[1].facts["superstep"])
        self._held = []
        shared = self._graph, self._manifest
        for number in range(len(self.placement)):
            args = number, self._spec, self._files, self._inner_threads(number)
            kept = None
            if checkpoint is not None:
                stage, manifest = checkpoint
                kept = self.step, stage, manifest.named(f"state-{number:05d}")[0]
            future = self._submit(number, open_partition, *shared, *args, kept)
            self._held.append(future)
        self._wait(self._held)

    def advance(self, count: int) -> None:
        """Run `count` supersteps."""
        threads = self._inner_threads
        for _ in range(count):
            self._underway = [
                self._submit(p, advance_partition, held, self.step, threads(p))
                for p, held in enumerate(self._held)
            ]
            self.complete()

    def complete(self) -> None:
        """Wait for the superstep that an interrupted call of `advance` has begun."""
        if self._underway:
            self._moved.append(sum(self._results(self._underway)))
            self.step, self._underway = self.step + 1, []
            self._files.forget(self.step - 1, len(self._held))

    def apply(self, function: Callable[[int, Floats32], R]) -> list[R]:
        """Results of a function of each partition's states, called on its worker."""
        futures = [
            self._submit(number, _apply, function, held, self.step)
            for number, held in enumerate(self._held)
        ]
        return self._results(futures)

    def close(self) -> None:
        """Release everything on the workers, and remove the files."""
        self._held = self._underway = []
        # A released task may still write: the caller removes its files together with
        # the parent folder.
        shutil.rmtree(self._files.folder, ignore_errors=True)


def _apply(
    function: Callable[[int, NDArray[np.floating]], R], held: PartitionOnDisk, step: int
) -> R:
    return function(held.partition.number, read_states(held, step))
