"""DEMON against a plain loop over ego networks and a pool of sets."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp

from xnq_dist.evaluation.methods import demon as module
from xnq_dist.evaluation.methods.demon import demon, visiting_order


def random_network(seed: int, blocks: int = 4, size: int = 12) -> nx.DiGraph:
    """Dense blocks with few edges between them, self-loops and isolated nodes."""
    rng = np.random.default_rng(seed)
    nodes = blocks * size
    same = np.arange(nodes)[:, None] // size == np.arange(nodes) // size
    there = rng.random((nodes, nodes)) < np.where(same, 0.3, 0.02)
    network = nx.from_numpy_array(there, create_using=nx.DiGraph)
    network.add_nodes_from(range(nodes, nodes + 3))
    return network


def matrix(network: nx.DiGraph) -> sp.csr_array:
    return sp.csr_array(nx.to_scipy_sparse_array(network, format="csr").T.tocsr())


def local_communities(near: nx.Graph, rank) -> list[set[int]]:
    """Label propagation with nodes in their order; communities by first member."""
    order = sorted(near, key=lambda v: rank[v])
    label = {v: v for v in order}
    for _ in range(module.SWEEPS):
        changed = False
        for v in order:
            votes = [label[u] for u in near[v]]
            if not votes:
                continue
            most = max(votes.count(name) for name in votes)
            best = [name for name in votes if votes.count(name) == most]
            if label[v] not in best:
                label[v] = min(best, key=lambda u: rank[u])
                changed = True
        if not changed:
            break
    names = dict.fromkeys(label[v] for v in order)
    return [{v for v in order if label[v] == name} for name in names]


def twin(network: nx.DiGraph, seed: int, overlap=0.25, min_size=3) -> list[list[int]]:
    graph = nx.Graph(network.to_undirected())
    graph.remove_edges_from(list(nx.selfloop_edges(graph)))
    rank = visiting_order(len(graph), seed)
    pool: list[set[int]] = []
    for ego in sorted(graph):
        near = graph.subgraph(graph[ego])
        for found in local_communities(near, rank):
            community = found | {ego}
            if len(community) <= min_size:
                continue
            for older in pool:
                smaller = min(len(older), len(community))
                if len(older & community) >= overlap * smaller:
                    older |= community
                    break
            else:
                pool.append(community)
    return [sorted(community) for community in pool]


def as_lists(communities) -> list[list[int]]:
    cuts = communities.offsets[1:-1]
    if not len(communities):
        return []
    return [part.tolist() for part in np.split(communities.members, cuts)]


@pytest.mark.parametrize("seed", range(6))
def test_agrees_with_a_plain_loop(seed):
    network = random_network(seed)
    expected = twin(network, seed)
    assert len(expected) > 1
    assert as_lists(demon(matrix(network), seed)) == expected


@pytest.mark.parametrize(("overlap", "min_size"), [(0.6, 2), (1.0, 4)])
def test_communities_keep_the_requested_overlap_and_size(overlap, min_size):
    network = random_network(9)
    expected = twin(network, 0, overlap, min_size)
    found = demon(matrix(network), 0, overlap, min_size)
    assert as_lists(found) == expected
    assert len(np.unique(found.members)) < len(found.members)


def test_a_complete_graph_is_one_community():
    network = nx.complete_graph(80, nx.DiGraph)
    assert as_lists(demon(matrix(network), 0)) == [list(range(80))]


def test_parallel_edges_past_a_byte_are_one_edge():
    rows = np.repeat([0, 1, 2, 3], 256)
    columns = np.repeat([1, 2, 3, 0], 256)
    doubled = sp.csr_array(
        (np.ones(1024), columns, np.arange(0, 1025, 256)), shape=(4, 4)
    )
    assert len(rows) == doubled.nnz
    single = sp.csr_array((np.ones(4), [1, 2, 3, 0], range(5)), shape=(4, 4))
    expected = as_lists(demon(single, 0, min_size=1))
    assert as_lists(demon(doubled, 0, min_size=1)) == expected


def test_no_edges_no_communities():
    assert len(demon(sp.csr_array((5, 5)), 0)) == 0


def test_the_order_of_visits_is_drawn_from_the_seed():
    assert sorted(visiting_order(50, 1)) == list(range(50))
    assert visiting_order(50, 1).tolist() != visiting_order(50, 2).tolist()
