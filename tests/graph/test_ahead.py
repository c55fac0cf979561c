"""Work ahead on a thread: same order, errors raised, limited number in memory."""

from __future__ import annotations

import pytest

from xnq_dist.core.threads import ahead


def test_items_come_out_in_order_and_one_is_made_ahead():
    made: list[int] = []

    def numbers():
        for number in range(6):
            made.append(number)
            yield number

    for at, number in enumerate(ahead(numbers())):
        assert number == at
        assert len(made) <= number + 2
    assert len(made) == 6
    assert list(ahead([None, None])) == [None, None]


def test_an_error_while_making_is_raised():
    def broken():
        yield 1
        raise ValueError("second")

    items = ahead(broken())
    assert next(items) == 1
    with pytest.raises(ValueError, match="second"):
        next(items)
