"""The same rows in every format: types, ids, null words, and words for other files."""

from __future__ import annotations

import bz2
import gzip
import io
import zipfile

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from xnq_dist.core.config import load_settings
from xnq_dist.core.errors import InputError
from xnq_dist.core.sections import ColumnSettings
from xnq_dist.core.store import Folder
from xnq_dist.graph import text_tables
from xnq_dist.graph.contents import node_aspects, read_table
from xnq_dist.graph.ids import NodeIds
from xnq_dist.graph.profile.headers import columns_of
from xnq_dist.graph.tables import open_table
from xnq_dist.graph.text_tables import kind_of

COLUMNS = ColumnSettings(features=["x", "y"])
NODES = pa.table(
    {
        "node_id": ["u1", "ü2", "u3"],
        "label": pa.array([1, None, 0]),
        "x": [1.5, 2.25, -3.0],
        "y": [1, 20, 300],
    }
)


def text_of(table, separator=",", decimal="."):
    rows = [table.column_names, *(row.values() for row in table.to_pylist())]
    fields = ([("" if f is None else str(f)) for f in row] for row in rows)
    return "".join(separator.join(f) + "\n" for f in fields).replace(".", decimal)


def digests(path, *overrides):
    table = open_table(path, "node table", load_settings(overrides=overrides).input)
    kept = Folder.of(path.parent / "kept")
    return read_table(kept, table, lambda: (node_aspects(table, COLUMNS, ""), None))[0]


def read(path, *overrides):
    """All columns of a table."""
    table = open_table(path, "table", load_settings(overrides=overrides).input)
    columns = list(table.schemas[table.files[0]])
    rows = [r for b in table.batches(columns) for r in b.rows.to_pylist()]
    return {name: [row[name] for row in rows] for name in columns}


def zstd(data):
    return bytes(pa.compress(data, codec="zstd", asbytes=True))


def lz4(data):
    return bytes(pa.compress(data, codec="lz4", asbytes=True))


@pytest.mark.parametrize(
    ("name", "packed"),
    [
        ("t.csv", bytes),
        ("t.csv.gz", gzip.compress),
        ("t.csv.bz2", bz2.compress),
        ("t.csv.zst", zstd),
        ("t.csv.lz4", lz4),
        ("t.tab.gz", gzip.compress),
        ("t.txt", bytes),
    ],
)
@pytest.mark.parametrize(
    ("separator", "decimal"),
    [(",", "."), (";", ","), ("\t", ".")],
    ids=["comma", "semicolon", "tab"],
)
def test_text_tables_have_the_digests_of_parquet(
    tmp_path,
    name,
    packed,
    separator,
    decimal,
):
    pq.write_table(NODES, tmp_path / "t.parquet")
    text = text_of(NODES, separator, decimal)
    (tmp_path / name).write_bytes(packed(text.encode()))
    assert digests(tmp_path / name) == digests(tmp_path / "t.parquet")


@pytest.mark.parametrize("path", ["e.csv", "many", "many/*.gz", "e.parquet"])
def test_any_fsspec_filesystem_is_read(tmp_path, path):
    edges = pa.table({"src": [1, 2], "dst": [2, 3]})
    memory = fsspec.filesystem("memory")
    where = f"/{tmp_path.name}"
    body = text_of(edges).encode()
    for name, data in (("e.csv", body), ("many/e.tsv.gz", gzip.compress(body))):
        memory.pipe(f"{where}/{name}", data)
    with memory.open(f"{where}/e.parquet", "wb") as file:
        pq.write_table(edges, file)
    table = open_table(f"memory:/{where}/{path}", "edge table")
    rows = [row for b in table.batches(["src", "dst"]) for row in b.rows.to_pylist()]
    assert rows == edges.to_pylist()


def test_a_filesystem_whose_package_is_missing_is_named():
    with pytest.raises(InputError, match=r"cannot be opened .*adlfs"):
        open_table("az://container/x.csv", "node table")


# Types


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["1", "-20", ""], "integer"),
        (["1", "NA", "?"], "integer"),
        ([" 1", "2 "], "integer"),
        (["00123", "1"], "text"),
        (["0x10"], "text"),
        (["+1"], "text"),
        (["12345678901234567890"], "text"),
        (["1", "2.5", "1e5", "-.5"], "number"),
        (["1.5", "007"], "text"),
        (["0.5", "0"], "number"),
        (["true", "False"], "boolean"),
        (["true", "1"], "text"),
        (["2020-01-31", "2020-02-01"], "date"),
        (["2020-01-31", "2020-02-01 10:00"], "time"),
        (["2020-01-31T10:00:00Z"], "instant"),
        (["NA", ""], "null"),
        (["NA", "Nauru"], "text"),
        (["Bonn", "1"], "text"),
    ],
)
def test_a_column_has_the_narrowest_type_without_loss(values, kind):
    assert kind_of(pa.array([v or None for v in values]), ".") == kind


