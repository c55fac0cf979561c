"""wvRN, ENQ, CDQ and LBQ against plain loops."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest

from tests.evaluation.methods.graphs import hide, plain_majority, random_graph
from xnq_dist.core.errors import InputError
from xnq_dist.evaluation.methods import baselines
from xnq_dist.evaluation.methods.baselines import (
    cdq,
    densities,
    enq,
    lbq,
    link_prevalence,
    wvrn,
)
from xnq_dist.evaluation.regions import communities_of, joined


def wvrn_twin(network, labels, classes, rounds, vote) -> np.ndarray:
    """One variant, edge by edge, in float64."""
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
                seen = guess[u]
                if vote == "hard":
                    seen = np.eye(classes)[np.argmax(seen)]
                votes += network[u][v]["weight"] * seen
            stays = labels[v] >= 0 or votes.sum() == 0
            after[v] = guess[v] if stays else votes / votes.sum()
        guess = after
    return np.array([guess[v] for v in network])


@pytest.mark.parametrize("vote", ["soft", "hard"])
def test_wvrn_agrees_with_a_plain_loop(vote):
    network, adjacency = random_graph()
    labels = hide(140, 3, 0.3, 3)
    kept = wvrn(adjacency, labels, 3, (1, 2, 5), vote)
    assert set(kept) == {1, 2, 5}
    for turn, found in kept.items():
        for variant, row in enumerate(labels):
            expected = wvrn_twin(network, row, 3, turn, vote)
            np.testing.assert_allclose(found[variant], expected, atol=1e-6)


def enq_twin(network, labels, classes, hops) -> list[int]:
    """Majority label around each node of one variant, -1 if no label is reached."""
    backwards = network.reverse()
    votes = []
    for node in network:
        around = nx.single_source_shortest_path_length(backwards, node, hops)
        codes = [int(labels[u]) for u in around if u != node and labels[u] >= 0]
        votes.append(plain_majority(codes, labels, classes))
    return votes


@pytest.mark.parametrize("hops", [1, 2])
def test_enq_agrees_with_ego_networks(hops, monkeypatch):
    monkeypatch.setattr(baselines, "ROWS", 50)
    network, adjacency = random_graph()
    labels = hide(140, 3, 0.3, 3)
    found = enq(adjacency, labels, 3, hops, seed=7)
    for variant, row in enumerate(labels):
        expected = np.array(enq_twin(network, row, 3, hops))
        reached = expected >= 0
        assert 0 < reached.sum() < 140
        np.testing.assert_array_equal(found[variant][reached], expected[reached])
        drawn = found[variant][~reached]
        assert set(drawn.tolist()) <= set(row[row >= 0].tolist())


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
    communities = joined([np.array(s, np.int64) for s in sets])
    density = densities(communities, adjacency)
    np.testing.assert_allclose(density, plain_densities(sets, network))
    labels = hide(140, 3, 0.3, 3, seed)
    found = cdq(communities, labels, 3, 0, density if by_density else None)
    for variant, row in enumerate(labels):
        scores = density if by_density else None
        expected = np.array(cdq_twin(sets, row, 3, scores))
        reached = expected >= 0
        assert 0 < reached.sum() < 140
        np.testing.assert_array_equal(found[variant][reached], expected[reached])


def test_cdq_gives_the_majority_of_disjoint_communities_or_draws_from_the_labels():
    communities = communities_of(np.array([0, 1, 0, 1, 1, 2]))
    labels = np.array([[1, 0, -1, 0, -1, -1]])
    assert cdq(communities, labels, 2, 0)[0, :5].tolist() == [1, 0, 1, 0, 0]
    none = joined([])
    assert cdq(none, np.array([[2, -1, -1, 2]]), 3, 0).tolist() == [[2, 2, 2, 2]]


def lbq_twin(network, labels) -> float:
    groups = {c: [v for v in network if labels[v] == c] for c in (-1, 0, 1)}
    solved = []
    for k in network:
        share = {
            c: sum(network.has_edge(v, k) for v in group) / len(group)
            for c, group in groups.items()
        }
        if share[1] != share[0]:
            solved.append((share[-1] - share[0]) / (share[1] - share[0]))
    return float(np.clip(np.median(solved), 0, 1))


def test_lbq_agrees_with_a_plain_loop():
    network, adjacency = random_graph(edges=1500)
    labels = hide(140, 2, 0.5, 3)
    labels[2] = labels[1]
    labels[2, :40] = -1
    expected = [lbq_twin(network, row) for row in labels]
    assert lbq(adjacency, labels).tolist() == pytest.approx(expected, abs=1e-6)
    assert len(set(expected)) == 3


def test_lbq_finds_the_prevalence_when_links_tell_the_classes_apart():
    # Of 100 labelled nodes of each class, 80 or 20 link to a node of their side.
    links = np.array([[50 * 0.8 + 50 * 0.2, 20, 80], [44, 80, 20], [0, 0, 0]])
    found = link_prevalence(links, np.array([100, 100, 100]))
    assert found == pytest.approx((0.5 + 0.6) / 2)


@pytest.mark.parametrize(
    ("totals", "words"),
    [
        ([0, 3, 3], "no unlabelled node"),
        ([3, 0, 3], "no negative node"),
        ([3, 3, 0], "no positive node"),
        ([3, 3, 3], "has no node for which the shares of links"),
    ],
)
def test_graphs_that_lbq_cannot_solve_are_refused(totals, words):
    with pytest.raises(InputError, match=f"variant 4 .*{words}"):
        link_prevalence(np.array([[1, 2, 2], [0, 1, 1]]), np.array(totals), 4)
