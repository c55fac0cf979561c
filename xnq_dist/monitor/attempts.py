"""A limit of time for a run, and further attempts when infrastructure was lost."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from xnq_dist.core.errors import InfrastructureError
from xnq_dist.core.failures import place_of

__all__ = ["limited", "repeated"]

log = logging.getLogger(__name__)

T = TypeVar("T")

CLEANUP = 300.0
"""Seconds after the timeout for workers to end; then this process is ended."""


class _TimedOut(BaseException):
    """No `Exception`, which a stage would explain or a retry would answer."""


@contextmanager
def limited(seconds: float | None) -> Iterator[None]:
    """End the block after some time, wherever it is; None: never.

    An alarm raises an exception in the main thread, so that workers are closed and the
    lock is released. A thread that does not return from foreign code cannot raise it:
    its process ends `CLEANUP` seconds later, and so do its workers.

    Raises
    ------
    InfrastructureError
        When the time is over.
    """
    if seconds is None or threading.current_thread() is not threading.main_thread():
        yield
        return

    def ring(_number: int, _frame: Any) -> None:
        raise _TimedOut

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    last = threading.Timer(
        seconds + CLEANUP, os._exit, (InfrastructureError.exit_code,)
    )
    last.daemon = True
    last.start()
    try:
        yield
    except _TimedOut as error:
        place = place_of(error) or "the run"
        raise InfrastructureError(
            f"{place} was ended because the run took longer than its parameter timeout "
            f"({seconds:g} s): if its log lines show progress set timeout to more, and "
            "start the run again to resume"
        ) from error
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        last.cancel()


def repeated(work: Callable[[], T], retries: int, delay: float) -> T:
    """Call `work`, and again if infrastructure was lost; it resumes where it stopped.

    Parameters
    ----------
    retries
        Calls after the first.
    delay
        Seconds before each of them.

    Raises
    ------
    XnqError
        Of the last call; of the first, if it is not an `InfrastructureError`.
    """
    for attempt in range(1, retries + 1):
        try:
            return work()
        except InfrastructureError as error:
            text = "%s; starting again in %g s (%d of %d)"
            log.warning(text, error, delay, attempt, retries)
            time.sleep(delay)
    return work()
