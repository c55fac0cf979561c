"""Small files of each public format give the graph that they were made from."""

from __future__ import annotations

import json

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from tests.evaluation.datasets.forms import (
    write_graphsaint,
    write_heterophilous,
    write_linkx,
    write_musae,
    write_planetoid,
)
from xnq_dist.core.errors import InputError
from xnq_dist.evaluation.datasets.arrays import checked_edges
from xnq_dist.evaluation.datasets.graphs import distinct, integer_labels
from xnq_dist.evaluation.datasets.musae import (
    GAMES,
    game_counts,
    read_musae,
    rebuilt_features,
)
from xnq_dist.evaluation.datasets.parsers import (
    parse,
    read_graphsaint,
    read_heterophilous,
    read_linkx,
    read_planetoid,
    read_ptg,
)

FEATURES = np.arange(18, dtype=np.float32).reshape(6, 3) % 5
LABELS = np.array([0, 2, 1, 0, 1, 2])
EDGES = np.array([[0, 1], [1, 2], [4, 5], [3, 0]])


def pairs(edges: np.ndarray) -> list[tuple[int, int]]:
    return [tuple(edge) for edge in edges.tolist()]


def test_planetoid_puts_test_rows_where_the_index_says(tmp_path):
    neighbours = {0: [1, 1, 0], 1: [0], 2: [5], 5: [2]}
    write_planetoid(tmp_path, FEATURES, LABELS, neighbours, [5, 3, 4], "ind.some")
    graph = read_planetoid(tmp_path, "ind.some")
    assert np.array_equal(graph.features, FEATURES)
    assert graph.features.dtype == np.float32
    assert np.array_equal(graph.labels, LABELS)
    # the loop and the duplicate edge are removed; sorted by target
    assert pairs(graph.edges) == [(1, 0), (0, 1), (5, 2), (2, 5)]
    assert graph.facts["raw_self_loops"] == 1


def test_planetoid_with_nodes_left_out_is_refused(tmp_path):
    write_planetoid(tmp_path, FEATURES, LABELS, {0: [1]}, [5, 3, 4], "ind.some")
    (tmp_path / "ind.some.test.index").write_text("5\n3\n7\n")
    with pytest.raises(InputError, match="last 3 of 6 nodes"):
        read_planetoid(tmp_path, "ind.some")
    (tmp_path / "ind.some.test.index").write_text("five\n")
    with pytest.raises(InputError, match="not a list of integers"):
        read_planetoid(tmp_path, "ind.some")


def test_planetoid_parts_in_each_others_place_are_refused(tmp_path):
    write_planetoid(tmp_path, FEATURES, LABELS, {0: [1]}, [5, 3, 4], "ind.some")
    graph, matrix = tmp_path / "ind.some.graph", tmp_path / "ind.some.allx"
    kept = graph.read_bytes()
    graph.write_bytes(matrix.read_bytes())
    with pytest.raises(InputError, match="not a dict"):
        read_planetoid(tmp_path, "ind.some")
    matrix.write_bytes(kept)
    with pytest.raises(InputError, match="not a matrix"):
        read_planetoid(tmp_path, "ind.some")


def test_heterophilous_edges_come_both_ways_and_once(tmp_path):
    path = tmp_path / "some.npz"
    twice = np.concatenate([EDGES, [[2, 1]]])
    write_heterophilous(path, FEATURES, LABELS, twice)
    graph = parse("heterophilous", tmp_path, ["some.npz"], {})
    wanted = sorted(pairs(EDGES) + pairs(EDGES[:, ::-1]))
    assert pairs(graph.edges) == wanted
    assert np.array_equal(graph.labels, LABELS)
    assert np.array_equal(graph.features, FEATURES)


