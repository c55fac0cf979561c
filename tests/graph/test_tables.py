from __future__ import annotations

import os
from dataclasses import replace
from unittest.mock import Mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.conftest import flip
from xnq_dist.core.errors import InputError
from xnq_dist.graph.keys import ids_of
from xnq_dist.graph.sources import absolute
from xnq_dist.graph.tables import Batch, open_table
from xnq_dist.graph.values import one_form, plain_values, show


def rows_of(table, columns):
    return [
        row
        for batch in open_table(str(table), "table").batches(columns, rows=3)
        for row in batch.rows.to_pylist()
    ]


def test_files_directories_globs_and_uris_give_the_same_rows(tmp_path):
    whole = pa.table({"a": list(range(10)), "b": ["x"] * 10})
    folder = tmp_path / "many" / "year=1"
    folder.mkdir(parents=True)
    pq.write_table(whole.slice(0, 4), folder / "part-0.parquet")
    pq.write_table(whole.slice(4), folder / "part-1.parquet")
    pq.write_table(whole, folder / "_part-2.parquet")
    (tmp_path / "many" / ".hidden").mkdir()
    pq.write_table(whole, tmp_path / "many" / ".hidden" / "part-3.parquet")
    pq.write_table(whole, tmp_path / "one.parquet")
    due = whole.to_pylist()
    for path in (
        tmp_path / "one.parquet",
        tmp_path / "many",
        folder / "part-*.parquet",
        folder / "part-***.parquet",
        tmp_path / "many" / "year=*" / "*.parquet",
        f"file://{tmp_path}/one.parquet",
        f"file://{tmp_path}/many/*/part-[01].parquet",
    ):
        assert rows_of(path, ["a", "b"]) == due
    assert open_table(tmp_path / "many", "t").n_rows == 10


def test_names_of_folders_are_columns(tmp_path):
    rows = {"0": [1, 2], "7": [3], "__HIVE_DEFAULT_PARTITION__": [4]}
    for label, nodes in rows.items():
        folder = tmp_path / "nodes" / f"label={label}" / "kind=a%20b"
        folder.mkdir(parents=True)
        pq.write_table(pa.table({"node_id": nodes}), folder / "x=y.parquet")
    due = [(1, 0, "a b"), (2, 0, "a b"), (3, 7, "a b"), (4, None, "a b")]
    columns = ["node_id", "label", "kind"]
    for path in ("nodes", "nodes/*/*/*.parquet"):
        found = rows_of(tmp_path / path, columns)
        assert [tuple(row.values()) for row in found] == due
        table = open_table(str(tmp_path / path), "table")
        assert all(set(each) == set(columns) for each in table.schemas.values())
        labels = [
            value
            for share in table.shares(1)
            for batch in share.batches(["label"])
            for value in batch.column("label").to_pylist()
        ]
        assert labels == [row[1] for row in due]
    (tmp_path / "nodes" / "more").mkdir()
    pq.write_table(
        pa.table({"node_id": [5]}), tmp_path / "nodes" / "more" / "p.parquet"
    )
    with pytest.raises(InputError, match="has no column 'label'"):
        open_table(str(tmp_path / "nodes"), "table").require(
            [("columns.label", "label")]
        )


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (
            "absent.parquet",
            "node table .*absent.parquet does not exist: check the path",
        ),
        ("*.parquet", "no file matches .*: check the pattern"),
        ("", r"holds no file that ends in \.parquet, \.csv"),
    ],
)
def test_missing_tables_are_named(tmp_path, name, words):
    with pytest.raises(InputError, match=words):
        open_table(tmp_path / name, "node table")


def test_an_odd_uri_is_refused():
    with pytest.raises(InputError, match="cannot be opened"):
        open_table("nosuch://bucket/x.parquet", "node table")


def truncated(path):
    pq.write_table(pa.table({"a": np.arange(5000)}), path)
    path.write_bytes(path.read_bytes()[:-40])
    return path


def test_a_truncated_file_is_reported_as_incomplete(tmp_path):
    table = open_table(truncated(tmp_path / "edges.parquet"), "edge table")
    with pytest.raises(
        InputError, match=r"edges.parquet is not a complete Parquet file"
    ):
        table.require([("columns.src", "a")])
    with pytest.raises(InputError, match="not a complete Parquet file"):
        _ = table.n_rows


def test_a_recorded_address_is_said_to_lack_its_key():
    with pytest.raises(
        InputError, match=r"key of t .* was not kept: give it in the env"
    ):
        open_table(absolute("s3://KEY:SECRET@bucket/t.parquet"), "t")


@pytest.mark.parametrize("name", ["t.parquet", "t.csv"])
def test_a_file_of_others_is_said_to_need_permissions(tmp_path, name):
    (tmp_path / name).write_text("a\n1\n")
    table = open_table(tmp_path / name, "t")
    refused = PermissionError(13, "Permission denied")
    store = Mock(open_input_file=Mock(side_effect=refused), spec=table.filesystem)
    store.open_input_stream = store.open_input_file
    with pytest.raises(InputError, match=r"cannot be read \(.*: check its permissions"):
        _ = replace(table, filesystem=store).schemas


def test_a_fault_that_shows_while_iterating_is_an_input_error(tmp_path):
    path = tmp_path / "t.parquet"
    values = np.random.default_rng(0).integers(0, 2**60, 50_000)
    pq.write_table(pa.table({"a": values}), path, write_page_checksum=True)
    flip(path)
    with pytest.raises(InputError, match="not a complete Parquet file"):
        list(open_table(path, "t").batches(["a"]))


