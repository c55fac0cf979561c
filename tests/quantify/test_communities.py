"""Reading of memberships: names, members, errors, batches."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from tests.quantify.samples import members_of
from xnq_dist.core.config import load_settings
from xnq_dist.core.errors import InputError
from xnq_dist.graph.ids import NodeIds
from xnq_dist.graph.sort import PairSorter
from xnq_dist.graph.tables import open_table
from xnq_dist.quantify import communities as sets
from xnq_dist.quantify import interface

INTEGERS = NodeIds(pa.array([10, 20, 30, 40], pa.int64()))
STRINGS = NodeIds(pa.array(["a", "b", "c"]))


def read(folder, community, member, nodes=INTEGERS, *overrides, name="m.parquet"):
    """All communities of a table: names, members' indexes by name, the memberships."""
    path = folder / "table"
    path.mkdir(exist_ok=True)
    table = pa.table({"community": community, "node_id": member})
    pq.write_table(table, path / name)
    opened = open_table(path, "memberships table")
    settings = load_settings(overrides=list(overrides))
    found = sets.from_memberships(opened, nodes, settings, folder)
    return collect(found), found


def collect(found, memberships=1 << 20):
    result = {}
    names = found.names.to_pylist()
    for first, batch in sets.community_batches(found.sorter.chunks(), memberships):
        for s in range(len(batch)):
            members = members_of(batch, s)
            result[names[first + s]] = members.tolist()
    return result


BROKEN = pa.StringArray.from_buffers(
    1, pa.py_buffer(np.array([0, 2], np.int32)), pa.py_buffer(b"\xff\xfe")
)


@pytest.mark.parametrize(
    ("community", "member", "nodes", "expected"),
    [
        (["z", "a", "z", "é"], [40, 30, 10, 10], INTEGERS, {"a": [2], "z": [0, 3]}),
        (pa.array([-5, 2**40, -5]), [10, 20, 40], INTEGERS, {-5: [0, 3], 2**40: [1]}),
        (pa.array(["x", "y"]).dictionary_encode(), ["c", "a"], STRINGS, {"x": [2]}),
        (pa.array([1], pa.int32()), pa.array([10], pa.int16()), INTEGERS, {1: [0]}),
    ],
)
def test_names_and_members_are_in_order_and_keep_their_type(
    tmp_path, community, member, nodes, expected
):
    found, memberships = read(tmp_path, community, member, nodes)
    assert found | expected == found
    assert list(found) == sorted(found)
    text = isinstance(next(iter(expected)), str)
    assert memberships.names.type == (pa.string() if text else pa.int64())


def test_duplicates_are_dropped_and_counted(tmp_path):
    found, memberships = read(tmp_path, [1, 2, 1, 1, 1], [10, 10, 10, 20, 10])
    assert found == {1: [0, 1], 2: [0]}
    assert (memberships.sorter.duplicates, memberships.total) == (2, 5)


def test_community_of_dropped_members_is_kept(tmp_path):
    drop = "input.unknown_nodes=drop"
    found, memberships = read(tmp_path, [1, 2, 3], [10, 99, 20], INTEGERS, drop)
    assert found == {1: [0], 2: [], 3: [1]}
    assert memberships.unknown_dropped == 1


@pytest.mark.parametrize(
    ("community", "member", "told"),
    [
        (
            [1, 2, 2],
            [10, 99, 98],
            r"node 99 in row 2 of .*unknown_nodes = drop",
        ),
        ([1, None], [10, 20], r"'community' is null in row 2 of .*m.parquet"),
        ([1, 1], [10, None], r"'node_id' is null in row 2 of .*m.parquet"),
        (pa.array([], pa.int64()), pa.array([], pa.int64()), r"no rows.* = leiden"),
        (BROKEN, [10], r"'community' of .* not UTF-8"),
    ],
)
def test_wrong_tables_are_refused_with_the_place(tmp_path, community, member, told):
    with pytest.raises(InputError, match=told):
        read(tmp_path, community, member)


def test_files_and_columns_that_disagree_are_named(tmp_path):
    read(tmp_path, [1], [10])
    with pytest.raises(InputError, match=r"set columns\.community"):
        read(tmp_path, [1], [10], INTEGERS, "columns.community=group")
    with pytest.raises(InputError, match=r"'community' is int64 in .* and string in"):
        read(tmp_path, ["1"], [10], name="n.parquet")


def test_names_stay_distinct_over_many_files(tmp_path, monkeypatch):
    monkeypatch.setattr(sets, "_DISTINCT_SLACK", 3)
    for part in range(6):
        read(
            tmp_path,
            pa.array([f"c{part % 4}", f"c{part}"]),
            pa.array([10, 20]),
            name=f"{part}.parquet",
        )
    found, _ = read(tmp_path, pa.array(["c0"]), pa.array([30]))
    assert list(found) == [f"c{k}" for k in range(6)]
    assert found["c0"] == [0, 1, 2]


def column_of(folder, table, column="club", nodes=INTEGERS):
    pq.write_table(table, folder / "nodes.parquet")
    opened = open_table(folder / "nodes.parquet", "node table")
    settings = load_settings()
    found = sets.from_column(opened, column, nodes, settings, folder)
    return collect(found)


def test_nodes_without_a_value_are_in_no_community(tmp_path):
    table = pa.table({"node_id": [40, 10, 30, 20], "club": ["x", None, "x", "w"]})
    assert column_of(tmp_path, table) == {"w": [1], "x": [2, 3]}


def test_a_column_without_values_or_missing_is_explained(tmp_path):
    table = pa.table({"node_id": [10], "club": pa.array([None], pa.string())})
    with pytest.raises(InputError, match=r"'club' of .* has no value"):
        column_of(tmp_path, table)
    with pytest.raises(InputError, match=r"no column 'team'"):
        column_of(tmp_path, table, "team")
    with pytest.raises(InputError, match=r"column 'node_id' names node 11"):
        column_of(tmp_path, pa.table({"node_id": [11], "club": [1]}))


def test_assignment_keeps_every_node(tmp_path):
    numbers = np.array([2, 0, 1, 0])
    found = sets.from_assignment(numbers, load_settings(), tmp_path)
    assert collect(found) == {0: [1, 3], 1: [2], 2: [0]}
    assert found.names.type == pa.int64()


@hypothesis_settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 30)), max_size=120),
    st.integers(1, 60),
    st.integers(1, 12),
    st.sampled_from([64, 4096, 1 << 20]),
)
def test_batches_keep_every_community_complete(
    tmp_path_factory, pairs, memberships, communities, memory
):
    folder = tmp_path_factory.mktemp("sort")
    sorter = PairSorter(10, 31, memory, folder)
    both = np.array(pairs, np.int64).reshape(-1, 2)
    sorter.add(both[:, 0], both[:, 1])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(interface, "MAX_SETS", communities)
        cut = list(sets.community_batches(sorter.chunks(), memberships))
    assert not list(folder.iterdir())
    whole = {s: sorted({m for c, m in pairs if c == s}) for s in range(10)}
    found, following = {}, 0
    for first, batch in cut:
        assert first == following
        following += len(batch)
        assert 0 < len(batch) <= communities
        sizes = np.diff(batch.offsets)
        assert sizes[:-1].sum() < memberships
        for s in range(len(batch)):
            members = members_of(batch, s)
            found[first + s] = members.tolist()
    assert found == whole
