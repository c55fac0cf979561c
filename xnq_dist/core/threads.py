"""Calls on the threads of this process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from xnq_dist.core.limits import processors

__all__ = ["map_threads", "threads_here"]

MAX_THREADS = 8
"""Each thread may need its own working memory."""
T = TypeVar("T")
R = TypeVar("R")


def threads_here() -> int:
    """The processors that this process may use, at most `MAX_THREADS`."""
    return min(processors(), MAX_THREADS)


def map_threads(
    work: Callable[[T], R], items: Sequence[T], threads: int | None = None
) -> list[R]:
    """Results of `work` for each item, in their order; an error is raised.

    `threads`: maximum number; None: `threads_here`.
    """
    threads = threads_here() if threads is None else threads
    if min(threads, len(items)) <= 1:
        return [work(item) for item in items]
    with ThreadPoolExecutor(min(threads, len(items))) as pool:
        return list(pool.map(work, items))
