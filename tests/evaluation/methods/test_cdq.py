"""CDQ against a plain loop over communities."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from tests.evaluation.methods.graphs import hide, plain_majority
from xnq_dist.evaluation.methods.cdq import (
    cdq,
    densities,
    edges_inside,
)
from xnq_dist.evaluation.regions import communities_of
from xnq_dist.quantify.interface import Communities

NODES = 60


def overlapping(seed: int) -> tuple[list[list[int]], Communities]:
    """Random sets of nodes below 50: one empty, one of a single node, two equal."""
    rng = np.random.default_rng(seed)
    sets = [
        sorted(rng.choice(50, rng.integers(2, 12), replace=False).tolist())
        for _ in range(14)
    ]
    sets += [[], [3], sets[0], sets[1]]
    offsets = np.concatenate([[0], np.cumsum([len(s) for s in sets])])
    members = np.array([v for s in sets for v in s])
    return sets, Communities(offsets.astype(np.int64), members.astype(np.int64))


def random_adjacency(seed: int) -> sp.csr_array:
    rng = np.random.default_rng(seed)
    return sp.csr_array((rng.random((NODES, NODES)) < 0.2) * rng.random((NODES, NODES)))


def plain_densities(sets, adjacency) -> list[float]:
    there = adjacency.toarray() > 0
    found = []
    for members in sets:
        edges = sum(there[v, u] for v in members for u in members if u != v)
        pairs = len(members) * (len(members) - 1)
        found.append(edges / pairs if pairs else 0.0)
    return found


def twin(sets, labels, classes, scores) -> list[int]:
    """CDQ of one variant; `scores` None: the share of the majority class."""
    votes = []
    for node in range(NODES):
        best, answer = -1.0, -1
        for number, members in enumerate(sets):
            codes = [int(labels[u]) for u in members if labels[u] >= 0]
            if node not in members or not codes:
                continue
            winner = plain_majority(codes, labels, classes)
            share = codes.count(winner) / len(codes)
            score = share if scores is None else scores[number]
            if score > best:
                best, answer = score, winner
        votes.append(answer)
    return votes


@pytest.mark.parametrize("strategy", ["frequency", "density"])
@pytest.mark.parametrize("seed", range(3))
def test_agrees_with_a_plain_loop(strategy, seed):
    sets, communities = overlapping(seed)
    adjacency = random_adjacency(seed)
    labels = hide(NODES, 3, 0.3, 3, seed)
    density = densities(communities, adjacency)
    found = cdq(communities, labels, 3, strategy, 0, density)
    for variant, row in enumerate(labels):
        scores = None if strategy == "frequency" else plain_densities(sets, adjacency)
        expected = np.array(twin(sets, row, 3, scores))
        reached = expected >= 0
        assert 0 < reached.sum() < NODES
        np.testing.assert_array_equal(found[variant][reached], expected[reached])
        drawn = set(found[variant][~reached].tolist())
        assert drawn <= set(row[row >= 0].tolist())


@pytest.mark.parametrize("kernel", [edges_inside, edges_inside.py_func])
def test_density_counts_directed_edges_without_loops(kernel, monkeypatch):
    sets, communities = overlapping(1)
    adjacency = random_adjacency(1)
    monkeypatch.setattr("xnq_dist.evaluation.methods.cdq.edges_inside", kernel)
    np.testing.assert_allclose(
        densities(communities, adjacency), plain_densities(sets, adjacency), rtol=1e-12
    )


def test_disjoint_communities_give_the_majority_of_each():
    communities = communities_of(np.array([0, 1, 0, 1, 1, 2]))
    labels = np.array([[1, 0, -1, 0, -1, -1]])
    found = cdq(communities, labels, 2, "frequency", 0)
    assert found[0, :5].tolist() == [1, 0, 1, 0, 0]


def test_without_communities_classes_are_drawn_from_the_training_labels():
    none = Communities(np.zeros(1, np.int64), np.empty(0, np.int64))
    found = cdq(none, np.array([[2, -1, -1, 2]]), 3, "frequency", 0)
    assert found.tolist() == [[2, 2, 2, 2]]
