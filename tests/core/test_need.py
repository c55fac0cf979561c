"""Sizes in bytes: invalid sizes are refused."""

from __future__ import annotations

import doctest

import pytest

from xnq_dist.core import need
from xnq_dist.core.need import check_size, parse_bytes


@pytest.mark.parametrize("text", ["", "GiB", "1 XB", "0"])
def test_sizes_that_cannot_be_read_are_refused(text):
    with pytest.raises(ValueError, match="is not a size"):
        parse_bytes(text)
    with pytest.raises(ValueError, match="is not a size"):
        check_size(text)


def test_auto_and_units_are_read():
    assert check_size("2 kB") == "2 kB"
    assert parse_bytes("2 kB") == 2000
    assert parse_bytes(7) == 7
    assert doctest.testmod(need).failed == 0
