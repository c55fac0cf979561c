"""Checkpoints of the states: a folder per checkpoint, whole or nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from xnq_dist.core.store import Attempt, FileRecord, Manifest, Stage, fingerprint
from xnq_dist.graph.arrays import Floats32

__all__ = ["KEPT", "Checkpoints", "checkpoint_interval", "write_states"]

_DISK_RATE = 200e6
"""Bytes a second that a checkpoint is assumed to be written at."""
_FLOP_RATE = 40e9
"""Floating point operations a second that a superstep is assumed to run at."""
KEPT = 2
"""Checkpoints that stay."""
_SHARE = 0.1
"""Most of the time that checkpoints may take."""


@dataclass(frozen=True)
class Checkpoints:
    """The checkpoints of one embedding, under the stage folder ``checkpoints``."""

    stage: Stage
    inputs: dict[str, object]
    """What the states depend on; a checkpoint of anything else is not used."""

    def _at(self, step: int) -> Stage:
        name = f"step-{step:05d}"
        return Stage(self.stage.folder.child(name), name)

    def latest(self) -> tuple[int, Stage, Manifest] | None:
        """Superstep, stage and manifest of the newest whole checkpoint."""
        for name in reversed(self.stage.folder.names()):
            step = name.removeprefix("step-")
            if not step.isdigit():
                continue
            stage = self._at(int(step))
            manifest = stage.manifest()
            if manifest and manifest.fingerprint == fingerprint(self.inputs):
                return int(step), stage, manifest
        return None

    def begin(self, step: int) -> Attempt:
        """An attempt at the checkpoint after superstep `step`."""
        return self._at(step).begin()

    def commit(
        self, step: int, attempt: Attempt, files: Sequence[FileRecord], seconds: float
    ) -> None:
        """Make it whole; the one before it stays, should this one be damaged."""
        inputs = fingerprint(self.inputs), self.inputs
        facts = {"superstep": step}
        self._at(step).commit(attempt, files, *inputs, facts, seconds)
        own = f"step-{step:05d}"
        names = self.stage.folder.names()
        # What is beyond this one is of other settings.
        stay = [name for name in names if name <= own][-KEPT:]
        for name in {*names}.difference(stay):
            self.stage.folder.child(name).delete_folder()

    def remove(self) -> None:
        """Remove all checkpoints."""
        self.stage.folder.delete_folder()


def write_states(attempt: Attempt, number: int, states: Floats32) -> FileRecord:
    """One partition's states as a file of a checkpoint."""
    return attempt.write_arrays(f"state-{number:05d}", states=states)


def checkpoint_interval(
    every: int | str, nodes: int, edges: int, dim: int, nonzeros: int, supersteps: int
) -> int:
    """Supersteps between checkpoints.

    ``auto``: as often as keeps writing below a tenth of the time, by rates assumed
    for a slow disk and one core; never, when all supersteps together take seconds.
    """
    if every != "auto":
        return int(every)
    step_seconds = (2.0 * nodes * dim * nonzeros + edges * dim) / _FLOP_RATE
    if step_seconds * supersteps < 10.0:
        return supersteps
    write_seconds = 4.0 * nodes * dim / _DISK_RATE
    return min(supersteps, max(1, ceil(write_seconds / (_SHARE * step_seconds))))
