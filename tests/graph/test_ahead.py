"""Work ahead on a thread: same order, errors raised, limited number in memory."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from xnq_dist.graph.ahead import BackgroundCalls, ahead


def test_items_come_out_in_order() -> None:
    assert list(ahead(range(50))) == list(range(50))
    assert list(ahead([])) == []
    assert list(ahead([None, None])) == [None, None]


def test_at_most_one_item_is_made_ahead() -> None:
    made: list[int] = []

    def numbers() -> Iterator[int]:
        for number in range(6):
            made.append(number)
            yield number

    for number in ahead(numbers()):
        assert len(made) <= number + 2


def test_an_error_while_making_is_raised() -> None:
    def broken() -> Iterator[int]:
        yield 1
        raise ValueError("second")

    items = ahead(broken())
    assert next(items) == 1
    with pytest.raises(ValueError, match="second"):
        next(items)


def test_calls_run_one_after_the_other_in_order() -> None:
    done: list[int] = []
    inside = threading.Semaphore(1)

    def work(number: int) -> None:
        assert inside.acquire(blocking=False)
        done.append(number)
        inside.release()

    with BackgroundCalls() as behind:
        for number in range(20):
            behind.call(lambda number=number: work(number))
    assert done == list(range(20))


def test_the_error_of_the_last_call_is_raised() -> None:
    def broken() -> None:
        raise ValueError("behind")

    with pytest.raises(ValueError, match="behind"), BackgroundCalls() as behind:
        behind.call(broken)
    with BackgroundCalls() as behind:
        behind.call(broken)
        with pytest.raises(ValueError, match="behind"):
            behind.call(lambda: None)


def test_the_error_of_the_block_comes_first() -> None:
    def block() -> None:
        with BackgroundCalls() as behind:
            behind.call(lambda: 1 / 0)
            raise KeyError("of the block itself")

    with pytest.raises(KeyError):
        block()
