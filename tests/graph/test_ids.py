from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xnq_dist.core.errors import DoesNotFitError, InputError
from xnq_dist.graph import ids as module
from xnq_dist.graph.ids import NodeIds

INT64 = st.integers(-(2**63), 2**63 - 1)


def chunked(values, kind, at=0):
    """Slices of an array."""
    array = pa.array(values, kind)
    return pa.chunked_array([array[:at], array[at:]])


def check(values, others, kind):
    found, index = NodeIds.from_column(chunked(values, kind, len(values) // 2))
    key = (lambda v: str(v).encode()) if kind == pa.string() else None
    ranked = sorted(values, key=key)
    assert found.values.to_pylist() == ranked
    assert found.type == str(kind)
    assert [ranked[at] for at in index] == values
    asked = [*others, *values, *others]
    due = [ranked.index(value) if value in values else -1 for value in asked]
    assert found.index_of(chunked(asked, kind, 1)).tolist() == due


KINDS = {
    "sparse integers": (pa.int64(), INT64, INT64),
    "dense integers": (pa.int64(), st.integers(-9, 9), INT64 | st.just(0)),
    "integers with equal low bits": (
        pa.int64(),
        st.integers(-20, 20).map(lambda value: value << 40),
        INT64 | st.integers(-20, 20).map(lambda value: value << 40),
    ),
    "end of int64": (pa.int64(), st.integers(2**63 - 6, 2**63 - 1), INT64),
    "text": (pa.string(), st.text(), st.text()),
}


@pytest.mark.parametrize("name", KINDS)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_ids_are_ranked_and_found(name, data):
    """Text by its bytes."""
    kind, known, asked = KINDS[name]
    values = data.draw(st.lists(known, min_size=1, unique=True))
    check(values, data.draw(st.lists(asked)), kind)


@pytest.mark.parametrize("kind", [pa.int64(), pa.string()], ids=str)
def test_an_id_that_occurs_twice_is_named(kind):
    column = pa.chunked_array([pa.array([7, 8, 9, 8]).cast(kind)])
    with pytest.raises(InputError, match=r"node id '?8'? occurs more than once"):
        NodeIds.from_column(column)


def test_more_nodes_than_int32_holds_are_refused(
    monkeypatch,
):
    monkeypatch.setattr(module, "MAX_NODES", 2)
    with pytest.raises(DoesNotFitError, match="has 3 nodes and the maximum is 2"):
        NodeIds.from_column(chunked([1, 2, 3], pa.int64()))


def test_an_integer_and_its_text_are_the_same_id():
    numbers, _ = NodeIds.from_column(chunked([1, -2, 10, 2**63 - 1], pa.int64()))
    # The text of another number, of another form, or of one beyond 64 bits is unknown.
    asked = pa.array(["1", "-2", "01", "+1", "x", "10", str(2**63 - 1), str(2**63)])
    assert numbers.index_of(asked).tolist() == [1, 0, -1, -1, -1, 2, 3, -1]
    text, _ = NodeIds.from_column(chunked(["1", "02", str(2**64)], pa.string()))
    assert text.index_of(pa.array([1, 2, 3])).tolist() == [1, -1, -1]


def test_ids_of_equal_hash_are_refused_and_unknown_text_is_told_apart(monkeypatch):
    monkeypatch.setattr(module, "text_hashes", lambda at, _: np.ones(len(at) - 1, int))
    with pytest.raises(InputError, match="two node ids have the same hash"):
        NodeIds.from_column(chunked(["aaa", "bbb"], pa.string()))
    # A string that is not there has the hash of one that is.
    one, _ = NodeIds.from_column(chunked(["aaa"], pa.string()))
    asked = pa.array(["cc", "bbb", "aaa"])
    assert one.index_of(asked).tolist() == [-1, -1, 0]
