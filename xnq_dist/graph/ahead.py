"""Overlap consecutive steps of a pipeline by running one of them on a thread."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

__all__ = ["ahead"]

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
