"""All supersteps of reservoirs on the workers, with checkpoints and recovery.

A worker computes one with `states.Supersteps`, its arithmetic is in `superstep`.
A checkpoint is an atomically committed folder.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import ceil
from typing import TYPE_CHECKING, Any

from xnq_dist.core.arrays import Floats32
from xnq_dist.core.progress import Counts, silent
from xnq_dist.core.store import Attempt, FileRecord, Manifest, Stage, fingerprint
from xnq_dist.reservoir.context import ReservoirSpec
from xnq_dist.reservoir.exchange import Exchange, on_workers
from xnq_dist.reservoir.states import Supersteps

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["KEPT", "Checkpoints", "checkpoint_interval", "run_reservoir"]

log = logging.getLogger(__name__)

KEPT = 2
"""Number of checkpoints that are kept."""

STRIDE, SECONDS = 64, 2.0
"""Maximum number of supersteps of one task, and its approximate duration: a signal
waits for its end."""

SHARE = 0.1
"""Maximum share of the time for checkpoints."""

DISK_RATE = 200e6
"""Assumed bytes per second of writing a checkpoint."""
FLOP_RATE = 40e9
"""Assumed floating point operations per second of a superstep."""

Finish = Callable[[int, Floats32], Any]
"""Maps a partition's number and final states to a result."""


def run_reservoir(
    client: Client,
    graph: Manifest,
    spec: ReservoirSpec,
    finish: Finish | None,
    checkpoints: Checkpoints,
    progress: Counts = silent,
) -> list[Any]:
    """Run all supersteps and apply `finish` to each partition's final states.

    If a worker is lost, the supersteps since the last checkpoint are done again, with
    the same bits.

    Parameters
    ----------
    finish
        Maps partition number and states, shape (n_owned, d'), to a small result, which
        does not refer to the states; called on the worker that has them. None: final
        states stay as a checkpoint, whose files are the result.
    checkpoints
        Writes and resumes checkpoints; none are written where there are as many
        supersteps between two as in all.

    Returns
    -------
    list
        The results in partition order.

    Raises
    ------
    DoesNotFitError
        When workers are lost repeatedly without a checkpoint in between.
    ClusterError
        When the scheduler is lost, or no worker gives a sign of life.
    """

    def use(exchange: Exchange) -> list[Any]:
        try:
            return _drive(exchange, spec, finish, checkpoints, progress)
        except BaseException as ended:
            asked = not isinstance(ended, Exception)  # by a signal or an alarm
            if asked and checkpoints.every < spec.supersteps:
                _write_last(exchange, checkpoints)
            raise

    def reached() -> int:
        return checkpoints.latest()[0]

    return on_workers(client, graph, use, reached)


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


def checkpoint_interval(
    every: int | str, nodes: int, edges: int, dim: int, nonzeros: int, supersteps: int
) -> int:
    """Supersteps between checkpoints.

    ``auto``: as often as possible while writing takes less than a tenth of the time, at
    rates of a slow disk and one core; never, if all supersteps together take seconds.
    """
    if every != "auto":
        return int(every)
    step_seconds = (2.0 * nodes * dim * nonzeros + edges * dim) / FLOP_RATE
    if step_seconds * supersteps < 10.0:
        return supersteps
    write_seconds = 4.0 * nodes * dim / DISK_RATE
    return min(supersteps, max(1, ceil(write_seconds / (SHARE * step_seconds))))


def _drive(
    exchange: Exchange,
    spec: ReservoirSpec,
    finish: Finish | None,
    checkpoints: Checkpoints,
    progress: Counts,
) -> list[Any]:
    end = spec.supersteps
    first, stored = checkpoints.latest()
    if stored:
        if finish is None and first == end:
            return [*stored.files]
        log.info("resuming after superstep %d of %d", first, end)
    exchange.begin(first, Supersteps, spec, first, stored)
    progress(first, end)
    every, stride = checkpoints.every, 4
    while exchange.step < end:
        target = min(end, (exchange.step // every + 1) * every)
        # A few at a time, so that progress is reported.
        count = min(stride, STRIDE, target - exchange.step)
        began = time.perf_counter()
        exchange.advance(count)
        taken = (time.perf_counter() - began) / count
        stride = max(1, round(SECONDS / max(taken, 1e-6)))
        progress(exchange.step, end)
        if exchange.step == target < end:
            checkpoints.write(exchange)
    if finish is not None:
        return exchange.apply(finish)
    return checkpoints.write(exchange, kept=1)


def _write_last(exchange: Exchange, checkpoints: Checkpoints) -> None:
    """Write a checkpoint of an interrupted run, if it is later than the latest.

    Takes about the grace at most; logs the reason if none could be written.
    """
    grace = checkpoints.grace
    if not grace:
        return
    log.info("interrupted: a checkpoint is written first, within %g s", grace)
    exchange.deadline = time.monotonic() + grace
    try:
        exchange.complete()
        if exchange.step > checkpoints.latest()[0]:
            checkpoints.write(exchange)
            log.info("checkpoint after superstep %d written", exchange.step)
    except Exception as error:  # the interruption is what ends the run
        log.warning("no checkpoint was written (%s): the last one counts", error)


def _write_states(attempt: Attempt, number: int, states: Floats32) -> FileRecord:
    return attempt.write_arrays(f"state-{number:05d}", states=states)
