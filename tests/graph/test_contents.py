"""Digests of tables: they depend on the rows only, and are stored for reuse."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xnq_dist.core.sections import ColumnSettings
from xnq_dist.core.store import Folder
from xnq_dist.graph import contents
from xnq_dist.graph.contents import (
    CONTENTS,
    node_aspects,
    read_table,
)
from xnq_dist.graph.profile.headers import columns_of
from xnq_dist.graph.tables import open_table

COLUMNS = ColumnSettings(features="features")


def digests(folder, where, *names, columns=COLUMNS):
    table = open_table(where, "table")
    aspects = {
        **node_aspects(table, columns, place="town"),
        "edges": columns_of("edges", columns, table),
    }
    chosen = {name: aspects[name] for name in names}
    return read_table(Folder.of(folder), table, lambda: (chosen, None), names)[0]


def of(folder, table, *names):
    """The digests of a table in a new folder."""
    folder.mkdir(parents=True)
    pq.write_table(table, folder / "t.parquet")
    return digests(folder / "kept", folder / "t.parquet", *names)


@pytest.fixture
def fresh(tmp_path):
    """A new folder for each call."""
    count = iter(range(1000))
    return lambda: tmp_path / str(next(count))


weights = st.floats(0, 2.0**100, width=32)


@st.composite
def edge_rows(draw):
    text = draw(st.booleans())
    node = st.text(max_size=10) if text else st.integers(-(2**31), 2**31 - 1)
    rows = draw(st.lists(st.tuples(node, node, weights), min_size=1, max_size=30))
    source, target, weight = (list(column) for column in zip(*rows, strict=True))
    kind = pa.string() if text else pa.int64()
    table = pa.table({"src": pa.array(source, kind), "dst": pa.array(target, kind)})
    if draw(st.booleans()):
        table = table.append_column("weight", pa.array(weight, pa.float64()))
    return table


@settings(max_examples=40, deadline=None)
@given(table=edge_rows(), data=st.data())
def test_digests_are_independent_of_order_files_and_chunks(
    tmp_path_factory, table, data
):
    folder = tmp_path_factory.mktemp("t")
    expected = of(folder / "one", table, "edges")["edges"]
    order = data.draw(st.permutations(range(len(table))))
    shuffled = table.take(pa.array(order))
    cut = data.draw(st.integers(0, len(table)))
    (folder / "many").mkdir()
    for name, part in (("a", shuffled[:cut]), ("b", shuffled[cut:])):
        pq.write_table(
            part,
            folder / "many" / f"{name}.parquet",
            row_group_size=data.draw(st.integers(1, 5)),
            compression=data.draw(st.sampled_from(["none", "zstd"])),
            use_dictionary=data.draw(st.booleans()),
        )
    found = digests(folder / "kept", folder / "many", "edges")["edges"]
    assert found == expected
    assert found["rows"] == len(table)


@settings(max_examples=40, deadline=None)
@given(table=edge_rows(), data=st.data())
def test_any_change_of_the_rows_changes_the_digest(tmp_path_factory, table, data):
    column = data.draw(st.sampled_from(table.column_names))
    row = data.draw(st.integers(0, len(table) - 1))
    values = table[column].to_pylist()
    new = {
        str: st.text(max_size=10),
        float: weights,  # -0.0 and 0.0 are one weight.
        int: st.integers(-(2**40), 2**40),
    }[type(values[row])]
    values[row] = data.draw(new.filter(lambda value: value != values[row]))
    at = table.column_names.index(column)
    changed = {
        "cell": table.set_column(at, column, pa.array(values, table[column].type)),
        "more": pa.concat_tables([table, table[row : row + 1]]),
        "less": pa.concat_tables([table[:row], table[row + 1 :]]),
    }
    folder = tmp_path_factory.mktemp("t")
    before = of(folder / "one", table, "edges")
    for name, other in changed.items():
        assert of(folder / name, other, "edges") != before, name


FIXED = {
    "numbers": (
        pa.table({"src": [1, 2], "dst": [2, -3], "weight": [0.5, 2.0]}),
        {"edges": "153dfda31699dfe6"},
    ),
    "text": (
        pa.table({"src": ["a", "", "a longer name"], "dst": ["ü", "12345678", "x"]}),
        {"edges": "c6eced04900462b7"},
    ),
    "lists, flags and gaps": (
        pa.table(
            {
                "node_id": [1, 2, 3, 4],
                "label": [True, False, None, True],
                "role": ["train", None, "", "calibration"],
                "features": [[1.0, 2.0], [0.5, -0.0], [3.0, float("nan")], None],
            }
        ),
        {
            "nodes": "d5711ea75802085f",
            "features": "a95d9fa80e086000",
            "labels": "bac32e087158410e",
        },
    ),
}


@pytest.mark.parametrize("name", FIXED)
def test_the_definition_is_fixed(fresh, name):
    """Stored digests stand for tables: another value needs another `FORMAT`."""
    table, due = FIXED[name]
    found = of(fresh(), table, *due)
    assert {aspect: each["digest"] for aspect, each in found.items()} == due


TEXT = pa.array(["a", "b"])
EDGES = {"src": [1, 100], "dst": [3, 4]}
SAME = {
    "narrow integers": (EDGES, {k: pa.array(v, pa.int8()) for k, v in EDGES.items()}),
    "unsigned integers": (
        EDGES,
        {k: pa.array(v, pa.uint64()) for k, v in EDGES.items()},
    ),
    "dictionaries and large text": (
        {"src": TEXT, "dst": TEXT},
        {"src": TEXT.dictionary_encode(), "dst": TEXT.cast(pa.large_string())},
    ),
    "wide weights": (
        EDGES | {"weight": pa.array([1.5, 2.0], pa.float32())},
        EDGES | {"weight": [1.5, 2.0]},
    ),
}
DIFFERENT = {
    "integers and their text": (EDGES, {"src": ["1", "100"], "dst": ["3", "4"]}),
    "reverses": (EDGES, {"src": EDGES["dst"], "dst": EDGES["src"]}),
    "a reversed edge": (EDGES, {"src": [3, 100], "dst": [1, 4]}),
    "crossed ends": (EDGES, {"src": [1, 100], "dst": [4, 3]}),
}


@pytest.mark.parametrize("name", [*SAME, *DIFFERENT])
def test_digests_depend_on_the_values_alone(fresh, name):
    pair = SAME.get(name) or DIFFERENT[name]
    one, other = (of(fresh(), pa.table(columns), "edges") for columns in pair)
    assert (one == other) is (name in SAME)


ALL = ("nodes", "features", "labels")


def node_rows(**columns):
    """Four nodes of which three are labelled, one without a role."""
    return pa.table(
        {
            "node_id": [1, 2, 3, 4],
            "label": pa.array(["a", "b", None, "b"]),
            "role": pa.array(["train", "calibration", "train", None]),
            "features": pa.array([[1.0, 2.0]] * 4, pa.list_(pa.float32(), 2)),
            "town": pa.array(["x", None, "y", "x"]),
        }
        | columns
    )


@pytest.mark.parametrize(
    ("columns", "changed"),
    [
        ({"label": pa.array(["a", "b", None, "a"])}, {"labels"}),
        ({"label": pa.array(["a", "b", None, None])}, {"labels"}),
        ({"role": pa.array(["train", "train", "train", None])}, {"labels"}),
        # A role without a label means nothing.
        ({"role": pa.array(["train", "calibration", None, None])}, set()),
        (
            {"features": pa.array([[1, 2]] * 3 + [[1, 3]], pa.list_(pa.float32(), 2))},
            {"features"},
        ),
        ({"features": pa.array([[1.0, 2.0]] * 4)}, set()),
        ({"features": pa.array([[1, 2]] * 4, pa.large_list(pa.float32()))}, set()),
        ({"town": pa.array(["x", "x", "y", "x"])}, {"communities"}),
        ({"other": pa.array([1, 2, 3, 4])}, set()),
        ({"label": pa.array(["a", "b", None, "b"]).dictionary_encode()}, set()),
    ],
)
def test_each_column_is_digested_by_itself(fresh, columns, changed):
    names = (*ALL, "communities")
    before = of(fresh(), node_rows(), *names)
    after = of(fresh(), node_rows(**columns), *names)
    assert {name for name in names if before[name] != after[name]} == changed


def test_labels_as_floats_with_gaps_are_integers(fresh):
    whole = node_rows(label=pa.array([1, 0, None, 0], pa.int8()))
    floats = node_rows(label=pa.array([1.0, 0.0, float("nan"), 0.0]))
    flags = node_rows(label=pa.array([True, False, None, False]))
    found = [of(fresh(), table, "labels") for table in (whole, floats, flags)]
    assert found[0] == found[1] != found[2]


# Recall


@pytest.fixture
def aged(tmp_path, monkeypatch):
    """An edge table that is old enough for its digest to be stored."""
    monkeypatch.setattr(contents, "RACY", 0)
    path = tmp_path / "e.parquet"
    pq.write_table(pa.table({"src": [1, 2], "dst": [2, 3]}), path)
    time.sleep(0.05)
    return path


@pytest.fixture
def reads(monkeypatch):
    """Files that are read, in order."""
    read: list[str] = []
    real = contents._digests

    def spied(table, *more):
        read.extend(Path(file).name for file in table.files)
        return real(table, *more)

    monkeypatch.setattr(contents, "_digests", spied)
    return read


def test_the_digest_of_an_unchanged_file_is_recalled(tmp_path, aged, reads):
    first = digests(tmp_path / "kept", aged, "edges")
    again = digests(tmp_path / "kept", aged, "edges")
    assert again == first
    assert reads == ["e.parquet"]


def test_a_table_with_a_new_file_is_read_again(tmp_path, aged, reads):
    folder = tmp_path / "many"
    folder.mkdir()
    aged.rename(folder / "a.parquet")
    time.sleep(0.05)
    digests(tmp_path / "kept", folder, "edges")
    pq.write_table(pa.table({"src": [7], "dst": [8]}), folder / "b.parquet")
    time.sleep(0.05)
    found = digests(tmp_path / "kept", folder, "edges")["edges"]
    assert reads == ["a.parquet", "a.parquet", "b.parquet"]
    assert found["rows"] == 3


def test_other_content_with_the_same_times_and_size_is_noticed(tmp_path, aged, reads):
    """A copy with the same modification time."""
    before = digests(tmp_path / "kept", aged, "edges")
    stat = aged.stat()
    old = aged.read_bytes()
    pq.write_table(pa.table({"src": [1, 2], "dst": [2, 4]}), aged)
    assert len(old) == aged.stat().st_size
    os.utime(aged, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert aged.stat().st_mtime_ns == stat.st_mtime_ns
    time.sleep(0.05)
    assert digests(tmp_path / "kept", aged, "edges") != before
    assert len(reads) == 2


def test_a_file_that_has_just_changed_is_read_again(tmp_path, reads):
    path = tmp_path / "e.parquet"
    pq.write_table(pa.table({"src": [1, 2], "dst": [2, 3]}), path)
    for _ in range(2):
        digests(tmp_path / "kept", path, "edges")
    assert len(reads) == 2


@pytest.mark.parametrize("damage", ["flip", "cut", "foreign"])
def test_damaged_records_are_read_anew(tmp_path, aged, reads, damage):
    kept = tmp_path / "kept"
    first = digests(kept, aged, "edges")
    path = kept / CONTENTS
    text = path.read_text()
    if damage == "flip":
        digest = first["edges"]["digest"]
        other = digest.translate(str.maketrans("0123456789", "1234567890"))
        assert other != digest
        path.write_text(text.replace(digest, other))
    elif damage == "cut":
        path.write_text(text[: len(text) // 2])
    else:
        path.write_text(json.dumps([1, 2]))
    assert digests(kept, aged, "edges") == first
    assert len(reads) == 2
    assert digests(kept, aged, "edges") == first
    assert len(reads) == 2


def test_records_are_free_of_paths(tmp_path, aged):
    digests(tmp_path / "kept", aged, "edges")
    assert "e.parquet" not in (tmp_path / "kept" / CONTENTS).read_text()
