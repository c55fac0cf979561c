"""Calls on the threads of this process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TypeVar

from xnq_dist.core.limits import processors
from xnq_dist.core.progress import Counts, uncounted

__all__ = ["map_threads", "threads_here"]

MAX_THREADS = 8
"""Each thread may need its own working memory."""
T = TypeVar("T")
R = TypeVar("R")


@cache  # reading the limits takes longer than the work on a batch of rows
def threads_here() -> int:
    """The processors that this process may use, at most `MAX_THREADS`."""
    return min(processors(), MAX_THREADS)


def map_threads(
    work: Callable[[T], R],
    items: Sequence[T],
    threads: int | None = None,
    progress: Counts = uncounted,
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
