"""Opening in the background: errors are raised, opened resources are closed."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from xnq_dist.core.background import opened_in_background


class Door:
    """A resource that records its state."""

    def __init__(
        self, broken: Exception | None = None, stuck: Exception | None = None
    ) -> None:
        self.may_open = threading.Event()
        self.may_open.set()
        self.said: list[str] = []
        self.threads: set[int] = set()
        self.broken = broken
        self.stuck = stuck

    @contextmanager
    def __call__(self) -> Iterator[str]:
        self.may_open.wait(30)
        self.threads.add(threading.get_ident())
        if self.broken:
            raise self.broken
        self.said.append("open")
        try:
            yield "room"
        finally:
            self.threads.add(threading.get_ident())
            self.said.append("closed")
            if self.stuck:
                raise self.stuck


def test_the_block_goes_on_while_it_opens():
    door = Door()
    door.may_open.clear()
    with opened_in_background(door) as opened:
        assert door.said == []  # we are here, it is not open
        door.may_open.set()
        with opened() as room:
            assert room == "room"
            assert door.said == ["open"]
    assert door.said == ["open", "closed"]
    assert len(door.threads) == 1
    assert threading.get_ident() not in door.threads


def test_an_error_while_opening_is_raised_once_at_the_wait():
    with opened_in_background(Door(OSError("no port"))) as opened:  # noqa: SIM117
        with pytest.raises(OSError, match="no port"), opened():
            pytest.fail("it is not open")


def test_an_error_without_a_wait_is_raised_at_the_end():
    with (
        pytest.raises(OSError, match="no port"),
        opened_in_background(Door(OSError("no port"))),
    ):
        pass
    door = Door(stuck=OSError("stuck"))
    with pytest.raises(OSError, match="stuck"), opened_in_background(door) as opened:  # noqa: SIM117
        with opened():
            pass


def test_an_error_of_the_block_closes_it_and_comes_first(caplog):
    door = Door()
    with pytest.raises(SystemExit), opened_in_background(door) as opened, opened():
        raise SystemExit(143)
    assert door.said == ["open", "closed"]
    broken = Door(OSError("no port"))
    with (
        caplog.at_level(logging.WARNING),
        pytest.raises(KeyError, match="ours"),
        opened_in_background(broken),
    ):
        raise KeyError("ours")
    assert "OSError: no port" in caplog.text


def test_what_is_still_opening_when_the_block_fails_is_closed():
    door = Door()
    door.may_open.clear()
    later = threading.Timer(0.2, door.may_open.set)
    later.start()
    with pytest.raises(SystemExit), opened_in_background(door):
        raise SystemExit(143)
    assert door.said == ["open", "closed"]
