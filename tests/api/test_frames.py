"""The tables made from frames, matrices and graph objects: the same for each form."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy import sparse

from xnq_dist.api.frames import Tables, members_of, tables_of
from xnq_dist.core.errors import InputError
from xnq_dist.core.sections import ColumnSettings

COLUMNS = ColumnSettings()
IDS = pa.array(["a", "b", "c", "d"])
LABELS = ["x", None, "y", "x"]
FEATURES = np.arange(8.0).reshape(4, 2)
EDGES = [("a", "b", 1.0), ("b", "c", 2.0), ("c", "d", 1.0), ("d", "a", 0.5)]
NODES = pa.table(
    {
        "node_id": IDS,
        "label": pa.array(LABELS),
        "features": pa.FixedSizeListArray.from_arrays(pa.array(FEATURES.ravel()), 2),
    }
)
EDGE_TABLE = pa.table(
    [pa.array(column) for column in zip(*EDGES, strict=True)], ["src", "dst", "weight"]
)


def made(nodes: Any, edges: Any = None, members: Any = None, **more: Any) -> Tables:
    values = {"labels": None, "features": None, "columns": COLUMNS, **more}
    return tables_of(nodes, edges, members, **values)


def rows(table: pa.Table) -> list[dict[str, Any]]:
    return table.to_pylist()


@pytest.mark.parametrize(
    "turned",
    [pa.Table.to_pandas, pl.from_arrow, lambda table: table, pa.Table.to_reader],
    ids=["pandas", "polars", "arrow", "reader"],
)
def test_frames_give_the_tables_they_hold(turned):
    tables = made(turned(NODES), turned(EDGE_TABLE))
    assert rows(tables.nodes) == rows(NODES)
    assert rows(tables.edges) == rows(EDGE_TABLE)
    assert tables.implied == {}


def test_text_of_polars_is_filtered_and_taken():
    frame = pl.from_arrow(NODES)
    tables = made(frame, sparse.csr_array(np.eye(4)), pl.DataFrame({"community": IDS}))
    assert pa.types.is_large_string(tables.memberships.schema.field(0).type)
    assert tables.nodes.filter(tables.nodes["label"].is_valid()).num_rows == 3
    assert tables.edges["src"].to_pylist() == IDS.to_pylist()


@pytest.mark.parametrize("kind", [pl.Categorical, pl.Enum(["a", "b"])], ids=str)
def test_categories_of_polars_are_text(kind, tmp_path):
    frame = pl.from_arrow(NODES)
    towns = pl.Series("town", ["a", "b", None, "a"], kind)
    tables = made(frame.with_columns(towns), EDGE_TABLE, labels=towns)
    read = pq.read_table(tables.write(tmp_path).nodes)
    assert read["town"].to_pylist() == read["label"].to_pylist() == towns.to_list()


def test_a_named_pandas_index_is_a_column():
    nodes = pd.DataFrame({"label": LABELS}, pd.Index(IDS.to_pylist(), name="node_id"))
    assert made(nodes, EDGE_TABLE).nodes["node_id"].to_pylist() == IDS.to_pylist()
    by_range = pd.DataFrame({"label": LABELS}, pd.RangeIndex(4, name="node_id"))
    assert made(by_range, EDGE_TABLE).nodes["node_id"].to_pylist() == [0, 1, 2, 3]
    both = nodes.reset_index().set_index("node_id", drop=False)
    assert made(both, EDGE_TABLE).nodes["node_id"].to_pylist() == IDS.to_pylist()


def test_paths_stay_paths(tmp_path):
    tables = made(tmp_path / "n.csv", "s3://b/e.parquet", "m.parquet")
    sources = tables.write(tmp_path)
    assert sources.nodes == str(tmp_path / "n.csv")
    assert (sources.edges, sources.memberships) == ("s3://b/e.parquet", "m.parquet")


def test_labels_and_features_become_columns_in_the_nodes_order():
    bare = NODES.select(["node_id"])
    tables = made(bare, EDGE_TABLE, labels=LABELS, features=FEATURES)
    assert rows(tables.nodes) == rows(NODES)
    assert tables.implied == {}
    floats = made(bare, EDGE_TABLE, labels=np.array([0, np.nan, 1, 0]))
    assert floats.nodes["label"].to_pylist() == [0, None, 1, 0]
    again = made(NODES, EDGE_TABLE, labels=["z", "z", None, "x"])
    assert again.nodes["label"].to_pylist() == ["z", "z", None, "x"]


def test_scores_become_columns_in_the_nodes_order():
    vendor = pd.Series([0.5, 0.25, np.nan, 1.0], ["d", "c", "b", "a"])
    tables = made(NODES, EDGE_TABLE, scores={"vendor": vendor, "llm": [1, 2, 3, 4]})
    assert tables.nodes["vendor"].to_pylist() == [1.0, None, 0.25, 0.5]
    assert tables.nodes["llm"].to_pylist() == [1, 2, 3, 4]
    assert tables.implied == {"columns.scores": ["vendor", "llm"]}
    for names in ("vendor", ["vendor"], ("vendor",)):
        named = made(tables.nodes, EDGE_TABLE, scores=names)
        with pytest.raises(InputError, match="scores and nodes both have 'vendor'"):
            made(tables.nodes, EDGE_TABLE, scores={"vendor": vendor})
        assert named.nodes is tables.nodes or rows(named.nodes) == rows(tables.nodes)
        assert named.implied == {"columns.scores": ["vendor"]}


@pytest.mark.parametrize("form", [sparse.csr_array, sparse.coo_matrix, np.asarray])
def test_an_adjacency_matrix_has_its_edges_from_row_to_column(form):
    dense = np.zeros((4, 4))
    for src, dst, weight in EDGES:
        dense["abcd".index(src), "abcd".index(dst)] = weight
    alone = made(form(dense), labels=LABELS, features=FEATURES)
    assert alone.implied["input.directed"] is True
    assert alone.nodes["node_id"].to_pylist() == [0, 1, 2, 3]
    named = made(NODES, form(dense))
    key = [("src", "ascending"), ("dst", "ascending")]
    assert rows(named.edges.sort_by(key)) == rows(EDGE_TABLE.sort_by(key))
    without = made(form((dense > 0).astype(int)))
    assert without.edges.column_names == ["src", "dst"]
    assert without.edges.num_rows == 4


@pytest.mark.oracle
def test_a_networkx_graph_has_its_attributes_as_columns():
    nx = pytest.importorskip("networkx")
    graph = nx.DiGraph()
    for row in rows(NODES):
        name = row.pop("node_id")
        graph.add_node(name, **{k: v for k, v in row.items() if v is not None}, odd=len)
    graph.add_weighted_edges_from(EDGES)
    graph.nodes["a"]["node_id"] = "d"  # the graph's own ids are those of its edges
    tables = made(graph)
    assert rows(tables.nodes) == rows(NODES)
    assert rows(tables.edges) == rows(EDGE_TABLE)
    assert tables.implied["input.directed"] is True
    assert made(graph.to_undirected()).implied["input.directed"] is False
    assert made(nx.path_graph(3)).edges.column_names == ["src", "dst"]


class Tensor:
    """What this package uses of a tensor: PyTorch Geometric is not installed here."""

    def __init__(self, values: Any) -> None:
        self.values = np.asarray(values)

    def detach(self) -> Tensor:
        return self

    def cpu(self) -> Tensor:
        return self

    def numpy(self) -> np.ndarray:
        return self.values


def data(**more: Any) -> SimpleNamespace:
    parts = {"edge_index": [[0, 1, 2], [1, 2, 3]], "x": FEATURES, "y": [0, 1, -1, 1]}
    return SimpleNamespace(**{k: Tensor(v) for k, v in {**parts, **more}.items()})


def test_a_graph_with_the_attributes_of_pytorch_geometric_is_read():
    tables = made(data(edge_attr=[[1.0], [2.0], [3.0]]))
    assert tables.nodes["label"].to_pylist() == [0, 1, None, 1]
    assert tables.nodes["features"].to_pylist() == FEATURES.tolist()
    assert tables.edges.to_pydict() == {
        "src": [0, 1, 2],
        "dst": [1, 2, 3],
        "weight": [1.0, 2.0, 3.0],
    }
    # Labels outside the training and validation masks are hidden.
    masks = {"train_mask": [1, 0, 0, 0], "val_mask": [0, 1, 1, 0]}
    shown = data(**{name: np.array(mask, bool) for name, mask in masks.items()})
    assert made(shown).nodes["label"].to_pylist() == [0, 1, None, None]


MEMBERS = [("p", "a"), ("p", "b"), ("q", "b"), ("q", "d")]


@pytest.mark.parametrize(
    "form",
    [
        {"p": ["a", "b"], "q": ["b", "d"]},
        {"p": {"a": 1, "b": 1}, "q": pd.Series(["b", "d"])},
        pd.Series({"p": ["a", "b"], "q": ["b", "d"]}),
        pd.DataFrame(MEMBERS, columns=["community", "node_id"]),
        pl.DataFrame(MEMBERS, schema=["community", "node_id"], orient="row"),
    ],
    ids=["lists", "dict and series", "series", "pandas", "polars"],
)
def test_memberships_with_names_are_one_table(form):
    _, table = members_of(form, IDS, COLUMNS)
    assert [tuple(row.values()) for row in rows(table)] == MEMBERS


@pytest.mark.parametrize(
    "form",
    [
        [["a", "b"], [], ["b", "d"]],
        np.array([[1, 1, 0, 0], [0, 0, 0, 0], [0, 1, 0, 1]]),
        sparse.csr_array([[1, 1, 0, 0], [0, 0, 0, 0], [0, 1, 0, 1]]),
    ],
    ids=["lists", "array", "sparse"],
)
def test_memberships_without_names_are_numbered(form):
    names, table = members_of(form, IDS, COLUMNS)
    assert names == [0, 1, 2]
    assert table.to_pydict() == {
        "community": [0, 0, 2, 2],
        "node_id": ["a", "b", "b", "d"],
    }


def test_no_memberships_are_an_empty_table():
    assert members_of({}, IDS, COLUMNS)[1].num_rows == 0


def test_members_may_be_hashes_of_64_bits():
    _, table = members_of([[2**63 + 2, 7]], None, COLUMNS)
    assert table["node_id"].to_pylist() == [2**63 + 2, 7]


@pytest.mark.parametrize("form", [pd.Series, iter])
def test_memberships_may_be_the_community_of_each_node(form):
    _, table = members_of(form(["p", None, "q", "p"]), IDS, COLUMNS)
    assert table.to_pydict() == {
        "community": ["p", "q", "p"],
        "node_id": ["a", "c", "d"],
    }


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (([1, 2], EDGE_TABLE), "nodes is a list: give a DataFrame"),
        ((NODES,), "edges is missing: give a table of edges, or a graph as nodes"),
        ((data(), EDGE_TABLE), "which has edges: leave edges out"),
        ((np.zeros((3, 4)),), "shape (3, 4): it needs a row and a column for each"),
        ((NODES, np.zeros((3, 3))), "nodes has 4 rows and edges 3: give one row"),
        (("n.csv", np.zeros((3, 3))), "edges needs the order of the nodes"),
        ((pl.LazyFrame({"a": [1]}), EDGE_TABLE), "a LazyFrame: call its collect()"),
        ((NODES, EDGE_TABLE, 7), "memberships is an int: give a DataFrame"),
        ((NODES, EDGE_TABLE, {"p": [1, "a"]}), "memberships cannot be read"),
        ((NODES, EDGE_TABLE, {"drawn": "random"}), "is written memberships__drawn"),
        (
            (pd.DataFrame({"node_id": [1, "a"]}), EDGE_TABLE),
            "nodes has a column that Arrow cannot hold",
        ),
        ((data(y=np.zeros((4, 3))),), "labels have shape (4, 3)"),
        ((data(train_mask=np.ones((4, 10), bool)),), "a column for each split"),
    ],
)
def test_what_cannot_be_used_is_refused_with_what_can(arguments, words):
    with pytest.raises(InputError) as error:
        made(*arguments)
    assert words in str(error.value)


def test_arrays_of_another_length_are_refused_with_both_numbers():
    with pytest.raises(InputError, match="nodes has 4 rows and labels 3: give one row"):
        made(NODES, EDGE_TABLE, labels=LABELS[:3])
    with pytest.raises(InputError, match="labels needs the order of the nodes"):
        made("n.csv", "e.csv", labels=LABELS)
    with pytest.raises(InputError, match=r"features are an array of <U1 .*: give numb"):
        made(NODES, EDGE_TABLE, features=np.array([["a"]] * 4))


def test_pandas_objects_are_matched_by_their_index():
    ids = ["a", "b", "c", "d"]
    nodes = pd.DataFrame({"node_id": ids, "x": [1.0, 2.0, 3.0, 4.0]})
    edges = pd.DataFrame({"src": ids[:3], "dst": ids[1:]})
    by_id = nodes.set_index("node_id")
    labels = pd.Series({"d": "yes", "a": "no"})
    features = pd.DataFrame({"f": [4.0, 3.0, 2.0, 1.0]}, index=ids[::-1])
    groups = pd.Series(["p", "q", "p", "q"], index=["b", "a", "d", "c"])
    for table in (nodes, by_id):
        found = made(table, edges, groups, labels=labels, features=features)
        assert found.nodes["label"].to_pylist() == ["no", None, None, "yes"]
        assert found.nodes["features"].to_pylist() == [[1.0], [2.0], [3.0], [4.0]]
        members = found.memberships.to_pydict()
        pairs = set(zip(*members.values(), strict=True))
        assert pairs == {("p", "b"), ("q", "a"), ("p", "d"), ("q", "c")}
    number = nodes.assign(node_id=[1, 2, 3, 4])
    ends = pd.DataFrame({"src": [1, 2], "dst": [3, 4]})
    named = pd.Series({3: "yes", 1: "no"}).rename_axis("node_id")
    found = made(number, ends, labels=named)
    assert found.nodes["label"].to_pylist() == ["no", None, "yes", None]
    with pytest.raises(InputError, match="index of node ids or of rows"):
        made(number, ends, labels=named.rename_axis(None))
    some = pd.Series(["yes", "yes"], index=[1, 3])
    found = made(nodes, edges, labels=some)
    assert found.nodes["label"].to_pylist() == [None, "yes", None, "yes"]
    with pytest.raises(InputError, match="'z', which is no node id"):
        made(by_id, edges, labels=pd.Series({"z": "yes"}))
    with pytest.raises(InputError, match="repeated values in its index"):
        made(by_id, edges, labels=pd.Series(["yes", "no"], index=["a", "a"]))


def test_columns_that_cannot_be_written_are_refused(tmp_path):
    table = NODES.to_pandas()
    table["age"] = pd.cut(pd.Series(range(len(table))), 2)
    with pytest.raises(InputError, match="column 'age' of nodes is dictionary"):
        made(table, EDGE_TABLE).write(tmp_path)
