"""Work one step ahead on a thread, so that two processors share a chain of steps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

__all__ = ["OneBehind", "ahead"]

T = TypeVar("T")


def ahead(items: Iterable[T]) -> Iterator[T]:
    """The items, the next one being made while the last one is worked on.

    One item more is alive than without it; an item's error comes where it is due.
    """
    source = iter(items)
    end = object()
    with ThreadPoolExecutor(1) as maker:
        coming: Future[Any] = maker.submit(next, source, end)
        while (item := coming.result()) is not end:
            coming = maker.submit(next, source, end)
            yield item


class OneBehind:
    """Calls made on a thread, in order, one at a time; a context manager.

    A second call waits for the first, so that what at most one holds is alive. Its
    error comes with the next call, or at the end.
    """

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1)
        self._last: Future[Any] | None = None

    def __enter__(self) -> OneBehind:
        return self

    def __exit__(self, kind: Any, *_: object) -> None:
        try:
            if kind is None:
                self.wait()
        finally:
            self._pool.shutdown()

    def call(self, work: Callable[[], Any]) -> None:
        """Begin it as soon as the call before has ended."""
        self.wait()
        self._last = self._pool.submit(work)

    def wait(self) -> None:
        """Until nothing is under way; raises what went wrong."""
        last, self._last = self._last, None
        if last is not None:
            last.result()
