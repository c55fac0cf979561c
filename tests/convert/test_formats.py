"""Every format gives the same graph as tables; what does not fit is refused."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.convert.one_graph import (
    CLASSES,
    EDGES,
    FEATURES,
    NODES,
    UNDIRECTED,
    WEIGHTS,
    WRITERS,
    YEARS,
    write_edge_list,
    write_graphml,
    write_metis,
    write_node_link,
    write_npz,
    write_ogb,
)
from xnq_dist.convert import FORMATS, Converted, conversion
from xnq_dist.convert.conversion import convert, read_graph, run_command
from xnq_dist.core.errors import DoesNotFitError, InputError, SettingsError

TENSORS = ("npz", "pyg", "ogb")
BY_TORCH = Path(__file__).parent / "made_by_torch"
LABELS = pa.array(CLASSES, mask=CLASSES < 0)


def pairs(found: Converted, first: int = 0) -> list[tuple[int, ...]]:
    columns = [found.edges[name].to_numpy() for name in ("src", "dst")]
    return sorted(zip(*(column - first for column in columns), strict=True))


def weights(found: Converted, first: int = 0) -> dict[tuple[int, int], float]:
    rows = found.edges.to_pylist()
    return {(row["src"] - first, row["dst"] - first): row["weight"] for row in rows}


def features(found: Converted) -> np.ndarray:
    return np.stack(found.nodes["features"].to_numpy())


@pytest.fixture(params=WRITERS)
def form(request) -> str:
    return request.param


@pytest.fixture
def file(form, tmp_path) -> Path:
    name, write = WRITERS[form]
    write(tmp_path / name)
    return tmp_path / name


def test_every_format_is_recognised_and_gives_the_same_graph(form, file):
    found = read_graph(file)
    assert found.nodes.equals(read_graph(file, form).nodes)
    first = 1 if form == "metis" else 0
    assert found.nodes["node_id"].to_pylist() == list(range(first, NODES + first))
    both = np.concatenate([UNDIRECTED, UNDIRECTED[:, ::-1]])
    wanted = {"npz": UNDIRECTED, "metis": both}.get(form, EDGES)
    assert pairs(found, first) == sorted(map(tuple, wanted.tolist()))
    assert found.directed is (form not in ("npz", "metis"))
    if form not in ("npz", "ogb"):
        expected = dict(zip(map(tuple, EDGES.tolist()), WEIGHTS, strict=True))
        found_weights = weights(found, first)
        assert all(
            found_weights[pair] == weight if pair in found_weights else form == "metis"
            for pair, weight in expected.items()
        )
        assert sum(found_weights.values()) == WEIGHTS.sum() * (1 + (form == "metis"))


def test_every_format_has_a_writer_here_and_a_text_in_the_help():
    assert set(FORMATS.records()) == set(WRITERS)
    assert all(record.text for record in FORMATS.records().values())


@pytest.mark.parametrize("form", ["pyg", "ogb", "node-link"], indirect=True)
def test_labels_and_features_are_those_of_the_nodes(file):
    found = read_graph(file)
    assert found.nodes["label"].combine_chunks().equals(LABELS)
    assert np.array_equal(features(found), FEATURES)


@pytest.mark.parametrize("form", TENSORS, indirect=True)
def test_masks_are_written_as_splits_with_some_nodes_for_calibration(form, file):
    splits = read_graph(file).splits
    assert splits is not None
    rows = [row for row in splits.to_pylist() if row["fold"] == 0]
    roles = {row["node_id"]: row["role"] for row in rows}
    assert set(roles.values()) == {"train", "calibration", "validation", "test"}
    assert {roles[node] for node in range(8)} == {"train", "calibration"}
    assert roles[8] == roles[9] == "validation"
    assert roles[10] == "test"
    unlabelled = form != "npz"
    assert (11 not in roles) is unlabelled
    folds = set(splits["fold"].to_pylist())
    assert folds == ({0, 1} if form == "npz" else {0})


def test_attributes_of_graphml_keep_their_names_and_types(tmp_path):
    write_graphml(tmp_path / "a.graphml")
    found = read_graph(tmp_path / "a.graphml")
    assert found.nodes["label"].to_pylist()[-2:] == ["class 1", None]
    assert found.nodes["year"].combine_chunks().equals(pa.array(YEARS))
    assert np.array_equal(found.nodes["x1"].to_numpy(), FEATURES[:, 1])


def test_other_years_of_ogb_are_columns_and_its_binary_form_is_the_same(tmp_path):
    write_ogb(tmp_path / "text")
    text = read_graph(tmp_path / "text")
    assert text.nodes["node_year"].combine_chunks().equals(pa.array(YEARS))
    raw = tmp_path / "binary" / "raw"
    raw.mkdir(parents=True)
    np.savez_compressed(
        raw / "data.npz",
        edge_index=EDGES.T,
        num_nodes_list=np.array([NODES]),
        num_edges_list=np.array([len(EDGES)]),
        node_feat=FEATURES,
        node_year=YEARS[:, None],
    )
    labels = np.where(CLASSES < 0, np.nan, CLASSES)[:, None]
    np.savez_compressed(raw / "node-label.npz", node_label=labels)
    binary = read_graph(tmp_path / "binary")
    assert binary.nodes.equals(text.nodes)
    assert binary.edges.equals(text.edges)


def test_files_written_by_pytorch_itself_are_read():
    one = read_graph(BY_TORCH / "data.pt")
    for name in ("protocol_5.pt", "dataset.pt"):
        found = read_graph(BY_TORCH / name)
        assert found.nodes.equals(one.nodes)
        assert found.edges.equals(one.edges)
        assert found.splits == one.splits
    views = read_graph(BY_TORCH / "views.pt")  # of bfloat16, int16, with offsets
    assert pairs(views) == sorted(map(tuple, EDGES.tolist()))
    assert views.edges["weight"].to_pylist() == WEIGHTS.tolist()
    assert np.allclose(features(views), FEATURES, rtol=0.01)
    assert views.nodes["label"].combine_chunks().equals(LABELS)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("two_graphs.pt", "has several graphs .*torch.save"),
        ("hetero.pt", "has several types of nodes"),
        ("old.pt", "PyTorch before 1.6: load it and save it again"),
    ],
)
def test_files_of_pytorch_that_are_no_single_graph_are_refused(name, words):
    with pytest.raises(InputError, match=words):
        read_graph(BY_TORCH / name)


def text_file(folder: Path, text: str, name: str = "edges.txt") -> Path:
    (folder / name).write_text(text)
    return folder / name


@pytest.mark.parametrize(
    ("text", "edges", "directed"),
    [
        ("0 1\n1 2\n", [(0, 1), (1, 2)], None),
        ("0\t1\r\n\r\n1\t2", [(0, 1), (1, 2)], None),
        ("# Undirected graph: a.txt\n# From To\n0 1\n", [(0, 1)], False),
        ("# Directed graph\n0 1\n# in between\n1 2\n", [(0, 1), (1, 2)], True),
        ("% sym unweighted\n% 1 2 2\n 7  8 \n", [(7, 8)], False),
        ("source,target\n3,4\n", [(3, 4)], None),
        ('"from";"to"\n"a";"b"\n', [("a", "b")], None),
        ("007 1\n1 2\n", [("007", "1"), ("1", "2")], None),
        ("é b\n", [("é", "b")], None),
    ],
)
def test_edge_lists_of_many_writers(tmp_path, text, edges, directed):
    found = read_graph(text_file(tmp_path, text), "edge-list")
    rows = [tuple(row.values()) for row in found.edges.to_pylist()]
    assert rows == edges
    assert found.directed is directed
    names = sorted({name for edge in edges for name in edge})
    assert found.nodes["node_id"].to_pylist() == names


@pytest.mark.parametrize(
    ("text", "weight", "note"),
    [
        ("1 2 .5\n", [0.5], "the third column is the weight"),
        ("a,b,weight\n1,2,3\n", [3], "the third column is the weight"),
        ("# A B Sign\n1 2 -1\n", None, "left out: Sign"),
        ("1 2 4 99\n", [4], "left out: column 4"),
    ],
)
def test_a_third_column_is_the_weight_unless_its_name_is_another(
    tmp_path, text, weight, note
):
    found = read_graph(text_file(tmp_path, text), "edge-list")
    assert note in found.notes
    if weight is None:
        assert "weight" not in found.edges.column_names
    else:
        assert found.edges["weight"].to_pylist() == weight


def test_compressed_text_is_read_by_its_content(tmp_path):
    write_edge_list(tmp_path / "plain")
    plain = (tmp_path / "plain").read_bytes()
    (tmp_path / "small.gz").write_bytes(gzip.compress(plain))
    with pa.output_stream(tmp_path / "any_name", compression="zstd") as stream:
        stream.write(plain)
    for name in ("small.gz", "any_name"):
        assert read_graph(tmp_path / name).edges.equals(
            read_graph(tmp_path / "plain").edges
        )


def test_blocks_of_a_large_file_are_one_graph(tmp_path, monkeypatch):
    for form in ("edge-list", "metis"):
        name, write = WRITERS[form]
        write(tmp_path / name)
        wanted = read_graph(tmp_path / name)
        monkeypatch.setattr("xnq_dist.convert.text_lines.BLOCK", 16)
        found = read_graph(tmp_path / name, form)
        assert found.edges.equals(wanted.edges)
        assert found.directed == wanted.directed
        monkeypatch.undo()


def test_metis_files_have_isolated_nodes_sizes_and_weights(tmp_path):
    text = "4 2 111 2\n9 1 1 2 5\n9 1 1 1 5 3 6\n9 1 1 2 6\n9 1 1\n"
    found = read_graph(text_file(tmp_path, text, "a.graph"))
    assert weights(found) == {(1, 2): 5, (2, 1): 5, (2, 3): 6, (3, 2): 6}
    assert found.notes[0] == "left out: sizes and weights of the nodes"
    found = read_graph(text_file(tmp_path, "3 1\n3\n\n1\n", "b.graph"))
    assert pairs(found) == [(1, 3), (3, 1)]
    assert found.nodes.num_rows == 3


def test_node_link_json_of_other_writers(tmp_path):
    graph = {
        "nodes": [{"name": "a", "age": 3}, {"name": "b"}],
        "links": [{"source": 0, "target": 1, "kind": "x"}],
    }
    found = read_graph(text_file(tmp_path, json.dumps(graph)))  # D3 before version 4
    assert found.nodes.to_pylist() == [
        {"node_id": 0, "name": "a", "age": 3},
        {"node_id": 1, "name": "b", "age": None},
    ]
    assert "left out: kind of the links" in found.notes
    graph = {
        "directed": True,
        "nodes": [{"id": "a", "v": 1}, {"id": "b", "v": "x"}],
        "edges": [{"source": "b", "target": "a"}],
    }
    found = read_graph(text_file(tmp_path, json.dumps(graph)))
    assert found.nodes["v"].to_pylist() == ["1", "x"]
    assert found.notes[0] == "as text, because some values are text: v"
    assert found.directed


WRONG = {
    "three fields": ("edge-list", "1 2\n1 2 3\n", "3 fields in line 2 and 2"),
    "one column": ("edge-list", "1\n2\n", "has one field"),
    "no edge": ("edge-list", "# nothing\n", "has no edges"),
    "bipartite": ("edge-list", "% bip unweighted\n1 1\n", "is bipartite"),
    "a weight of text": ("edge-list", "1 2 x\n", "is not an edge list"),
    "other encoding": ("edge-list", "a b\nc \udcff\n", "0xff in line 2, .* UTF-8"),
    "short metis": (
        "metis",
        "3 1\n2\n",
        "1 lines after the first, which names 3 nodes",
    ),
    "no header": ("metis", "a graph\n", "is not a METIS graph file .*graphchk"),
    "outside": ("metis", "2 1\n3\n1\n", "names node 3 .* nodes are 1 to 2"),
    "empty": ("metis", "", "is empty"),
    "one way": ("metis", "2 1\n2\n\n", "1 neighbours and 1 edges"),
    "no weight": ("metis", "2 1 1\n2\n1 4\n", "1 numbers in line 2"),
    "more nodes": (
        "metis",
        "2 1\n2\n1\n1\n",
        "3 lines after the first, which names 2 nodes",
    ),
    "cut json": ("node-link", '{"nodes": [', "is not node-link JSON"),
    "a list": ("node-link", "[]", "is not node-link JSON"),
    "deep json": ("node-link", "[" * 200_000, "is not node-link JSON"),
    "no nodes": ("node-link", '{"nodes": [], "links": []}', "lists of objects"),
    "mixed ids": (
        "node-link",
        '{"nodes": [{"id": 1}, {"id": "a"}], "links": []}',
        "types int, str",
    ),
    "no such node": (
        "node-link",
        '{"nodes": [{"id": 1}], "links": [{"source": 1, "target": 2}]}',
        "target 2 in link 1, which is no node",
    ),
    "cut xml": ("graphml", "<graphml><graph", "is not a GraphML file that igraph"),
    "no archive": ("npz", "PK nothing", "is not a NumPy archive with the expected"),
    "no tensors": ("pyg", "PK nothing", "is not a complete file of torch.save"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_damaged_file_is_refused_in_one_sentence(case, tmp_path):
    form, text, words = WRONG[case]
    path = tmp_path / "file"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(InputError, match=words) as caught:
        read_graph(path, form)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def npz(folder: Path, **arrays: object) -> Path:
    base = {"node_features": FEATURES, "node_labels": CLASSES, "edges": UNDIRECTED}
    np.savez(folder / "a.npz", **(base | arrays))
    return folder / "a.npz"


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"edges": [[0, 99]]}, r"edge \(0, 99\) \(row 1\)"),
        ({"node_labels": CLASSES[1:]}, "features 12, labels 11"),
        ({"node_labels": CLASSES + 0.5}, "not whole numbers"),
        ({"node_labels": np.ones((NODES, 5))}, "5 labels for each node"),
        ({"node_features": np.array([{}], object)}, "holds Python objects"),
        ({"train_masks": np.ones((2, 3), bool)}, "mask of the role train .*again"),
    ],
)
def test_arrays_that_do_not_match_are_refused(tmp_path, arrays, words):
    if "train_masks" in arrays:
        arrays = {"test_masks": np.ones((2, NODES), bool), **arrays}
    with pytest.raises(InputError, match=words):
        read_graph(npz(tmp_path, **arrays))


def test_edges_of_an_archive_have_a_direction_if_its_name_says_so(tmp_path):
    for name, directed in (("a_directed", True), ("a_undirected", False)):
        write_npz(tmp_path / f"{name}.npz")
        assert read_graph(tmp_path / f"{name}.npz").directed is directed


def test_one_hot_rows_and_missing_labels_are_classes_and_nulls(tmp_path):
    hot = np.eye(3)[np.maximum(CLASSES, 0)]
    found = read_graph(npz(tmp_path, node_labels=hot))
    assert found.nodes["label"].to_pylist() == np.maximum(CLASSES, 0).tolist()
    found = read_graph(npz(tmp_path, node_labels=np.where(CLASSES, CLASSES, np.nan)))
    assert found.nodes["label"].null_count == np.sum(CLASSES <= 0)
    assert "are unlabelled" in found.notes[0]


def test_folders_of_several_graphs_or_types_are_refused(tmp_path):
    write_ogb(tmp_path)
    with gzip.open(tmp_path / "raw/num-node-list.csv.gz", "wt") as stream:
        stream.write("5\n7\n")
    with pytest.raises(InputError, match=r"has 2 graphs .*ogbn"):
        read_graph(tmp_path)
    (tmp_path / "raw/triplet-type-list.csv.gz").touch()
    with pytest.raises(InputError, match=r"several types of nodes .*ogbn-arxiv"):
        read_graph(tmp_path)


def test_sizes_are_checked_before_reading(tmp_path, monkeypatch):
    """With memory for 100 bytes nothing is read, whatever the file unpacks to."""
    for name, write in WRITERS.values():
        write(tmp_path / name)
    free = type("Free", (), {"available": 200})
    monkeypatch.setattr("psutil.virtual_memory", lambda: free)
    for form, (name, _write) in WRITERS.items():
        with pytest.raises(DoesNotFitError, match=r"needs about .* and 100 B can"):
            read_graph(tmp_path / name, form)


def test_what_is_no_graph_is_refused_with_the_formats_to_name(tmp_path):
    for text in (
        "",
        "some words of prose\nand one\n",
        "\0\1\2",
        "node_id,label\n1,2\n",
    ):
        with pytest.raises(InputError, match=r"looks like none .* ogb, npz, pyg"):
            read_graph(text_file(tmp_path, text))
    with pytest.raises(InputError, match="does not exist"):
        read_graph(tmp_path / "absent")
    with pytest.raises(InputError, match="convert reads local files"):
        read_graph("s3://bucket/a.graphml")
    with pytest.raises(SettingsError, match="no format 'gexf': choose one of ogb"):
        read_graph(text_file(tmp_path, "1 2\n"), "gexf")
    with pytest.raises(InputError, match="Is a directory"):
        read_graph(tmp_path, "node-link")


def test_tables_are_replaced_on_request_alone_and_all_at_once(tmp_path):
    write_npz(tmp_path / "a.npz")
    write_node_link(tmp_path / "a.json")
    out = tmp_path / "out"
    convert(tmp_path / "a.npz", out)
    assert sorted(file.name for file in out.iterdir()) == [
        *("edges.parquet", "nodes.parquet", "splits.parquet")
    ]
    with pytest.raises(InputError, match=r"nodes\.parquet exists already"):
        convert(tmp_path / "a.json", out)
    found = convert(tmp_path / "a.json", out, overwrite=True)
    assert sorted(file.name for file in out.iterdir()) == [
        *("edges.parquet", "nodes.parquet")
    ]
    assert pq.read_table(out / "nodes.parquet").equals(found.nodes)


def test_a_folder_that_cannot_be_created_is_named(tmp_path):
    write_node_link(tmp_path / "a.json")
    with pytest.raises(InputError, match=r"a\.json cannot be created .*another folder"):
        convert(tmp_path / "a.json", tmp_path / "a.json")


def test_a_refused_file_leaves_the_place_as_it_was(tmp_path):
    path = text_file(tmp_path, "2 1\n3\n1\n", "a.graph")
    with pytest.raises(InputError):
        convert(path, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_the_command_names_what_the_tables_need(tmp_path):
    write_metis(tmp_path / "a.graph")
    found = read_graph(tmp_path / "a.graph")
    assert run_command(found, "a b") == (
        "xnq-dist run --nodes 'a b/nodes.parquet' --edges 'a b/edges.parquet' --out "
        "'a b-run'"
    )
    assert found.notes == (
        "the file has no labels: add a column label to nodes.parquet",
    )
    nodes = pa.table({"node_id": [1, 2], "club": ["a", "b"], "y": [0, 1]})
    found = Converted(nodes, found.edges, directed=True)
    assert run_command(found, "g").endswith(
        "--set columns.label=y --set input.directed=true"
    )
    found = Converted(nodes.drop_columns("y"), found.edges, directed=None)
    first, second = conversion.open_questions(found)
    assert "the classes are taken from 'club', the only column of text" in first
    assert "--set columns.label=club" in run_command(found, "g")
    two = replace(found, nodes=found.nodes.append_column("town", pa.array(["c", "d"])))
    first, _ = conversion.open_questions(two)
    assert first.endswith("set columns.label to the column of the classes (club, town)")
    assert "--set columns.label=NAME" in run_command(two, "g")
    assert "input.directed=true" in second
