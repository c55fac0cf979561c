"""Keeps signals of a terminal or batch job from worker processes.

Such signals go to all processes of a command. Only the client handles them, and it ends
its workers. Workers that received them too would print tracebacks, and would be started
again while the client ends.
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
    """Block a terminal's signals for processes and threads started in the block.

    They are blocked for this thread too while the block runs. The process receives them
    afterwards, or at once in the main thread if this is another thread.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, OF_A_TERMINAL)
    try:
        # Start it now: started with the first worker, it would unblock the signals.
        resource_tracker.ensure_running()
        signal.pthread_sigmask(signal.SIG_BLOCK, OF_A_TERMINAL)
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
