"""Overlap consecutive steps of a pipeline by running one of them on a thread."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

__all__ = ["BackgroundCalls", "ahead"]

T = TypeVar("T")


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


class BackgroundCalls:
    """Calls made on a thread, in order, one at a time; a context manager.

    A call waits for the one before, so that the data of one call at most is in memory.
    An error is raised by the next call, or at the end of the block.
    """

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1)
        self._last: Future[Any] | None = None

    def __enter__(self) -> BackgroundCalls:
        return self

    def __exit__(self, kind: Any, *_: object) -> None:
        try:
            if kind is None:
                self.wait()
        finally:
            self._pool.shutdown()

    def call(self, work: Callable[[], Any]) -> None:
        """Wait for the previous call, then start this one and return."""
        self.wait()
        self._last = self._pool.submit(work)

    def wait(self) -> None:
        """Wait for the last call; raise its error."""
        last, self._last = self._last, None
        if last is not None:
            last.result()
