"""ENQ: exact distinct neighbourhoods for any weights, loops, paths and partitions."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest

from tests.evaluation.methods.graphs import hide, plain_majority, prepare_graph
from xnq_dist.evaluation.methods.enq import count_two_hops, enq, two_hop_votes
from xnq_dist.evaluation.methods.votes import class_counts, majority_order


def twin(network, labels, classes, hops) -> list[int]:
    """Majority label around each node of one variant, -1 if no label is reached."""
    backwards = network.reverse()
    votes = []
    for node in network:
        around = nx.single_source_shortest_path_length(backwards, node, hops)
        codes = [int(labels[u]) for u in around if u != node and labels[u] >= 0]
        votes.append(plain_majority(codes, labels, classes))
    return votes


@pytest.mark.parametrize("hops", [1, 2])
def test_agrees_with_ego_networks_and_with_itself_for_any_partitions(
    hops, tmp_path, thread_client
):
    labels = hide(140, 3, 0.3, 3)
    answers = []
    for partitions in (1, 2, 3):
        prepared = prepare_graph(tmp_path / str(partitions), partitions)
        where = (prepared.graph, prepared.manifest, prepared.attempt())
        answers.append(enq(thread_client, *where, labels, 3, hops, seed=7))
        assert prepared.files() == []
    np.testing.assert_array_equal(answers[1], answers[0])
    np.testing.assert_array_equal(answers[2], answers[0])
    for variant, row in enumerate(labels):
        expected = np.array(twin(prepared.network, row, 3, hops))
        reached = expected >= 0
        assert 0 < reached.sum() < 140
        np.testing.assert_array_equal(answers[0][variant][reached], expected[reached])
        drawn = answers[0][variant][~reached]
        assert set(drawn.tolist()) <= set(row[row >= 0].tolist())


def test_kernel_without_a_compiler_and_on_threads_gives_the_same_answer(tmp_path):
    prepared = prepare_graph(tmp_path, 1)
    adjacency = prepared.adjacency()
    labels = hide(140, 3, 0.3, 2)
    order = majority_order(class_counts(labels, 3))
    votes = np.empty((140, 2), np.int32)
    mark = np.full(140, -1, np.int32)
    count_two_hops.py_func(
        adjacency.indptr, adjacency.indices, labels.T, order, 0, 140, mark, votes
    )
    for threads in (1, 2):
        found = two_hop_votes(adjacency.indptr, adjacency.indices, labels, 3, threads)
        np.testing.assert_array_equal(found, votes.T)