def test_a_missing_column_names_those_there_and_the_setting(tmp_path):
    pq.write_table(pa.table({"from": [1], "to": [2]}), tmp_path / "e.parquet")
    with pytest.raises(InputError, match=r"no column 'src' \(it has from, to\).*col"):
        open_table(tmp_path / "e.parquet", "e").require([("columns.src", "src")])


def test_a_column_of_some_files_only_is_refused(tmp_path):
    pq.write_table(pa.table({"a": [1], "role": ["train"]}), tmp_path / "0.parquet")
    pq.write_table(pa.table({"a": [1]}), tmp_path / "1.parquet")
    table = open_table(tmp_path, "node table")
    with pytest.raises(
        InputError, match="write all files of the node table with the same"
    ):
        table.has("role")
    assert not table.has("nowhere")


def batch_of(array, first=0):
    return Batch(pa.record_batch({"id": array}), "t.parquet", first)


@pytest.mark.parametrize(
    "array",
    [
        pa.array([3, 1], pa.uint8()),
        pa.array([3, 1], pa.uint64()),
        pa.array(["b", "a"], pa.large_string()),
        pa.array(["b", "a"], pa.string_view()),
        pa.array(["b", "a"]).dictionary_encode(),
        pa.array([3, 1]).dictionary_encode(),
        pa.array([3.0, -1.0]),
    ],
    ids=lambda array: str(array.type),
)
def test_ids_of_every_kind_become_int64_or_string(array):
    found = ids_of(batch_of(array), "id")
    assert found.type in (pa.int64(), pa.string())
    assert found.to_pylist() == array.to_pylist()


@pytest.mark.parametrize("kind", [pa.uint64(), pa.decimal128(38, 0)], ids=str)
def test_ids_too_large_for_int64_are_text(kind):
    found = ids_of(batch_of(pa.array([1, 2**63], kind)), "id")
    assert found.to_pylist() == ["1", "9223372036854775808"]


@pytest.mark.parametrize(
    ("array", "words"),
    [
        (pa.array([1, None]), "null in row 12 of t.parquet"),
        (pa.nulls(2), "null in row 11 of t.parquet"),
        (
            pa.array([1.0, 2.5]),
            "is 2.5 in row 12 of t.parquet, and ids and",
        ),
        (pa.array([1.0, float("nan")]), "null in row 12 of t.parquet"),
        (pa.array([2.0**53]), "is 9007199254740992.0 in row 11"),
        (pa.array([b"a"]), "is binary, not an integer or a string"),
    ],
    ids=["null", "all null", "float", "NaN", "large float", "binary"],
)
def test_unusable_ids_are_refused(array, words):
    with pytest.raises(InputError, match=words):
        ids_of(batch_of(array, 10), "id")


def test_an_id_with_odd_bytes_can_be_named():
    odd = pa.array([b"a\xff"]).view(pa.string())
    assert show(odd, 0) == "'a\ufffd'"
    assert show(pa.array([5]), 0) == "5"


@pytest.mark.parametrize(
    ("inside", "words"),
    [("_delta_log", "a Delta table"), ("metadata", "an Iceberg table")],
)
def test_a_folder_with_versions_of_a_table_is_refused(tmp_path, inside, words):
    pq.write_table(pa.table({"a": [1]}), tmp_path / "part-0.parquet")
    (tmp_path / inside).mkdir()
    with pytest.raises(InputError, match="also hold rows that are deleted") as refused:
        open_table(tmp_path, "node table")
    assert words.split()[1] in str(refused.value)


def test_a_name_with_marks_of_a_pattern_is_taken_as_it_is(tmp_path):
    folder = tmp_path / "data [1]"
    folder.mkdir()
    pq.write_table(pa.table({"a": [1, 2]}), folder / "t*.parquet")
    assert rows_of(folder, ["a"]) == [{"a": 1}, {"a": 2}]
    assert rows_of(folder / "t*.parquet", ["a"]) == [{"a": 1}, {"a": 2}]


def test_a_pipe_is_refused_with_what_to_do(tmp_path):
    os.mkfifo(tmp_path / "nodes.csv")
    with pytest.raises(InputError, match=r"a pipe or a device.*write it to a file"):
        open_table(tmp_path / "nodes.csv", "node table")


def test_whole_decimals_are_integers_and_durations_seconds():
    decimals = pa.array([1, None, 2], pa.decimal128(38, 0))
    large = pa.array([10**30], pa.decimal128(38, 0))
    assert plain_values(decimals).equals(pa.array([1, None, 2], pa.int64()))
    assert plain_values(large).to_pylist() == [str(10**30)]
    assert plain_values(pa.array([1500, None], pa.duration("ms"))).to_pylist() == [
        1.5,
        None,
    ]


def test_a_word_has_one_form_however_it_was_typed():
    typed = pa.array(["caf\u00e9", "cafe\u0301", "caf\u00e9\u200b", "tea", None])
    assert one_form(typed).to_pylist() == [*["caf\u00e9"] * 3, "tea", None]


def test_string_views_of_a_parquet_file_are_text(tmp_path):
    """As of a Polars frame that pyarrow writes; Arrow does not filter views."""
    views = pa.array(["a", None, "b"], pa.string_view())
    pq.write_table(
        pa.table({"node_id": [1, 2, 3], "label": views}), tmp_path / "n.parquet"
    )
    table = open_table(str(tmp_path / "n.parquet"), "node table")
    (batch,) = table.batches(["label"])
    known = batch.column("label").filter(pa.array([True, False, True]))
    assert known.to_pylist() == ["a", "b"]
