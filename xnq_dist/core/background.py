"""Opens and closes a resource in the background.

A separate thread enters and leaves the context manager, so that resources that take
seconds to start (processes, servers) start in parallel with the caller's work.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager
from typing import TypeVar

__all__ = ["Opener", "opened_in_background"]

log = logging.getLogger(__name__)

T = TypeVar("T")
Opener = Callable[[], AbstractContextManager[T]]
"""Makes a context manager, like a function decorated with `contextmanager`."""


@contextmanager
def opened_in_background(make: Opener[T]) -> Iterator[Opener[T]]:
    """Open a resource in the background; yield an opener that waits for it.

    Parameters
    ----------
    make
        Makes the context manager, which a thread enters at once. The thread leaves it
        when the block that uses the resource ends, or at the end of this block.

    Yields
    ------
    Opener
        To be called once: a context manager that waits until the resource is open and
        yields it. It raises errors of opening; errors of closing are raised at the end
        of this block. If another error ends the block, these errors are logged.
    """
    ready: Future[T] = Future()
    released = threading.Event()
    not_raised: list[BaseException] = []

    def hold() -> None:
        try:
            with make() as value:
                ready.set_result(value)
                released.wait()
        except BaseException as error:  # passed to the caller, who raises it
            if not ready.done():
                ready.set_exception(error)
            not_raised.append(error)

    @contextmanager
    def opened() -> Iterator[T]:
        try:
            value = ready.result()
        except BaseException:
            not_raised.clear()
            raise
        try:
            yield value
        finally:
            released.set()

    thread = threading.Thread(target=hold, name=f"holds {make!r:.60}")
    thread.start()
    try:
        yield opened
    except BaseException:
        _end(thread, released)
        for error in not_raised:
            log.warning("another error first: %s: %s", type(error).__name__, error)
        raise
    _end(thread, released)
    for error in not_raised:
        raise error


def _end(thread: threading.Thread, released: threading.Event) -> None:
    released.set()
    thread.join()