def test_null_words_are_text_among_text_and_null_among_numbers(tmp_path):
    (tmp_path / "t.csv").write_text("a,b\nNA,NA\nx,1\n")
    assert read(tmp_path / "t.csv") == {"a": ["NA", "x"], "b": [None, 1]}


@pytest.mark.parametrize(
    ("early", "late", "expected"),
    [
        ("1", "x", ["1", "x"]),
        ("1", "2.5", [1.0, 2.5]),
        ("NA", "x", ["NA", "x"]),
        ("NA", "7", [None, 7]),
        ("1", "007", ["1", "007"]),
        ("true", "", [True, None]),
        ("2020-01-01", "soon", ["2020-01-01", "soon"]),
    ],
)
def test_types_are_those_of_all_values(
    tmp_path,
    monkeypatch,
    early,
    late,
    expected,
):
    monkeypatch.setattr(text_tables, "BLOCK", 64)
    monkeypatch.setattr(text_tables, "HEAD", 64)
    rows = [early] * 100 + [late]
    text = "a,b\n" + "".join(f"{at},{value}\n" for at, value in enumerate(rows))
    (tmp_path / "t.csv").write_text(text)
    found = read(tmp_path / "t.csv")["b"]
    assert [found[0], found[-1]] == expected
    assert len(found) == 101


def test_a_column_that_is_text_in_one_file_is_text_in_all(tmp_path):
    (tmp_path / "many").mkdir()
    (tmp_path / "many" / "a.csv").write_text("src,dst\n1,2\n")
    (tmp_path / "many" / "b.csv").write_text("src,dst\nx,3\n")
    table = open_table(tmp_path / "many", "edge table")
    assert [
        row for b in table.batches(["src", "dst"]) for row in b.rows.to_pylist()
    ] == [{"src": "1", "dst": 2}, {"src": "x", "dst": 3}]
    edges = pa.table({"src": ["1", "x"], "dst": [2, 3]})
    pq.write_table(edges, tmp_path / "e.parquet")
    aspects = {"edges": columns_of("edges", ColumnSettings(), table)}
    found = [
        read_table(
            None, open_table(tmp_path / name, "edge table"), lambda: (aspects, None)
        )[0]
        for name in ("many", "e.parquet")
    ]
    assert found[0] == found[1]


def test_text_ids_among_integers_are_unknown_nodes(tmp_path):
    (tmp_path / "e.csv").write_text("src\n1\nA12\n002\n")
    nodes = NodeIds.from_column(pa.chunked_array([[1, 2]]))[0]
    (batch,) = open_table(tmp_path / "e.csv", "edge table").batches(["src"])
    assert nodes.find(batch, "src", "drop").tolist() == [0, -1, -1]
    pq.write_table(pa.table({"src": ["1"]}), tmp_path / "e.parquet")
    (batch,) = open_table(tmp_path / "e.parquet", "edge table").batches(["src"])
    assert nodes.find(batch, "src", "drop").tolist() == [0]


def test_detected_types_are_recalled(tmp_path, monkeypatch):
    monkeypatch.setattr("xnq_dist.graph.contents.RACY", 0)
    (tmp_path / "t.csv").write_text(text_of(NODES))
    first = digests(tmp_path / "t.csv")
    monkeypatch.setattr("xnq_dist.graph.tables._TEXTS", {})
    scans: list[str] = []
    monkeypatch.setattr(
        text_tables.TextFile,
        "_blocks",
        lambda self, _: scans.append(self.path) or iter(()),
    )
    assert digests(tmp_path / "t.csv") == first
    assert not scans


# Rows and names


