"""Detected communities."""

from __future__ import annotations

import random
import subprocess
import sys

import numpy as np
import pytest
import scipy.sparse as sp

from xnq_dist.groups.leiden import leiden


def cliques(sizes: list[int], bridges: list[tuple[int, int]]) -> sp.csr_array:
    blocks = [np.ones((n, n)) - np.eye(n) for n in sizes]
    dense = np.array(sp.block_diag([sp.coo_array(block) for block in blocks]).todense())
    for a, b in bridges:
        dense[a, b] = 1
    return sp.csr_array(dense)


def test_cliques_are_detected_and_numbered_by_size():
    adjacency = cliques([4, 7, 5], [(0, 4), (10, 11)])
    expected = [2] * 4 + [0] * 7 + [1] * 5
    assert leiden(adjacency, seed=1).tolist() == expected


def test_one_direction_of_an_edge_is_enough():
    both = cliques([5, 5], [(0, 5)])
    one = sp.csr_array(sp.triu(both))
    assert leiden(one).tolist() == leiden(both).tolist() == [0] * 5 + [1] * 5


def test_weights_of_edges_determine_communities():
    # A ring of four: heavy pairs (0, 1) and (2, 3) belong together.
    rows, columns = [0, 1, 2, 3], [1, 2, 3, 0]
    ring = sp.csr_array((np.array([9.0, 1, 9, 1]), (rows, columns)), shape=(4, 4))
    assert leiden(ring).tolist() == [0, 0, 1, 1]


def test_seed_decides_and_pythons_stream_is_kept():
    rng = np.random.default_rng(0)
    adjacency = sp.csr_array((rng.random((120, 120)) < 0.05).astype(np.float32))
    random.seed(3)
    state = random.getstate()
    first = leiden(adjacency, 1.0, seed=7)
    assert random.getstate() == state
    np.testing.assert_array_equal(first, leiden(adjacency, 1.0, seed=7))
    others = [leiden(adjacency, 1.0, seed=s) for s in range(5)]
    assert any(not np.array_equal(first, other) for other in others)


def test_higher_resolution_splits():
    adjacency = cliques([6, 6], [(0, 6), (1, 7), (2, 8), (3, 9), (4, 10)])
    assert leiden(adjacency, 0.05).max() < leiden(adjacency, 3.0).max()


@pytest.mark.parametrize("weight", [None, 0.0], ids=["no edges", "weights of 0"])
def test_nodes_of_a_graph_without_edges_are_groups_of_one(weight):
    empty = sp.csr_array((3, 3))
    if weight is not None:
        empty = sp.csr_array((np.array([weight]), ([0], [1])), shape=(3, 3))
    assert leiden(empty).tolist() == [0, 1, 2]


def modularity(adjacency: sp.csr_array, labels: np.ndarray) -> float:
    """Of the mean of both directions, by its definition; a loop counts twice."""
    both = ((adjacency + adjacency.T) / 2).tocoo()
    weight = both.data * np.where(both.row == both.col, 2.0, 1.0)
    inside = weight[labels[both.row] == labels[both.col]].sum()
    strength = np.bincount(labels[both.row], weight)
    return float(inside / weight.sum() - ((strength / weight.sum()) ** 2).sum())


def towns(seed: int, weighted: bool = False, loops: bool = False) -> sp.csr_array:
    """Ten blocks of 30 nodes with hubs, and twenty nodes without edges."""
    rng = np.random.default_rng(seed)
    block, pull = rng.integers(0, 10, 300), rng.pareto(2.5, 300) + 0.5
    close = np.where(np.equal.outer(block, block), 0.2, 0.03)
    edges = np.triu(rng.random((300, 300)) < close * np.outer(pull, pull), 1)
    dense = np.zeros((320, 320))
    dense[:300, :300] = edges * (rng.integers(1, 9, edges.shape) / 4 if weighted else 1)
    if loops:
        dense[np.arange(100), np.arange(100)] = rng.integers(1, 30, 100)
    return sp.csr_array(dense)


@pytest.mark.oracle
@pytest.mark.parametrize("kind", ["plain", "weighted", "loops"])
def test_modularity_is_within_three_thousandths_of_networkxs_louvain(kind):
    """The mean of four seeds, against the best of five runs of Louvain."""
    nx = pytest.importorskip("networkx")
    for number in range(2):
        adjacency = towns(number, weighted=kind == "weighted", loops=kind == "loops")
        graph = nx.from_scipy_sparse_array((adjacency + adjacency.T) / 2)
        best, ours = 0.0, []
        for seed in range(5):
            found = nx.community.louvain_communities(graph, seed=seed)
            best = max(best, nx.community.modularity(graph, found))
        for seed in range(4):
            labels = leiden(adjacency, seed=seed)
            sets = [np.flatnonzero(labels == c) for c in range(labels.max() + 1)]
            ours.append(nx.community.modularity(graph, sets))
            assert ours[-1] == pytest.approx(modularity(adjacency, labels))
        assert np.mean(ours) >= 0.997 * best


ELSEWHERE = """
import sys
from tests.groups.test_leiden import leiden, towns
assert "graspologic_native" not in sys.modules
print(*leiden(towns(1, weighted=True), 1.2, seed=4))
"""


def test_another_process_finds_the_same_communities():
    here = leiden(towns(1, weighted=True), 1.2, seed=4)
    command = [sys.executable, "-c", ELSEWHERE]
    there = subprocess.run(command, check=True, capture_output=True, text=True)
    assert [int(label) for label in there.stdout.split()] == here.tolist()


@pytest.mark.parametrize("loops", [False, True])
def test_nodes_without_edges_to_others_are_numbered_last_in_their_order(loops):
    adjacency = towns(2)
    if loops:
        adjacency = adjacency + sp.diags_array(np.repeat([0.0, 3.0], [300, 20]))
    labels = leiden(adjacency)
    alone = labels[300:]
    assert alone.tolist() == list(range(alone[0], alone[0] + 20))
    assert alone[0] == len(set(labels[:300].tolist()))
    assert (np.diff(np.bincount(labels)) <= 0).all()


def test_larger_loops_keep_nodes_apart():
    """With enough weight in its loop, a node gains more alone than with neighbours."""
    edge = np.array([[0.0, 1.0], [1.0, 0.0]])
    assert leiden(sp.csr_array(edge)).tolist() == [0, 0]
    assert leiden(sp.csr_array(edge + 5 * np.eye(2))).tolist() == [0, 1]
