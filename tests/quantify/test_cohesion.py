"""Edges inside communities, and whether they tell a sample from a community."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.quantify.samples import make_communities
from xnq_dist.quantify.cohesion import (
    COUNTS,
    DEGREES,
    EdgeCounts,
    Mixing,
    internal_edges,
    scattered,
)


def draw_graph(n, edges, seed):
    """Directed edges with loops, by rows of in-neighbours."""
    rng = np.random.default_rng(seed)
    pairs = np.unique(rng.integers(0, n, (edges, 2)), axis=0)
    pairs = pairs[np.lexsort((pairs[:, 0], pairs[:, 1]))]
    indptr = np.concatenate([[0], np.cumsum(np.bincount(pairs[:, 1], minlength=n))])
    return pairs, indptr.astype(np.int64), pairs[:, 0].astype(np.int64)


def count(indptr, sources, batch, n, parts=1):
    """Counts from so many partitions of the rows."""
    counts = np.zeros((len(batch), COUNTS), np.int64)
    owner = np.arange(n) % parts
    for part in range(parts):
        own = np.flatnonzero(owner == part)
        row_of = np.full(n, -1, np.int64)
        row_of[own] = np.arange(len(own))
        degrees = np.diff(indptr)[own]
        starts = np.concatenate([[0], np.cumsum(degrees)]).astype(np.int64)
        rows = [sources[indptr[v] : indptr[v + 1]] for v in own]
        mine = np.concatenate([np.empty(0, np.int64), *rows])
        stamps = np.full(n, -1, np.int64)
        internal_edges(
            starts, mine, row_of, batch.offsets, batch.members, stamps, 0, counts
        )
    return counts


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**31), st.integers(1, 4))
def test_edges_inside_are_not_those_of_the_induced_graph(seed, parts):
    rng = np.random.default_rng(seed)
    pairs, indptr, sources = draw_graph(30, 90, seed)
    graph = nx.DiGraph(pairs.tolist())
    graph.add_nodes_from(range(30))
    graph.remove_edges_from(list(nx.selfloop_edges(graph)))
    sets = [
        np.sort(rng.choice(30, rng.integers(0, 20), replace=False)) for _ in range(5)
    ]
    found = count(indptr, sources, make_communities(*sets), 30, parts)
    for s, members in enumerate(sets):
        inside = dict(graph.subgraph(members.tolist()).in_degree())
        i = np.array([inside[v] for v in members.tolist()], int)
        d = np.array([graph.in_degree(v) for v in members.tolist()], int)
        expected = [i.sum(), d.sum(), (i**2).sum(), (i * d).sum(), (d**2).sum()]
        np.testing.assert_array_equal(found[s, :5], expected)
        classes = np.searchsorted(DEGREES, d, side="right") - 1
        some = (d > 0) & (d < DEGREES[-1])
        for own, at in ((some, 5), (some & (i == 0), 13)):
            of_class = np.bincount(classes[own], minlength=8)
            np.testing.assert_array_equal(found[s, at : at + 8], of_class)


def homophilic(n, seed, within=0.06, between=0.01, prior=0.3):
    """A graph of two classes that link among themselves, undirected."""
    rng = np.random.default_rng(seed)
    truth = (rng.random(n) < prior).astype(int)
    same = truth[:, None] == truth
    upper = np.triu(rng.random((n, n)) < np.where(same, within, between), 1)
    matrix = (upper | upper.T).astype(np.float64)
    return truth, matrix


def described(matrix, posteriors, sets):
    """Mixing and counts as the stage makes them."""
    degree = matrix.sum(axis=1)
    mixing = Mixing(
        posteriors.T @ matrix @ posteriors,
        degree @ posteriors,
        degree @ posteriors,
        float(matrix.sum()),
        posteriors.sum(axis=0),
    )
    n = len(matrix)
    indptr = np.concatenate([[0], np.cumsum(degree)]).astype(np.int64)
    sources = np.concatenate([np.flatnonzero(row) for row in matrix]).astype(np.int64)
    counts = count(indptr, sources, make_communities(*sets), n)
    return mixing, EdgeCounts(counts, counts[:, 1])


def test_edges_expected_of_a_sample_drawn_by_class_are_not_its_edges():
    truth, matrix = homophilic(1500, 0)
    posteriors = np.eye(2)[truth]
    rng = np.random.default_rng(1)
    shares = np.repeat([0.0, 0.1, 0.5, 0.9, 1.0], 20)
    sets = []
    for share in shares:
        own = rng.binomial(120, share)
        ones = rng.choice(np.flatnonzero(truth == 1), own, replace=False)
        zeros = rng.choice(np.flatnonzero(truth == 0), 120 - own, replace=False)
        sets.append(np.sort(np.concatenate([ones, zeros])))
    mixing, counts = described(matrix, posteriors, sets)
    ratios = np.stack([(1 - shares) / 0.7, shares / 0.3], axis=1)
    expected = mixing.expected(ratios, counts.volumes)
    for share in np.unique(shares):
        some = shares == share
        mean = counts.inside[some, 0].mean()
        assert expected[some].mean() == pytest.approx(mean, rel=0.15)
    # Without the classes a sample of one class would pass for a community.
    chance = counts.volumes.prod(axis=1) / mixing.edges
    assert counts.inside[shares == 1, 0].mean() > 2 * chance[shares == 1].mean()
    sizes = np.full(len(sets), 120)
    assert scattered(counts, sizes, ratios, mixing).all()


def test_community_or_region_around_a_hub_passes_for_a_sample():
    rng = np.random.default_rng(2)
    n = 1200
    matrix = (np.triu(rng.random((n, n)) < 0.01, 1)).astype(float)
    block = np.arange(100)
    matrix[np.ix_(block, block)] = np.triu(rng.random((100, 100)) < 0.2, 1)
    hub = np.append(rng.choice(np.arange(100, 1199), 200, replace=False), 1199)
    matrix[hub[:-1], 1199] = 1
    matrix = np.maximum(matrix, matrix.T)
    posteriors = rng.dirichlet([1, 2], n)
    sample = np.sort(rng.choice(np.arange(100, 1199), 200, replace=False))
    mixing, counts = described(matrix, posteriors, [block, np.sort(hub), sample])
    found = scattered(counts, np.array([100, 201, 200]), np.ones((3, 2)), mixing)
    assert found.tolist() == [False, False, True]
    assert counts.uneven.tolist() == [False, True, False]


def test_walk_passes_for_a_sample():
    """As few edges as a sample, spread as evenly, but nobody is without one."""
    rng = np.random.default_rng(4)
    n = 2000
    matrix = (np.triu(rng.random((n, n)) < 0.004, 1)).astype(float)
    matrix = np.maximum(matrix, matrix.T)
    walk, at = [0], 0
    while len(set(walk)) < 300:
        at = int(rng.choice(np.flatnonzero(matrix[at])))
        walk.append(at)
    walked = np.unique(walk)
    sample = np.sort(rng.choice(n, 300, replace=False))
    mixing, counts = described(matrix, np.full((n, 2), 0.5), [walked, sample])
    assert counts.connected.tolist() == [True, False]
    found = scattered(counts, np.array([300, 300]), np.ones((2, 2)), mixing)
    assert found.tolist() == [False, True]


def test_walk_in_a_dense_graph_passes_for_a_sample():
    """Where nobody is far from anybody, members' degrees tell a walk."""
    rng = np.random.default_rng(5)
    n = 1500
    pull = rng.lognormal(0, 1.1, n)
    chance = np.minimum(pull[:, None] * pull * 0.02, 0.9)
    matrix = np.triu(rng.random((n, n)) < chance, 1).astype(float)
    matrix = np.maximum(matrix, matrix.T)
    linked = np.flatnonzero(matrix.sum(axis=1))
    walk, at = [], int(linked[0])
    while len(set(walk)) < 150:
        at = int(rng.choice(np.flatnonzero(matrix[at])))
        walk.append(at)
    walked = np.unique(walk)
    samples = [np.sort(rng.choice(n, 150, replace=False)) for _ in range(200)]
    mixing, counts = described(matrix, np.full((n, 2), 0.5), [walked, *samples])
    found = scattered(counts, np.full(201, 150), np.ones((201, 2)), mixing)
    assert not counts.uneven[0]
    assert not counts.connected[0]
    assert not found[0]
    larger = counts.larger(np.full(201, 150), mixing.mean_degree(np.ones((201, 2))))
    assert larger[0]
    assert larger[1:].sum() <= 2


def test_mean_degree_of_a_sample_by_class_is_the_graphs():
    truth, matrix = homophilic(1500, 3, within=0.08, between=0.01)
    mixing, _ = described(matrix, np.eye(2)[truth], [np.arange(20)])
    degree = matrix.sum(axis=1)
    for share in (0.0, 0.4, 1.0):
        ratios = np.array([[(1 - share), share]]) / np.bincount(truth) * len(truth)
        expected = (1 - share) * degree[truth == 0].mean()
        expected += share * degree[truth == 1].mean()
        assert mixing.mean_degree(ratios)[0] == pytest.approx(expected)
    assert np.isnan(mixing.mean_degree(np.zeros((1, 2)))[0])
