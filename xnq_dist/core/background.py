"""A resource that opens while something else is done, and closes likewise.

The context manager is entered and left by one thread of its own: what takes seconds to
start (processes, servers) starts beside the caller's work.
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
"""Makes a context manager, as a function with that decorator does."""


@contextmanager
def opened_in_background(make: Opener[T]) -> Iterator[Opener[T]]:
    """Begin to open a resource; the block gets what waits for it.

    Parameters
    ----------
    make
        Makes the context manager that a thread enters at once. The thread leaves it
        when the block that was given the resource ends, and at the end of this block
        at the latest.

    Yields
    ------
    Opener
        To be called once: a context manager that waits until the resource is open and
        gives it. What opening raised is raised there; what closing raised, at the end
        of this block. Where another error ends the block, theirs are logged.
    """
    ready: Future[T] = Future()
    wanted_no_more = threading.Event()
    unheard: list[BaseException] = []

    def hold() -> None:
        try:
            with make() as value:
                ready.set_result(value)
                wanted_no_more.wait()
        except BaseException as error:  # whatever it is, it is the caller's
            if not ready.done():
                ready.set_exception(error)
            unheard.append(error)

    @contextmanager
    def opened() -> Iterator[T]:
        try:
            value = ready.result()
        except BaseException:
            unheard.clear()
            raise
        try:
            yield value
        finally:
            wanted_no_more.set()

    thread = threading.Thread(target=hold, name=f"holds {make!r:.60}")
    thread.start()
    try:
        yield opened
    except BaseException:
        _end(thread, wanted_no_more)
        for error in unheard:
            log.warning("beside what follows: %s: %s", type(error).__name__, error)
        raise
    _end(thread, wanted_no_more)
    for error in unheard:
        raise error


def _end(thread: threading.Thread, wanted_no_more: threading.Event) -> None:
    wanted_no_more.set()
    thread.join()
