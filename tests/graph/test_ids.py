from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xnq_dist.core.errors import DoesNotFitError, InputError
from xnq_dist.graph import ids as module
from xnq_dist.graph.ids import NodeIds

INT64 = st.integers(-(2**63), 2**63 - 1)


def chunked(values, kind, at=0):
    return pa.chunked_array(
        [pa.array(values[:at], kind), pa.array(values[at:], kind)], kind
    )


def check(values, others, kind):
    found, index = NodeIds.from_column(chunked(values, kind, len(values) // 2))
    key = (lambda v: str(v).encode()) if kind == pa.string() else None
    ranked = sorted(values, key=key)
    assert found.values.to_pylist() == ranked
    assert len(found) == len(values)
    assert [ranked[at] for at in index] == values
    asked = [*others, *values, *others]
    due = [ranked.index(value) if value in values else -1 for value in asked]
    assert found.index_of(chunked(asked, kind, 1)).tolist() == due


@settings(deadline=None)
@given(st.lists(INT64, min_size=1, unique=True), st.lists(INT64))
def test_sparse_integers_are_ranked_and_found(values, others):
    check(values, others, pa.int64())


@settings(deadline=None)
@given(
    st.lists(st.integers(-9, 9), min_size=1, unique=True), st.lists(INT64 | st.just(0))
)
def test_dense_integers_are_ranked_and_found(values, others):
    check(values, others, pa.int64())


@settings(deadline=None)
@given(st.permutations(range(2**63 - 6, 2**63)), st.lists(INT64))
def test_consecutive_integers_at_the_end_of_int64_are_exact(values, others):
    check(values, others, pa.int64())


@settings(deadline=None)
@given(st.lists(st.text(), min_size=1, unique=True), st.lists(st.text()))
def test_strings_are_ranked_by_bytes_and_found(values, others):
    check(values, others, pa.string())


def test_the_type_of_ids_is_recognised():
    assert NodeIds.from_column(chunked([4], pa.int64()))[0].type == "int64"
    found = NodeIds.from_column(chunked(["b", "a"], pa.string()))[0]
    assert (found.type, found.name(0)) == ("string", "'a'")


def test_slices_of_strings_are_looked_up_where_they_begin():
    found, _ = NodeIds.from_column(chunked(["aa", "b", "ccc"], pa.string()))
    asked = pa.array(["x", "ccc", "b", "", "aa"])
    assert found.index_of(asked.slice(1)).tolist() == [2, 1, -1, 0]
    assert found.index_of(asked.slice(2, 0)).tolist() == []
    large = asked.cast(pa.large_string()).slice(4)
    assert found.index_of(large).tolist() == [0]


@pytest.mark.parametrize("kind", [pa.int64(), pa.string()], ids=str)
def test_an_id_that_occurs_twice_is_named(kind):
    column = pa.chunked_array([pa.array([7, 8, 9, 8]).cast(kind)])
    with pytest.raises(InputError, match=r"node id '?8'? occurs more than once"):
        NodeIds.from_column(column)


def test_an_integer_and_its_text_are_the_same_id():
    numbers, _ = NodeIds.from_column(chunked([1, -2, 10], pa.int64()))
    asked = pa.array(["1", "-2", "01", "+1", "x", "10", "1.0", "9" * 30])
    assert numbers.index_of(asked).tolist() == [1, 0, -1, -1, -1, 2, -1, -1]
    text, _ = NodeIds.from_column(chunked(["1", "02", str(2**64)], pa.string()))
    assert text.index_of(pa.array([1, 2, 3])).tolist() == [1, -1, -1]


def test_more_nodes_than_int32_holds_are_refused(
    monkeypatch,
):
    monkeypatch.setattr(module, "MAX_NODES", 2)
    with pytest.raises(DoesNotFitError, match="has 3 nodes and the maximum is 2"):
        NodeIds.from_column(chunked([1, 2, 3], pa.int64()))


def test_strings_with_the_same_hash_are_told_apart(monkeypatch):
    real = module.text_hashes

    def alike(offsets, data, start=module.HASH_START):
        hashes = real(offsets, data, start)
        return hashes * 0 if start == module.HASH_START else hashes

    monkeypatch.setattr(module, "text_hashes", alike)
    found, _ = NodeIds.from_column(chunked(["aaa", "bbb", "cc"], pa.string()))
    asked = pa.array(["cc", "bbb", "ddd", "aaa"])
    assert found.index_of(asked).tolist() == [2, 1, -1, 0]
    # A string that is not there has the hash of one that is.
    one, _ = NodeIds.from_column(chunked(["aaa"], pa.string()))
    assert one.index_of(asked).tolist() == [-1, -1, -1, 0]
