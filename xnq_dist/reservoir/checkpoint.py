"""Checkpoints of the states: an atomically committed folder for each checkpoint."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from math import ceil
from typing import TYPE_CHECKING

from xnq_dist.core.arrays import Floats32
from xnq_dist.core.store import Attempt, FileRecord, Manifest, Stage, fingerprint

if TYPE_CHECKING:
    from xnq_dist.reservoir.exchange import Exchange

__all__ = ["KEPT", "Checkpoints", "checkpoint_interval"]

_DISK_RATE = 200e6
"""Assumed bytes per second of writing a checkpoint."""
_FLOP_RATE = 40e9
"""Assumed floating point operations per second of a superstep."""
KEPT = 2
"""Number of checkpoints that are kept."""
_SHARE = 0.1
"""Maximum share of the time for checkpoints."""


@dataclass(frozen=True)
class Checkpoints:
    """The checkpoints of one embedding, under the stage folder ``checkpoints``."""

    stage: Stage
    inputs: dict[str, object]
    """Inputs of the states; checkpoints with other inputs are ignored."""
    every: int
    """Supersteps between two checkpoints."""
    grace: float = 0.0
    """Seconds to write one when a signal ends the run."""
    prefix: str = "step-"
    """Beginning of their names; one of its own for each reservoir that runs in turn."""

    def at(self, step: int) -> Stage:
        """The folder of the checkpoint after superstep `step`."""
        return self.stage.child(f"{self.prefix}{step:05d}")

    def latest(self) -> tuple[int, Manifest | None]:
        """Superstep and manifest of the latest complete checkpoint, else 1 and None."""
        for name in reversed(self.stage.names()):
            step = name.removeprefix(self.prefix)
            if not step.isdigit():
                continue
            manifest = self.at(int(step)).manifest()
            if manifest and manifest.fingerprint == fingerprint(self.inputs):
                return int(step), manifest
        return 1, None

    def write(self, exchange: Exchange, kept: int = KEPT) -> list[FileRecord]:
        """Write a checkpoint, and return its files in partition order.

        `kept`: number of checkpoints that stay, this one included; the previous one is
        used if this is damaged.
        """
        attempt = self.at(exchange.step).begin()
        files = exchange.apply(partial(_write_states, attempt))
        attempt.commit(files, self.inputs, {"superstep": exchange.step})
        mine = [name for name in self.stage.names() if name.startswith(self.prefix)]
        # Checkpoints of later supersteps belong to other settings.
        stay = [name for name in mine if name <= attempt.name][-kept:]
        for name in {*mine}.difference(stay):
            self.stage.child(name).delete_folder()
        return files


def _write_states(attempt: Attempt, number: int, states: Floats32) -> FileRecord:
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
