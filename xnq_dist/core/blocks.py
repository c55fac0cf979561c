"""Distributes row blocks over threads, and limits BLAS to one thread."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from threadpoolctl import ThreadpoolController

from xnq_dist.core.threads import map_threads

__all__ = ["ROWS", "for_each_block", "one_blas_thread"]

ROWS = 256
"""Rows of a block: few enough for a processor's second-level cache."""


@lru_cache(maxsize=1)
def _libraries(_modules: int) -> ThreadpoolController:
    """Loaded libraries with threads; an import may add one, so found again after it."""
    return ThreadpoolController()


@dataclass
class _Limit:
    """The limit of one BLAS thread, which belongs to the process."""

    inside: int = 0
    """Threads that are in the block: the first one sets the limit, the last resets."""
    held: Any = None
    thread: Any = None
    """A thread that does both: only the one that set a limit can undo it."""
    lock: threading.Lock = field(default_factory=threading.Lock)


_LIMIT = _Limit()


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Run BLAS on one thread: a fixed order of sums, and faster on small blocks."""
    with _LIMIT.lock:
        if not _LIMIT.inside:
            _LIMIT.thread = ThreadPoolExecutor(1)
            limit = _libraries(len(sys.modules)).limit
            _LIMIT.held = _LIMIT.thread.submit(limit, limits=1, user_api="blas")
            _LIMIT.held.result()
        _LIMIT.inside += 1
    try:
        yield
    finally:
        with _LIMIT.lock:
            _LIMIT.inside -= 1
            if not _LIMIT.inside:
                reset = _LIMIT.held.result().restore_original_limits
                _LIMIT.thread.submit(reset).result()
                _LIMIT.thread.shutdown()


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
