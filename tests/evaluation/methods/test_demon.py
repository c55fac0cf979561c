"""DEMON against a plain loop over ego networks and a pool of sets."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
from scipy.sparse import csr_array

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


def local_communities(near: nx.Graph, rank) -> list[set[int]]:
    """Label propagation with nodes in their order; communities by first member."""
    order = sorted(near, key=lambda v: rank[v])
    label = {v: v for v in order}
    for _ in range(module.SWEEPS):
        before = dict(label)
        for v in order:
            votes = [label[u] for u in sorted(near[v], key=lambda u: rank[u])]
            most = max(map(votes.count, votes), default=0)
            best = [name for name in votes if votes.count(name) == most]
            if best and label[v] not in best:
                label[v] = best[0]
        if label == before:
            break
    names = dict.fromkeys(label[v] for v in order)
    return [{v for v in order if label[v] == name} for name in names]


def twin(network: nx.DiGraph, seed: int) -> list[list[int]]:
    graph = nx.Graph(network.to_undirected())
    graph.remove_edges_from(list(nx.selfloop_edges(graph)))
    rank = visiting_order(len(graph), seed)
    pool: list[set[int]] = []
    for ego in sorted(graph):
        for found in local_communities(graph.subgraph(graph[ego]), rank):
            community = found | {ego}
            if len(community) <= module.MIN_SIZE:
                continue
            for older in pool:
                smaller = min(len(older), len(community))
                if len(older & community) >= module.OVERLAP * smaller:
                    older |= community
                    break
            else:
                pool.append(community)
    return [sorted(community) for community in pool]


def found(network: nx.DiGraph, seed: int = 0) -> list[list[int]]:
    matrix = nx.to_scipy_sparse_array(network, format="csr").T.tocsr()
    sets = demon(csr_array(matrix), seed)
    parts = np.split(sets.members, sets.offsets[1:-1]) if len(sets) else []
    return [part.tolist() for part in parts]


@pytest.mark.parametrize("seed", range(6))
def test_agrees_with_a_plain_loop(seed):
    network = random_network(seed)
    expected = twin(network, seed)
    assert len(expected) > 1
    assert found(network, seed) == expected


def test_a_complete_graph_is_one_community_and_an_empty_one_has_zero():
    assert found(nx.complete_graph(80, nx.DiGraph)) == [list(range(80))]
    assert found(nx.empty_graph(5, nx.DiGraph)) == []
