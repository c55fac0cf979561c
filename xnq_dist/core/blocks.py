"""Distributes row blocks over threads, and limits BLAS to one thread."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray
from threadpoolctl import ThreadpoolController

from xnq_dist.core.threads import map_threads

__all__ = ["ROWS", "Spare", "for_each_block", "one_blas_thread"]

ROWS = 256
"""Rows of a block: few enough for a processor's second-level cache."""


class _OneBlasThread:
    """Limits the process's BLAS to one thread while any thread is in the block.

    The limit belongs to the process and threads of a worker overlap, so the first
    thread to enter sets it and the last one to leave resets it. A separate thread does
    both, because only the thread that set a limit can undo it.
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


@lru_cache(maxsize=1)
def _libraries(_modules: int) -> ThreadpoolController:
    """Loaded libraries with threads; an import may add one, so found again after it."""
    return ThreadpoolController()


def _hold(held: threading.Event, done: threading.Event) -> None:
    try:
        with _libraries(len(sys.modules)).limit(limits=1, user_api="blas"):
            held.set()
            done.wait()
    finally:
        held.set()


_LIMIT = _OneBlasThread()


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Run BLAS on one thread: a fixed order of sums, and faster on small blocks."""
    with _LIMIT:
        yield


def for_each_block(
    rows: int, threads: int, work: Callable[[int, int], None], size: int = ROWS
) -> None:
    """Call ``work(first, last)`` for every block of rows, on `threads` threads."""
    left = iter(range(0, rows, size))

    def work_on(_thread: int) -> None:
        # Threads share the iterator: a future for each block takes longer than a block.
        for first in left:
            work(first, min(first + size, rows))

    threads = min(threads, -(-rows // size))
    map_threads(work_on, range(max(threads, 1)), threads)


class Spare:
    """Arrays of one shape that threads borrow instead of allocating for every block."""

    def __init__(self, shape: tuple[int, int], dtype: DTypeLike = np.float32) -> None:
        self._shape, self._dtype = shape, dtype
        self._free: list[NDArray[Any]] = []

    @contextmanager
    def borrow(self) -> Iterator[NDArray[Any]]:
        """An array with any values, until the end of the block."""
        try:
            array = self._free.pop()
        except IndexError:
            array = np.zeros(self._shape, self._dtype)
        try:
            yield array
        finally:
            self._free.append(array)