def test_archives_with_objects_or_missing_arrays_are_refused(tmp_path):
    path = tmp_path / "some.npz"
    np.savez(path, node_features=np.array([{}], object), node_labels=0, edges=0)
    with pytest.raises(InputError, match="array node_features holds Python objects"):
        read_heterophilous(path)
    np.savez(path, node_features=FEATURES)
    with pytest.raises(InputError, match="node_labels"):
        read_heterophilous(path)
    path.write_bytes(b"<html>gone</html>")
    with pytest.raises(InputError, match=r"some\.npz is not a NumPy archive"):
        read_heterophilous(path)
    write_heterophilous(path, FEATURES[0], LABELS, EDGES)
    with pytest.raises(InputError, match="features have shape"):
        read_heterophilous(path)


def test_linkx_keeps_the_directed_edges_and_scales_rows_as_the_paper(tmp_path):
    path = tmp_path / "some.mat"
    features = np.array([[-1.0, 1.0, 2.0], [-1.0, -1.0, -0.5], [0.0, 0.0, 0.0]])
    edges = np.array([[2, 0], [0, 1], [2, 0]])
    write_linkx(path, features, np.array([1, -1, 0]), edges)
    graph = read_linkx(path)
    assert pairs(graph.edges) == pairs(edges)
    assert graph.labels.tolist() == [1, 0, 0]
    assert graph.facts["labels_below_0_as_0"] == 1
    # shifted by the minimum: sums 5, .5 (not divided) and 3
    wanted = [[0, 0.4, 0.6], [0, 0, 0.5], [1 / 3, 1 / 3, 1 / 3]]
    assert np.allclose(graph.features, wanted)
    path.write_bytes(b"not a matrix")
    with pytest.raises(InputError, match="not a MATLAB file"):
        read_linkx(path)


def test_ptg_keeps_the_edges_sorted(tmp_path):
    path = tmp_path / "DE.npz"
    np.savez(path, features=FEATURES, target=LABELS, edges=EDGES)
    graph = read_ptg(path)
    assert pairs(graph.edges) == sorted(pairs(EDGES))
    assert np.array_equal(graph.labels, LABELS)


def test_graphsaint_rows_are_sources(tmp_path):
    ones = np.ones(len(EDGES))
    adjacency = csr_matrix((ones, (EDGES[:, 0], EDGES[:, 1])), shape=(6, 6))
    write_graphsaint(tmp_path, adjacency, FEATURES.astype(np.float64), LABELS)
    graph = read_graphsaint(tmp_path)
    assert pairs(graph.edges) == sorted(pairs(EDGES))
    assert graph.features.dtype == np.float32
    assert np.array_equal(graph.features, FEATURES)
    assert np.array_equal(graph.labels, LABELS)


def test_graphsaint_nodes_without_a_class_are_unlabelled(tmp_path):
    write_graphsaint(tmp_path, csr_matrix((6, 6)), FEATURES, LABELS)
    path = tmp_path / "class_map.json"
    path.write_text(json.dumps({"1": 3, "4": 0}))
    assert read_graphsaint(tmp_path).labels.tolist() == [-1, 3, -1, -1, 0, -1]
    path.write_text(json.dumps({"0": [0, 1], "1": [1, 1]}))
    with pytest.raises(InputError, match="several classes"):
        read_graphsaint(tmp_path)
    path.write_text(json.dumps({"17": 1}))
    with pytest.raises(InputError, match="node 17"):
        read_graphsaint(tmp_path)
    path.write_text("[")
    with pytest.raises(InputError, match="not a JSON object"):
        read_graphsaint(tmp_path)


def test_graphsaint_parts_of_different_graphs_are_refused(tmp_path):
    write_graphsaint(tmp_path, csr_matrix((5, 5)), FEATURES, LABELS[:5])
    with pytest.raises(InputError, match="6 rows for the 5 nodes"):
        read_graphsaint(tmp_path)


GAMES_OF = [[0, 2], [2, 2, 3169], [], [1], [5], [7, 8]]


def musae(tmp_path, **options):
    given = {"features": ("musae_DE_features.json",), "rows": (6,), "rebuild": 2}
    given |= options
    return read_musae(tmp_path, "DE", **given)


