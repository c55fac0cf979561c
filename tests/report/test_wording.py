"""Formats of numbers on the page: missing values are empty."""

from __future__ import annotations

import doctest

from xnq_dist.report import wording
from xnq_dist.report.wording import count, difference, points, probability, span

NAN = float("nan")


def test_missing_numbers_are_written_as_nan():
    assert [count(None), points(NAN), probability(NAN)] == ["", "", ""]
    assert [span(0.1, NAN), difference(NAN, 0.1)] == ["", ""]
    assert difference(-0.1, 0.25) == "-10.0 to +25.0"
    assert doctest.testmod(wording).failed == 0
