"""Calls and row blocks on the threads of this process; BLAS has one thread."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, lru_cache
from typing import Any, TypeVar

from threadpoolctl import ThreadpoolController

from xnq_dist.core.limits import processors
from xnq_dist.core.progress import Counts, silent

__all__ = [
    "ROWS",
    "ahead",
    "for_each_block",
    "map_threads",
    "one_blas_thread",
    "threads_here",
]

MAX_THREADS = 8
"""Each thread may need its own working memory."""
T = TypeVar("T")
R = TypeVar("R")

ROWS = 256
"""Rows of a block: few enough for a processor's second-level cache."""


@cache  # reading the limits takes longer than the work on a batch of rows
def threads_here() -> int:
    """The processors that this process may use, at most `MAX_THREADS`."""
    return min(processors(), MAX_THREADS)


def map_threads(
    work: Callable[[T], R],
    items: Sequence[T],
    threads: int | None = None,
    progress: Counts = silent,
) -> list[R]:
    """Results of `work` for each item, in their order; an error is raised.

    After an error no further call starts. `threads`: maximum number; None:
    `threads_here`. `progress` is called with the numbers of results and of items.
    """
    count = min(threads or threads_here(), len(items))
    found: list[R] = []
    with ThreadPoolExecutor(max(count, 1)) as pool:
        # Without the pool, errors show the complete stack.
        results = pool.map(work, items) if count > 1 else map(work, items)
        try:
            for result in results:
                found.append(result)
                progress(len(found), len(items))
        finally:
            pool.shutdown(cancel_futures=True)
    return found


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


def ahead(items: Iterable[T]) -> Iterator[T]:
    """Yield the items; the next one is made on a thread while one is processed.

    One more item is in memory than without it. An error is raised where its item
    would have been yielded.
    """
    source = iter(items)
    end = object()
    with ThreadPoolExecutor(1) as maker:
        coming: Future[Any] = maker.submit(next, source, end)
        while (item := coming.result()) is not end:
            coming = maker.submit(next, source, end)
            yield item


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Run BLAS on one thread: a fixed order of sums, and faster on small blocks."""
    with _LIMIT.lock:
        if not _LIMIT.inside:
            _LIMIT.thread = ThreadPoolExecutor(1)
            limit = _libraries(len(sys.modules)).limit
            try:
                _LIMIT.held = _LIMIT.thread.submit(limit, limits=1, user_api="blas")
                _LIMIT.held.result()
            except BaseException:
                # A signal while the thread starts: the pool does not know it yet, and
                # the process would wait for it at its end.
                _LIMIT.thread.shutdown(wait=False)
                raise
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


@lru_cache(maxsize=1)
def _libraries(_modules: int) -> ThreadpoolController:
    """Loaded libraries with threads; an import may add one, so found again after it."""
    return ThreadpoolController()
