"""Checkpoints of the states: an atomically committed folder for each checkpoint."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from xnq_dist.core.arrays import Floats32
from xnq_dist.core.store import Attempt, FileRecord, Manifest, Stage, fingerprint

__all__ = ["KEPT", "Checkpoints", "checkpoint_interval", "write_states"]

_DISK_RATE = 200e6
"""Assumed bytes per second of writing a checkpoint."""
_FLOP_RATE = 40e9
"""Assumed floating point operations per second of a superstep."""
KEPT = 2
"""Number of checkpoints that are kept."""
TURN = "reservoir-"
"""Beginning of the names of checkpoints of reservoirs that run in turn."""
_SHARE = 0.1
"""Maximum share of the time for checkpoints."""


@dataclass(frozen=True)
class Checkpoints:
    """The checkpoints of one embedding, under the stage folder ``checkpoints``."""

    stage: Stage
    inputs: dict[str, object]
    """Inputs of the states; checkpoints with other inputs are ignored."""
    reservoir: int | None = None
    """Number of the reservoir, if they run one after the other; None: together."""

    @property
    def _prefix(self) -> str:
        return "step-" if self.reservoir is None else f"{TURN}{self.reservoir}-step-"

    def _at(self, step: int) -> Stage:
        name = f"{self._prefix}{step:05d}"
        return Stage(self.stage.folder.child(name), name)

    def latest(self) -> tuple[int, Stage, Manifest] | None:
        """Superstep, stage and manifest of the latest complete checkpoint, or None."""
        for name in reversed(self.stage.folder.names()):
            step = name.removeprefix(self._prefix)
            if not step.isdigit():
                continue
            stage = self._at(int(step))
            manifest = stage.manifest()
            if manifest and manifest.fingerprint == fingerprint(self.inputs):
                return int(step), stage, manifest
        return None

    def begin(self, step: int) -> Attempt:
        """Begin the checkpoint after superstep `step`."""
        return self._at(step).begin()

    def commit(
        self,
        step: int,
        attempt: Attempt,
        files: Sequence[FileRecord],
        seconds: float,
        kept: int = KEPT,
    ) -> None:
        """Complete a checkpoint; the previous one stays, in case this is damaged.

        `kept`: number of checkpoints that stay, this one included.
        """
        inputs = fingerprint(self.inputs), self.inputs
        facts = {"superstep": step}
        self._at(step).commit(attempt, files, *inputs, facts, seconds)
        current = f"{self._prefix}{step:05d}"
        names = self.stage.folder.names()
        mine = [name for name in names if name.startswith(self._prefix)]
        # Checkpoints of later supersteps belong to other settings.
        stay = [name for name in mine if name <= current][-kept:]
        if self.reservoir is not None:
            stay += {name for name in names if name.startswith(TURN)}.difference(mine)
        for name in {*names}.difference(stay):
            self.stage.folder.child(name).delete_folder()

    def remove(self) -> None:
        """Remove all checkpoints."""
        self.stage.folder.delete_folder()


def write_states(attempt: Attempt, number: int, states: Floats32) -> FileRecord:
    """Write one partition's states as a file of a checkpoint."""
    return attempt.write_arrays(f"state-{number:05d}", states=states)


def checkpoint_interval(
    every: int | str, nodes: int, edges: int, dim: int, nonzeros: int, supersteps: int
) -> int:
    """Supersteps between checkpoints.

    ``auto``: as often as possible while writing takes less than a tenth of the time, at
    rates of a slow disk and one core; never, if all supersteps together take seconds.
    """
    if every != "auto":
        return int(every)
    step_seconds = (2.0 * nodes * dim * nonzeros + edges * dim) / _FLOP_RATE
    if step_seconds * supersteps < 10.0:
        return supersteps
    write_seconds = 4.0 * nodes * dim / _DISK_RATE
    return min(supersteps, max(1, ceil(write_seconds / (_SHARE * step_seconds))))
