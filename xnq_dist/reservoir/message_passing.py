"""All supersteps of reservoirs on the workers, with checkpoints and recovery.

A worker computes one with `states.Supersteps`, its arithmetic is in `superstep`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from xnq_dist.core.arrays import Floats32
from xnq_dist.core.progress import Counts, uncounted
from xnq_dist.core.store import Manifest
from xnq_dist.reservoir.checkpoint import Checkpoints
from xnq_dist.reservoir.context import ReservoirSpec
from xnq_dist.reservoir.exchange import Exchange, on_workers
from xnq_dist.reservoir.states import Supersteps

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["run_reservoir"]

log = logging.getLogger(__name__)

STRIDE, SECONDS = 64, 2.0
"""Maximum number of supersteps of one task, and its approximate duration: a signal
waits for its end."""

Finish = Callable[[int, Floats32], Any]


def run_reservoir(
    client: Client,
    graph: Manifest,
    spec: ReservoirSpec,
    finish: Finish | None,
    checkpoints: Checkpoints,
    progress: Counts = uncounted,
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
