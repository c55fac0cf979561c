"""Row blocks spread over threads, and BLAS on one thread where it is used."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from threadpoolctl import threadpool_limits

__all__ = ["ROWS", "for_each_block", "one_blas_thread"]

ROWS = 256
"""Rows of a block: few enough for a processor's second cache."""


class _OneBlasThread:
    """The process's BLAS limit, held while any thread is inside.

    The first thread in sets it, the last one out puts it back: threads of a worker
    overlap, and the setting belongs to the process. A thread of its own holds it, for
    only the thread that made a limit can undo it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._done = threading.Event()
        self._holder: threading.Thread | None = None

    def __enter__(self) -> None:
        with self._lock:
            if not self._inside:
                held, self._done = threading.Event(), threading.Event()
                self._holder = threading.Thread(
                    target=_hold, args=(held, self._done), daemon=True
                )
                self._holder.start()
                held.wait()
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside and self._holder is not None:
                self._done.set()
                self._holder.join()


def _hold(held: threading.Event, done: threading.Event) -> None:
    try:
        with threadpool_limits(limits=1, user_api="blas"):
            held.set()
            done.wait()
    finally:
        held.set()


_LIMIT = _OneBlasThread()


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """BLAS on one thread inside: a fixed order of sums, faster on small blocks."""
    with _LIMIT:
        yield


def for_each_block(
    rows: int, threads: int, work: Callable[[int, int], None], size: int = ROWS
) -> None:
    """Call ``work(first, last)`` for every block of rows, on up to so many threads."""
    starts = range(0, rows, size)
    if threads <= 1 or len(starts) <= 1:
        for first in starts:
            work(first, min(first + size, rows))
        return
    with ThreadPoolExecutor(threads) as pool:
        for _ in pool.map(lambda s: work(s, min(s + size, rows)), starts):
            pass
