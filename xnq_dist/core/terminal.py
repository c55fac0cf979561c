"""Signals of a terminal or batch job, which go to all processes of a command at once.

They are the client's: it ends its workers. Workers that took them as well would print
tracebacks, and be started again while the client ends.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import resource_tracker

__all__ = ["kept_from_children"]

OF_A_TERMINAL = (signal.SIGINT, signal.SIGHUP)


@contextmanager
def kept_from_children() -> Iterator[None]:
    """Processes and threads that the block starts do not see a terminal's signals.

    This thread does not either, for as long as the block takes: a process receives
    them in its main thread afterwards, or meanwhile where this is another one.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, OF_A_TERMINAL)
    try:
        # It would be started with the first worker, and unblock what is blocked here.
        resource_tracker.ensure_running()
        signal.pthread_sigmask(signal.SIG_BLOCK, OF_A_TERMINAL)
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
