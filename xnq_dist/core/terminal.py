"""Keeps signals of a terminal or batch job from worker processes.

Such signals go to all processes of a command. Only the client handles them, and it ends
its workers. Workers that received them too would print tracebacks, and would be started
again while the client ends.

SIGTERM is delayed instead, because it is also what ends a worker that its supervisor
gave up. systemd, and Prefect when it cancels a run, send it to all processes at once: a
client that writes its last checkpoint needs the workers.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import resource_tracker
from typing import Any

__all__ = ["delay_end", "kept_from_children"]

OF_A_TERMINAL = (signal.SIGINT, signal.SIGHUP)
DELAY = 30.0
"""Seconds from SIGTERM to the end of a worker; SIGKILL follows from most senders."""


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


def delay_end() -> None:
    """Let SIGTERM end this process `DELAY` seconds later, unless it has a handler."""

    def end(number: int, _frame: Any) -> None:
        later = threading.Timer(DELAY, os._exit, (128 + number,))
        later.daemon = True
        later.start()

    if (
        threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    ):
        signal.signal(signal.SIGTERM, end)
