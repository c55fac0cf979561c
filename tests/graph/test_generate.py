"""Generated networks: the same bits, the stated figures, arguments refused by name."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from xnq_dist.core import schemas
from xnq_dist.core.errors import SettingsError
from xnq_dist.graph import planted
from xnq_dist.graph.generate import Arguments, demo_network, generate

ARGUMENTS = {
    "nodes": 3000,
    "degree": 10,
    "features": 6,
    "classes": 3,
    "homophily": 0.7,
    "communities": 40,
    "seed": 5,
}
TABLES = {
    "nodes": "generated_nodes",
    "edges": "generated_edges",
    "memberships": "memberships",
    "truth": "truth",
}


def made(folder, **changes):
    return generate(folder, Arguments(**{**ARGUMENTS, **changes}))


def table(graph, name):
    found = pq.read_table(graph[name])
    schemas.check(found.schema, TABLES[name], graph[name])
    return found


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    return made(tmp_path_factory.mktemp("made"))


def memberships(graph):
    found = table(graph, "memberships")
    return found["community"].to_numpy(), found["node_id"].to_numpy()


def ends(graph):
    edges = table(graph, "edges")
    return edges["src"].to_numpy(), edges["dst"].to_numpy()


def test_same_arguments_give_the_same_bytes(graph, tmp_path):
    again = made(tmp_path)
    for name, path in graph.items():
        assert Path(path).read_bytes() == Path(again[name]).read_bytes(), name


def test_another_seed_gives_another_network(graph, tmp_path):
    other = made(tmp_path, seed=6)
    for name in TABLES:
        assert not table(other, name).equals(table(graph, name)), name


def test_later_streams_continue_the_edges(tmp_path, monkeypatch):
    monkeypatch.setattr(planted, "EDGE_BLOCK", 2000)
    graph = made(tmp_path)
    src, dst = ends(graph)
    assert abs(len(src) - 15000) < 300
    low, high = np.minimum(src, dst), np.maximum(src, dst)
    repeated = len(low) - len(np.unique(low * 3000 + high))
    assert repeated < 0.02 * len(low)
    assert (low != high).all()


def test_labels_are_those_of_the_truth(graph):
    nodes, truth = table(graph, "nodes"), table(graph, "truth")
    labels = truth["label"].to_numpy()
    assert nodes["node_id"].equals(truth["node_id"])
    assert nodes["node_id"].to_pylist() == list(range(3000))
    shown = np.asarray(nodes["label"].is_valid())
    known = nodes["label"].drop_null().to_numpy()
    assert np.array_equal(known, labels[shown])
    assert 0.08 < shown.mean() < 0.13


def assert_simple(graph, nodes):
    """No loop, and no edge twice."""
    src, dst = ends(graph)
    assert (src != dst).all()
    pairs = np.minimum(src, dst) * nodes + np.maximum(src, dst)
    assert len(np.unique(pairs)) == len(pairs)


def test_edges_and_classes_are_as_described(graph):
    assert_simple(graph, 3000)
    src, dst = ends(graph)
    # Both directions occur, so that a reader cannot rely on src < dst.
    assert 0.4 < (src < dst).mean() < 0.6
    degree = np.bincount(np.concatenate([src, dst]), minlength=3000)
    assert abs(degree.mean() - 10) < 0.3
    assert degree.max() > 8 * degree.mean()
    assert np.median(degree) < degree.mean()
    shares = np.bincount(table(graph, "truth")["label"].to_numpy()) / 3000
    assert np.allclose(shares, np.array([4, 2, 1]) / 7, atol=0.06)


@pytest.mark.parametrize(
    ("homophily", "classes"), [(0.0, 2), (0.25, 2), (0.2, 5), (0.9, 3), (1.0, 3)]
)
def test_homophily_is_as_requested(tmp_path, homophily, classes):
    graph = made(tmp_path, homophily=homophily, classes=classes, nodes=6000)
    label, (src, dst) = table(graph, "truth")["label"].to_numpy(), ends(graph)
    measured = (label[src] == label[dst]).mean()
    tolerance = 0.02 if 0 < homophily < 1 else 0
    assert abs(measured - homophily) <= tolerance


def test_communities_overlap_and_differ(graph):
    label = table(graph, "truth")["label"].to_numpy()
    community, node = memberships(graph)
    sizes = np.bincount(community)
    assert len(sizes) == 40
    assert len(np.unique(community * 3000 + node)) == len(node)
    assert sizes.min() >= 10
    assert sizes.max() > 2 * np.median(sizes)
    assert np.bincount(node).max() >= 2
    share = np.bincount(community, label[node] == 0) / sizes
    assert np.ptp(share) > 0.5


def test_string_ids_join(tmp_path):
    graph = made(tmp_path, string_ids=True, nodes=500)
    known = set(table(graph, "nodes")["node_id"].to_pylist())
    assert "user-007" in known
    edges = table(graph, "edges")
    assert set(edges["src"].to_pylist()) | set(edges["dst"].to_pylist()) <= known
    members = table(graph, "memberships")
    assert set(members["node_id"].to_pylist()) <= known


@pytest.mark.parametrize(("nodes", "degree"), [(10, 3), (30, 3), (40, 39)])
def test_tiny_and_dense_networks_are_completed(tmp_path, nodes, degree):
    graph = made(tmp_path, nodes=nodes, degree=degree, classes=2, communities=5)
    labels = table(graph, "nodes")["label"].drop_null().to_pylist()
    assert {0, 1} <= set(labels)
    assert table(graph, "edges").num_rows > 0
    assert_simple(graph, nodes)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("nodes", 9),
        ("degree", 0),
        ("degree", 3000),
        ("degree", float("nan")),
        ("features", 0),
        ("classes", 1),
        ("classes", 2000),
        ("homophily", -0.1),
        ("homophily", 1.1),
        ("communities", 0),
        ("seed", -1),
        ("labelled", 0),
        ("labelled", 1.5),
    ],
)
def test_bad_arguments_are_named(tmp_path, name, value):
    with pytest.raises(SettingsError, match=f"{name} = "):
        made(tmp_path / "never", **{name: value})
    assert not (tmp_path / "never").exists()


def test_demo_is_heterophilic_and_has_odd_names(tmp_path):
    graph = demo_network(tmp_path, 1)
    truth = table(graph, "truth")["label"]
    assert set(truth.to_pylist()) == {"human", "bot"}
    labels = truth.to_numpy() == "bot"
    blind = (np.bincount(labels) / len(labels)) @ (np.bincount(labels) / len(labels))
    # Clearly fewer edges within a class than with links independent of classes.
    names = table(graph, "nodes")["node_id"]
    src, dst = (pc.index_in(edge, names).to_numpy() for edge in table(graph, "edges"))
    assert (labels[src] == labels[dst]).mean() < 0.8 * blind
    names = set(table(graph, "memberships")["community"].to_pylist())
    assert 40 <= len(names) <= 60
    assert any("<b>" in name and "&" in name and '"' in name for name in names)
