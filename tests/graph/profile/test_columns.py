"""Counts of columns agree with the definition, for any batches and types."""

from __future__ import annotations

from collections import Counter
from datetime import date

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xnq_dist.graph.profile import columns
from xnq_dist.graph.profile.columns import ColumnCounter


def profile(*parts):
    counter = ColumnCounter("c")
    for part in parts:
        counter.add(part)
    return counter.finish()


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_counts_are_those_of_the_values(data):
    kind, values = data.draw(
        st.sampled_from(
            [
                (pa.int64(), st.integers(-3, 3)),
                (pa.string(), st.sampled_from(["a", "b", " a", "", "\u00e9"])),
                (pa.bool_(), st.booleans()),
                (pa.float64(), st.sampled_from([0.5, 1.0, -2.0, float("nan")])),
            ]
        )
    )
    rows = data.draw(st.lists(st.none() | values, max_size=40))
    cut = data.draw(st.integers(0, len(rows)))
    found = profile(pa.array(rows[:cut], kind), pa.array(rows[cut:], kind))
    there = [value for value in rows if value is not None and value == value]
    assert (found.rows, found.nulls) == (len(rows), len(rows) - len(there))
    assert dict(found.levels) == Counter(there)
    if there and kind != pa.string():
        assert (found.low, found.high) == (min(there), max(there))
        assert found.distinct == len(set(there))


@pytest.mark.parametrize(
    ("parts", "kind", "low"),
    [
        ([pa.array([date(2020, 1, 2)])], "dates", "2020-01-02"),
        ([pa.array([b"\xff"]).view(pa.string())], "text", None),
        ([pa.array([1]), pa.array([2.5])], "numbers", 1.0),
        ([pa.array([1]), pa.array(["x"])], "integers and text", 1),
        ([pa.nulls(2), pa.array([7], pa.uint8())], "integers", 7),
        ([pa.nulls(2)], "empty", None),
        ([pa.array([[1, 2]])], "list<item: int64>", None),
    ],
    ids=["dates", "bytes", "floats", "mixed", "nulls first", "nulls", "lists"],
)
def test_every_type_has_a_kind_and_a_range_where_it_has_one(parts, kind, low):
    found = profile(*parts)
    assert (found.kind, found.low) == (kind, low)


def test_columns_of_many_values_are_counted_up_to_a_bound(monkeypatch):
    monkeypatch.setattr(columns, "LEVELS", 10)
    few = [pa.array([row % 10 for row in range(50)])] * 20
    assert profile(*few).distinct == 10
    many = [pa.array(range(50 * part, 50 * part + 50)) for part in range(20)]
    assert profile(*many).distinct is None
    # The range is still that of all rows.
    assert profile(*many).high == 999