BROKEN = {
    "fields": (
        "t.csv",
        b"a,b\n" + b"1,2\n" * 9 + b"1,2,3\n",
        r"t.csv is not a text table .*Row #11: Expected 2 columns, got 3: 1,2,3\): "
        r"check the row and its quotes",
    ),
    "bytes": (
        "t.csv",
        b"a,b\n" + b"1,x\n" * 100_000 + b"2,\x96\n",
        r"t.csv is not a text table in UTF-8 .*Row #100002: .*invalid UTF8 data",
    ),
    "quote": (
        "t.csv",
        b'a,b\n1,"x\n' + b"2,%s\n" % (b"y" * 60) * 200_000,
        r"t.csv is not a text table .*straddling .*check the row and its quotes",
    ),
    "ending": (
        "edges.dat",
        b"1 2\n2 3\n",
        r"an unknown ending: rename it to end in one",
    ),
}


@pytest.mark.parametrize("fault", BROKEN)
def test_a_file_that_cannot_be_read_is_named_with_what_to_do(tmp_path, fault):
    name, data, words = BROKEN[fault]
    (tmp_path / name).write_bytes(data)
    with pytest.raises(InputError, match=words):
        read(tmp_path / name)


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_two_columns_of_one_name_are_refused_where_they_are_used(tmp_path, ending):
    path = tmp_path / f"t.{ending}"
    table = pa.table([[1], [2], [3]], names=["src", "dst", "src"])
    if ending == "csv":
        path.write_text("src,dst,src\n1,2,3\n")
    else:
        pq.write_table(table, path)
    opened = open_table(path, "edge table")
    with pytest.raises(InputError, match=r"has 2 columns named 'src' \(1, 3\): rename"):
        list(opened.batches(["src", "dst"]))
    (batch,) = opened.batches(["dst"])
    assert batch.rows.to_pydict() == {"dst": [2]}


def test_a_folder_is_read_for_one_kind_of_ending(tmp_path):
    (tmp_path / "a.csv").write_text("a\n1\n")
    (tmp_path / "README.txt").write_text("About these files.")
    assert len(open_table(tmp_path, "table").files) == 1


# Files of other formats


def zipped(name):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(name, b"x")
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "is empty: write it again, with at least one row"),
        (b'<?xml version="1.0"?>\n<graphml xmlns="x">', "GraphML.*estimate_prevalence"),
        (b"<?xml version='1.0'?><rows/>", "XML: save"),
        (b"<!DOCTYPE html><html>", "a web page"),
        (b'{"a": 1}\n{"a": 2}\n', "JSON: save"),
        (b'[{"a": 1}]', "JSON: save"),
        (zipped("[Content_Types].xml"), "a workbook: save its sheet as CSV"),
        (zipped("m/data.pkl"), "PyTorch data.*estimate_prevalence"),
        (zipped("x.npy"), r"npz\).*estimate_prevalence"),
        (zipped("a.csv"), "a zip archive: unpack it first"),
        (b"\x80\x04\x95abc", "a Python pickle, which is never opened"),
        (b"\xd0\xcf\x11\xe0\xa1", "a workbook"),
        (b"version https://git-lfs.github.com/spec/v1", "Git LFS pointer"),
    ],
    ids=range(13),
)
@pytest.mark.parametrize("name", ["t.csv", "t.parquet", "t.dat"])
def test_files_of_other_formats_are_named(tmp_path, data, words, name):
    (tmp_path / name).write_bytes(data)
    with pytest.raises(InputError, match=words):
        read(tmp_path / name)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("t.csv", "looks like Parquet: rename it to end in .parquet"),
        ("t.parquet", "is not a complete Parquet file"),
    ],
)
def test_a_damaged_file_keeps_its_format_in_the_message(tmp_path, name, words):
    pq.write_table(NODES, tmp_path / "whole.parquet")
    (tmp_path / name).write_bytes((tmp_path / "whole.parquet").read_bytes()[:-30])
    with pytest.raises(InputError, match=words):
        read(tmp_path / name)


@pytest.mark.parametrize(
    ("name", "packed"),
    [
        ("t.csv.gz", gzip.compress),
        ("t.csv.bz2", bz2.compress),
        ("t.csv.zst", zstd),
        ("t.csv.lz4", lz4),
    ],
)
def test_compressed_data_cut_short_is_refused(tmp_path, name, packed):
    text = "a,b\n" + "".join(f"{at},{at * 7919 % 1009}\n" for at in range(200_000))
    data = packed(text.encode())
    (tmp_path / name).write_bytes(data[: len(data) // 2])
    with pytest.raises(
        InputError, match=f"{name} is not a text table in UTF-8 that can"
    ):
        read(tmp_path / name)
    (tmp_path / "t.csv").write_bytes(data)
    with pytest.raises(InputError, match=r"t.csv is compressed"):
        read(tmp_path / "t.csv")
