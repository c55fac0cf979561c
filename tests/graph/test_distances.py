"""The effective diameter against breadth-first search by networkx and by SciPy."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.sparse.csgraph import shortest_path

from tests.graph.graphs import csr_of
from xnq_dist.graph import distances
from xnq_dist.graph.distances import effective_diameter


def diameter(dense):
    """Row v holds the in-neighbours of v: entry ``[v, u]`` is the edge u -> v."""
    return effective_diameter(csr_of(dense))


def slow(dense, most):
    """From all pairs of nodes, by SciPy."""
    hops = shortest_path(csr_array(dense.T), unweighted=True)
    far = np.sort(hops[(hops > 0) & (hops <= most)])
    counts = np.cumsum(np.bincount(far.astype(int), minlength=2))
    return int(np.searchsorted(counts, 0.9 * counts[-1]))


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("degree", [1.5, 4])
@pytest.mark.parametrize("most", [30, 3])
def test_distances_are_those_of_all_pairs(directed, degree, most, monkeypatch):
    """With at most as many nodes as bits, every node is a source."""
    monkeypatch.setattr(distances, "MAX_STEPS", most)
    rng = np.random.default_rng(int(10 * degree))
    dense = (rng.random((64, 64)) < degree / 64).astype(float)
    if not directed:
        dense = np.maximum(dense, dense.T)
    # A source needs an in-neighbour: every node has itself.
    np.fill_diagonal(dense, 1)
    assert diameter(dense) == slow(dense, most)


def test_a_sample_of_sources_is_near_all_pairs():
    graph = nx.watts_strogatz_graph(1500, 6, 0.05, seed=1)
    dense = nx.to_numpy_array(graph)
    assert abs(diameter(dense) - slow(dense, 30)) <= 1


def test_small_and_empty_graphs_have_a_diameter():
    assert diameter(np.zeros((5, 5))) == 1
    assert diameter(np.eye(5)) == 1
    star = np.zeros((9, 9))
    star[0, 1:] = star[1:, 0] = 1
    assert diameter(star) == 2
