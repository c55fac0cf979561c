"""wvRN, ENQ and CDQ against plain loops."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
from scipy.sparse import csr_array, eye_array

from tests.evaluation.methods.graphs import hide, plain_majority, random_graph
from xnq_dist.evaluation.methods import baselines
from xnq_dist.evaluation.methods.baselines import (
    cdq,
    densities,
    draw_from_prior,
    enq,
    wvrn,
)
from xnq_dist.quantify.interface import Communities


def wvrn_twin(network, labels, classes, rounds) -> np.ndarray:
    """The votes, edge by edge, in float64."""
    known = labels[labels >= 0]
    prior = np.array([(known == c).mean() for c in range(classes)])
    guess = {
        v: np.eye(classes)[labels[v]] if labels[v] >= 0 else prior for v in network
    }
    for _ in range(rounds):
        after = {}
        for v in network:
            votes = np.zeros(classes)
            for u in network.predecessors(v):
                votes += network[u][v]["weight"] * guess[u]
            stays = labels[v] >= 0 or votes.sum() == 0
            after[v] = guess[v] if stays else votes / votes.sum()
        guess = after
    return np.array([guess[v] for v in network])


def test_wvrn_agrees_with_a_plain_loop():
    network, adjacency = random_graph()
    labels = hide(140, 3, 0.3)
    for rounds in (1, 2, 5):
        found = wvrn(adjacency, labels, 3, rounds)
        expected = wvrn_twin(network, labels, 3, rounds)
        np.testing.assert_allclose(found, expected, atol=1e-6)


def enq_twin(network, labels, classes, hops) -> list[int]:
    """Majority label around each node of one variant, -1 if no label is reached."""
    backwards = network.reverse()
    votes = []
    for node in network:
        around = nx.single_source_shortest_path_length(backwards, node, hops)
        codes = [int(labels[u]) for u in around if u != node and labels[u] >= 0]
        votes.append(plain_majority(codes, labels, classes))
    return votes


def check_votes(found, expected, labels):
    """Nodes that reach a label have its vote, and others a class of the labels."""
    reached = np.array(expected) >= 0
    assert 0 < reached.sum() < 140
    np.testing.assert_array_equal(found[reached], np.array(expected)[reached])
    assert set(found[~reached].tolist()) <= set(labels[labels >= 0].tolist())


@pytest.mark.parametrize("hops", [1, 2])
def test_enq_agrees_with_ego_networks(hops, monkeypatch):
    monkeypatch.setattr(baselines, "ROWS", 50)
    network, adjacency = random_graph()
    labels = hide(140, 3, 0.3)
    found = enq(adjacency, labels, 3, hops, seed=7)
    check_votes(found, enq_twin(network, labels, 3, hops), labels)


def overlapping(seed: int) -> list[list[int]]:
    """Random sets of nodes below 100: one empty, one of a single node, two equal."""
    rng = np.random.default_rng(seed)
    sets = [
        sorted(rng.choice(100, rng.integers(2, 24), replace=False).tolist())
        for _ in range(14)
    ]
    return [*sets, [], [3], sets[0], sets[1]]


def plain_densities(sets, network) -> list[float]:
    found = []
    for members in sets:
        inside = network.subgraph(members)
        edges = inside.number_of_edges() - nx.number_of_selfloops(inside)
        pairs = len(members) * (len(members) - 1)
        found.append(edges / pairs if pairs else 0.0)
    return found


def cdq_twin(sets, labels, classes, scores) -> list[int]:
    """CDQ of one variant; `scores` None: the share of the majority class."""
    votes = []
    for node in range(len(labels)):
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


@pytest.mark.parametrize("by_density", [False, True])
@pytest.mark.parametrize("seed", range(2))
def test_cdq_agrees_with_a_plain_loop(by_density, seed):
    network, adjacency = random_graph(edges=1500, seed=seed)
    sets = overlapping(seed)
    communities = Communities.of([np.array(s, np.int64) for s in sets])
    loops = csr_array(baselines.links(adjacency) + eye_array(adjacency.shape[0]))
    for _ in range(2):  # the adjacency stays as it is
        density = densities(communities, loops)
        np.testing.assert_allclose(density, plain_densities(sets, network))
    labels, scores = hide(140, 3, 0.3, seed), density if by_density else None
    found = cdq(communities, labels, 3, 0, scores)
    check_votes(found, cdq_twin(sets, labels, 3, scores), labels)


def test_drawn_classes_follow_the_training_labels_and_the_seed():
    labels = np.full(20_000, -1, np.int32)
    labels[:10] = [0, 0, 0, 0, 0, 0, 0, 2, 2, 2]
    none = np.full_like(labels, -1)
    drawn = draw_from_prior(none, labels, 4, seed=3)
    shares = np.bincount(drawn, minlength=4) / drawn.size
    np.testing.assert_allclose(shares, [0.7, 0, 0.3, 0], atol=0.015)
    assert shares[1] == shares[3] == 0
    assert (draw_from_prior(none, labels, 4, seed=1) != drawn).any()
    # The draw of a node does not depend on other votes.
    some = np.where(np.arange(20_000) % 2, 1, -1)
    expected = np.where(some < 0, drawn, some)
    np.testing.assert_array_equal(draw_from_prior(some, labels, 4, 3), expected)
