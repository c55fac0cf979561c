"""Supersteps of one reservoir on the workers, with checkpoints and recovery."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from xnq_dist.core.arrays import Floats32
from xnq_dist.core.progress import Progress, silent
from xnq_dist.core.store import Manifest, Stage
from xnq_dist.core.waiting import Heartbeats
from xnq_dist.reservoir.checkpoint import KEPT, Checkpoints, write_states
from xnq_dist.reservoir.context import ReservoirSpec
from xnq_dist.reservoir.exchange import Exchange, again_if_lost
from xnq_dist.reservoir.states import Supersteps

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["run_reservoir"]

log = logging.getLogger(__name__)

R = TypeVar("R")

STRIDE, SECONDS = 64, 2.0
"""Maximum number of supersteps of one task, and its approximate duration: a signal
waits for its end."""


def run_reservoir(
    client: Client,
    graph: Stage,
    manifest: Manifest,
    spec: ReservoirSpec,
    finish: Callable[[int, Floats32], R] | None,
    checkpoints: Checkpoints | None = None,
    every: int | None = None,
    timeout: float | None = None,
    progress: Progress = silent,
    grace: float = 0.0,
) -> list[R]:
    """Run all supersteps and apply `finish` to each partition's final states.

    If a worker is lost, the supersteps since the last checkpoint are done again, with
    the same bits.

    Parameters
    ----------
    finish
        Maps partition number and states, shape (n_owned, d'), to a small result; called
        on the worker that has the states. None: final states stay as a checkpoint.
    checkpoints
        Writes and resumes checkpoints; None: no checkpoints.
    every
        Supersteps between two checkpoints; None: no checkpoints.
    timeout
        Seconds without a sign of life after which a worker is lost; also the maximum
        wait for a new worker if all are lost. None: `waiting.TIMEOUT`.
    grace
        Seconds to write a checkpoint when a signal ends the run.

    Returns
    -------
    list
        The results in partition order; empty without `finish`.

    Raises
    ------
    DoesNotFitError
        When workers are lost repeatedly without a checkpoint in between.
    ClusterError
        When the scheduler is lost, or no worker gives a sign of life.
    """
    beats = Heartbeats(client, timeout)

    def once(suspects: frozenset[str]) -> list[R]:
        with closing(Exchange(client, graph, manifest, beats, suspects)) as used:
            try:
                return _drive(used, spec, finish, checkpoints, every, progress)
            except BaseException as ended:
                asked = not isinstance(ended, Exception)  # by a signal or an alarm
                if asked and checkpoints and grace and (every or 0) < spec.supersteps:
                    _write_last(used, checkpoints, max(1, reached()), grace)
                raise

    def reached() -> int:
        latest = checkpoints.latest() if checkpoints else None
        return latest[0] if latest else 0

    return again_if_lost(beats, once, reached)


def _drive(
    exchange: Exchange,
    spec: ReservoirSpec,
    finish: Callable[[int, Floats32], R] | None,
    checkpoints: Checkpoints | None,
    every: int | None,
    progress: Progress,
) -> list[R]:
    latest = checkpoints.latest() if checkpoints else None
    if latest:
        log.info("resuming after superstep %d of %d", latest[0], spec.supersteps)
    exchange.begin(latest[0] if latest else 1, Supersteps, spec, latest)
    progress("supersteps", exchange.step, spec.supersteps)
    stride = 4
    while exchange.step < spec.supersteps:
        target = spec.supersteps
        if every is not None:
            target = min(target, (exchange.step // every + 1) * every)
        # A few at a time, so that progress is reported.
        count = min(stride, STRIDE, target - exchange.step)
        began = time.perf_counter()
        exchange.advance(count)
        taken = (time.perf_counter() - began) / count
        stride = max(1, round(SECONDS / max(taken, 1e-6)))
        progress("supersteps", exchange.step, spec.supersteps)
        if checkpoints and exchange.step == target < spec.supersteps:
            _write_checkpoint(exchange, checkpoints)
    if finish is not None:
        return exchange.apply(finish)
    if checkpoints:
        _write_checkpoint(exchange, checkpoints, kept=1)
    return []


def _write_checkpoint(
    exchange: Exchange, checkpoints: Checkpoints, kept: int = KEPT
) -> None:
    began = time.perf_counter()
    attempt = checkpoints.begin(exchange.step)
    files = exchange.apply(partial(write_states, attempt))
    seconds = time.perf_counter() - began
    checkpoints.commit(exchange.step, attempt, files, seconds, kept)


def _write_last(
    exchange: Exchange, checkpoints: Checkpoints, reached: int, grace: float
) -> None:
    """Write a checkpoint of an interrupted run, if it is later than `reached`.

    Takes about `grace` seconds at most; logs the reason if none could be written.
    """
    log.info("interrupted: a checkpoint is written first, within %g s", grace)
    exchange.deadline = time.monotonic() + grace
    try:
        exchange.complete()
        if exchange.step > reached:
            _write_checkpoint(exchange, checkpoints)
            log.info("checkpoint after superstep %d written", exchange.step)
    except Exception as error:  # the interruption is what ends the run
        log.warning("no checkpoint was written (%s): the last one counts", error)