def test_musae_has_loops_and_labels_in_node_order(tmp_path):
    mature = np.array([1, 0, 0, 1, 1, 0])
    write_musae(tmp_path, "DE", mature, EDGES, GAMES_OF)
    graph = musae(tmp_path)
    both = pairs(EDGES) + pairs(EDGES[:, ::-1])
    assert pairs(graph.edges) == sorted(both + [(node, node) for node in range(6)])
    assert np.array_equal(graph.labels, mature)
    assert graph.features.shape == (6, 2)
    counts = game_counts(tmp_path / "musae_DE_features.json", 6)
    assert counts.shape == (6, GAMES)
    assert counts[1, 2] == 2
    assert counts.sum() == sum(map(len, GAMES_OF))


def test_musae_files_that_do_not_fit_are_refused(tmp_path):
    write_musae(tmp_path, "DE", np.zeros(6), EDGES, GAMES_OF)
    with pytest.raises(InputError, match="has 7 nodes"):
        musae(tmp_path, rows=(7,))
    games = tmp_path / "musae_DE_features.json"
    games.write_text(json.dumps({"0": [GAMES]}))
    with pytest.raises(InputError, match=f"game outside 0 to {GAMES - 1}"):
        musae(tmp_path)
    games.write_text(json.dumps([1]))
    with pytest.raises(InputError, match="not a JSON object"):
        musae(tmp_path)
    (tmp_path / "musae_DE_edges.csv").write_text("from,to\n0,six\n")
    with pytest.raises(InputError, match="columns from and to"):
        musae(tmp_path)
    (tmp_path / "musae_DE_target.csv").write_text("new_id,mature\n0,True\n2,True\n")
    with pytest.raises(InputError, match="does not number the nodes"):
        musae(tmp_path)


def test_rebuilt_features_are_standardised_over_all_languages(tmp_path):
    rng = np.random.default_rng(0)
    paths = []
    for language, nodes in (("DE", 30), ("RU", 20)):
        lists = [rng.choice(12, 4).tolist() for _ in range(nodes)]
        pairs_of = np.array([[0, 1]])
        write_musae(tmp_path, language, np.zeros(nodes), pairs_of, lists)
        paths.append(tmp_path / f"musae_{language}_features.json")
    # the second has two nodes more than its file lists
    counts = [game_counts(paths[0], 30), game_counts(paths[1], 22)]
    made = rebuilt_features(counts, 3)
    assert made.shape == (52, 3)
    assert made.dtype == np.float32
    assert np.allclose(made.mean(axis=0), 0, atol=1e-6)
    assert np.allclose(made.std(axis=0), 1, atol=1e-5)
    assert np.array_equal(made, rebuilt_features(counts, 3))
    files = tuple(path.name for path in paths)
    graph = musae(tmp_path, features=files, rows=(30, 22), rebuild=3)
    assert np.array_equal(graph.features, made[:30])
    assert "rebuilt" in graph.facts["features_are"]


def test_edges_outside_the_graph_and_of_no_whole_numbers_are_named(tmp_path):
    with pytest.raises(InputError, match=r"edge \(1, 6\) \(row 2\)"):
        checked_edges([[0, 5], [1, 6]], 6, tmp_path / "e")
    with pytest.raises(InputError, match="two integers per row"):
        checked_edges([[0.0, 5.0]], 6, tmp_path / "e")


def test_labels_that_are_no_classes_are_refused(tmp_path):
    assert integer_labels([[True], [False]], 2, tmp_path).tolist() == [1, 0]
    for labels, reason in (
        ([0], "1 labels for 2"),
        ([0.5, 1], "not integers"),
        (["a", "b"], "not numbers"),
    ):
        with pytest.raises(InputError, match=reason):
            integer_labels(labels, 2, tmp_path)


def test_distinct_sorts_by_either_end():
    edges = np.array([[1, 0], [0, 1], [1, 0], [1, 1], [0, 2]])
    assert pairs(distinct(edges, 3)) == [(0, 1), (0, 2), (1, 0), (1, 1)]
    assert pairs(distinct(edges, 3, by=1, loops=False)) == [(1, 0), (0, 1), (0, 2)]
