"""Detected communities."""

from __future__ import annotations

import random
import subprocess
import sys

import numpy as np
import pytest
import scipy.sparse as sp

from xnq_dist.groups.leiden import leiden, number_by_size


def cliques(sizes: list[int], bridges: list[tuple[int, int]]) -> sp.csr_array:
    blocks = [np.ones((n, n)) - np.eye(n) for n in sizes]
    dense = np.array(sp.block_diag(blocks).todense())
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


def test_igraph_leaves_the_random_stream_unchanged():
    import igraph

    leiden(cliques([4, 4], []), seed=0)
    random.seed(5)
    one = igraph.Graph.Erdos_Renyi(30, 0.2).get_edgelist()
    random.seed(5)
    assert igraph.Graph.Erdos_Renyi(30, 0.2).get_edgelist() == one


def test_higher_resolution_splits():
    adjacency = cliques([6, 6], [(0, 6), (1, 7), (2, 8), (3, 9), (4, 10)])
    assert leiden(adjacency, 0.05).max() < leiden(adjacency, 3.0).max()


@pytest.mark.parametrize("weight", [None, 0.0], ids=["no edges", "weights of 0"])
def test_nodes_of_a_graph_without_edges_are_groups_of_one(weight):
    empty = sp.csr_array((3, 3))
    if weight is not None:
        empty = sp.csr_array((np.array([weight]), ([0], [1])), shape=(3, 3))
    assert leiden(empty).tolist() == [0, 1, 2]


def test_equal_sizes_are_numbered_by_first_node():
    assert number_by_size(np.array([9, 9, 4, 4, 1])).tolist() == [0, 0, 1, 1, 2]
    assert number_by_size(np.array([], np.int64)).tolist() == []


ALONE = """
import sys
import numpy as np
import scipy.sparse as sp
from xnq_dist.groups.leiden import leiden
rng = np.random.default_rng(0)
graph = sp.csr_array(rng.random((120, 120)) * (rng.random((120, 120)) < 0.05))
found = leiden(graph, 1.2, seed=4)
assert "igraph" not in sys.modules and "matplotlib" not in sys.modules
import random
import subprocess
import sys
import igraph
upper = sp.triu((graph + graph.T) / 2).tocoo()
peer = igraph.Graph(120, np.column_stack([upper.row, upper.col]))
igraph.set_random_number_generator(random.Random(4))
members = list(range(120))
for _ in range(10):
    members = peer.community_leiden(
        "modularity", upper.data, 1.2, n_iterations=1, initial_membership=members
    ).membership
from xnq_dist.groups.leiden import number_by_size
assert len(set(found)) > 3
assert (number_by_size(np.array(members)) == found).all()
"""


def test_igraphs_module_alone_agrees_with_the_package_imported_later():
    subprocess.run([sys.executable, "-c", ALONE], check=True)
