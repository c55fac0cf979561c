"""SIS: walks against networkx, rates node by node, ACC if weights are equal."""

from __future__ import annotations

from dataclasses import replace

import networkx as nx
import numpy as np
import pytest
from scipy.sparse import csr_array

from tests.quantify.classic.test_neighbour_counts import KNOWN, PRIORS, N, drawn
from tests.quantify.samples import field_library, make_communities
from xnq_dist.core.errors import InputError, StageError
from xnq_dist.evaluation.importance import NAMES, Sis, propagate_back, walk_matrix
from xnq_dist.quantify.classic.counts import Counts
from xnq_dist.quantify.classic.neighbour_counts import NeighbourCounts
from xnq_dist.quantify.classic.simplex import mixture_kernel
from xnq_dist.quantify.interface import Reference


def prepared(prior, seed=0):
    nodes, reference, adjacency, sets = drawn(prior, seed)
    return nodes, reference, adjacency, walk_matrix(adjacency), sets


def slow_weights(adjacency, members, rounds, teleport, influence):
    """rho of every node by walks from the community, step by step, shape (N,)."""
    weights = adjacency.toarray().T.copy()  # [u, v]: from u to v
    np.fill_diagonal(weights, 1.0)
    chances = weights / weights.sum(axis=1, keepdims=True)
    start = np.bincount(members, minlength=len(chances)).astype(float)
    at = start
    for _ in range(rounds):
        at = (1 - teleport) * (at @ chances) + teleport * start
    return influence * at + 1 - influence


def plain_twin(name):
    kind = name.removeprefix("sis_")
    return NeighbourCounts(kind) if kind.startswith("n") else Counts(kind)


def test_walks_are_personalised_pagerank():
    _, _, adjacency, walks, sets = prepared(PRIORS["binary"])
    np.testing.assert_allclose(walks.sum(axis=1), 1)
    graph = nx.DiGraph()
    graph.add_nodes_from(range(N))
    edges = adjacency.tocoo()
    heads, tails = edges.coords
    graph.add_weighted_edges_from(zip(tails, heads, edges.data, strict=True))
    graph.add_weighted_edges_from((v, v, 1.0) for v in range(N))
    table = propagate_back(walks, np.eye(N), 300, 0.1)
    for members in sets[:2]:
        start = np.bincount(members, minlength=N)
        expected = nx.pagerank(
            graph, alpha=0.9, personalization=dict(enumerate(start)), tol=1e-12
        )
        found = table[members].mean(axis=0)
        np.testing.assert_allclose(found, list(expected.values()), atol=1e-8)
    few = propagate_back(walks, np.eye(N), 10, 0.1)
    assert np.abs(few - table).max() > 1e-3
    weights = slow_weights(adjacency, sets[1], 10, 0.1, 1.0)
    np.testing.assert_allclose(few[sets[1]].sum(axis=0), weights, atol=1e-12)


def test_walks_follow_edges_and_keep_loops():
    # 0 -> 1 with weight 3; 1 -> 2; a loop of weight 5 on 2, which is replaced by 1.
    walks = walk_matrix(csr_array(np.array([[0.0, 0, 0], [3, 0, 0], [0, 1, 5]])))
    expected = [[0.25, 0.75, 0], [0, 0.5, 0.5], [0, 0, 1]]
    np.testing.assert_allclose(walks.toarray(), expected)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("prior", PRIORS.values(), ids=PRIORS)
def test_rates_follow_the_weights_of_each_labelled_node(name, prior):
    nodes, reference, adjacency, walks, sets = prepared(prior)
    width = len(prior)
    hard, paired = name in ("sis_acc", "sis_nacc"), name.startswith("sis_n")
    found = Sis(name, walks).estimate(make_communities(*sets), nodes, reference)
    neighbours = nodes.neighbours

    def said(v):
        own = nodes.posteriors[v].astype(float)
        around = (neighbours.votes if hard else neighbours.posterior_sum)[v]
        around = around if around.any() else own
        if hard:
            own = np.eye(width)[own.argmax()]
            around = np.eye(width)[around.argmax()]
        own, around = own / own.sum(), around / around.sum()
        return np.outer(own, around).ravel() if paired else own

    counts = np.empty((len(sets), width**2 if paired else width))
    matrices = np.zeros((*counts.shape, width))
    for s, members in enumerate(sets):
        free = [v for v in members if nodes.labels[v] < 0]
        rho = slow_weights(adjacency, free, 10, 0.1, 0.9)
        some = [v for v in free if nodes.posteriors[v].any()]
        counts[s] = np.mean([said(v) for v in some], axis=0)
        for v in range(KNOWN):
            if nodes.posteriors[v].any():
                matrices[s, :, nodes.labels[v]] += rho[v] * said(v)
    matrices /= matrices.sum(axis=1, keepdims=True)
    expected = np.empty((len(sets), width))
    done = np.zeros(len(sets), np.bool_)
    mixture_kernel(matrices, counts, expected, done)
    assert done.all()
    np.testing.assert_allclose(found.prevalence, expected, atol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_equal_weights_keep_the_answer(name):
    """Without influence or edges, it equals ACC, PACC, NACC, NPACC."""
    for prior in PRIORS.values():
        nodes, reference, _, walks, sets = prepared(prior)
        batch = make_communities(*sets)
        plain = plain_twin(name).estimate(batch, nodes, reference)
        for sis in (
            Sis(name, walks, influence=0.0),
            Sis(name, walk_matrix(csr_array((N, N)))),
        ):
            found = sis.estimate(batch, nodes, reference)
            np.testing.assert_allclose(found.prevalence, plain.prevalence, atol=1e-6)
        moved = Sis(name, walks).estimate(batch, nodes, reference)
        assert np.abs(moved.prevalence - plain.prevalence).max() > 1e-4


@pytest.mark.oracle
def test_equal_weights_agree_with_quapy():
    theirs = field_library()
    from quapy.functional import normalize_prevalence, prevalence_from_probabilities

    nodes, reference, _, walks, sets = prepared(PRIORS["four"])
    some = reference.posteriors.any(axis=1)
    rows, codes = reference.posteriors[some].astype(float), reference.labels[some]
    names = np.arange(4)
    batch = make_communities(*sets)
    for name, rates in (
        ("sis_acc", theirs.ACC.getPteCondEstim(names, codes, rows.argmax(axis=1))),
        ("sis_pacc", theirs.PACC.getPteCondEstim(names, codes, rows)),
    ):
        sis = Sis(name, walks, influence=0.0)
        found = sis.estimate(batch, nodes, reference)
        for s, members in enumerate(sets):
            free = [
                v for v in members if nodes.labels[v] < 0 and nodes.posteriors[v].any()
            ]
            q = prevalence_from_probabilities(
                nodes.posteriors[free].astype(float), binarize=name == "sis_acc"
            )
            answer = theirs.ACC.solve_adjustment(rates, q, "inversion", "minimize")
            answer = normalize_prevalence(answer, method="clip")
            np.testing.assert_allclose(found.prevalence[s], answer, atol=1e-3)


@pytest.mark.parametrize("name", NAMES)
def test_other_communities_keep_every_bit_and_labelled_members_are_left_out(name):
    nodes, reference, _, walks, sets = prepared(PRIORS["four"])
    sis = Sis(name, walks)
    lonely = [KNOWN + 7]  # without a posterior
    several = [*sets, [0, 1], [], lonely, np.flatnonzero(nodes.labels[:300] < 0)]
    several.append(np.arange(300))
    whole = sis.estimate(make_communities(*several), nodes, reference)
    assert np.isnan(whole.prevalence[3:5]).all()
    np.testing.assert_array_equal(whole.prevalence[6], whole.prevalence[7])
    rest = np.delete(whole.prevalence, [3, 4], axis=0)
    np.testing.assert_allclose(rest.sum(axis=1), 1)
    assert (rest >= 0).all()
    for s, members in enumerate(several):
        alone = sis.estimate(make_communities(members), nodes, reference)
        np.testing.assert_array_equal(alone.prevalence[0], whole.prevalence[s])
    empty = sis.estimate(make_communities(), nodes, reference)
    assert empty.prevalence.shape == (0, 4)


@pytest.mark.parametrize("name", NAMES)
def test_class_without_labelled_nodes_keeps_answers_finite(name):
    nodes, reference, _, walks, sets = prepared(PRIORS["four"])
    kept = reference.rows[nodes.labels[:KNOWN] != 2]
    lacking = replace(reference, rows=kept, labels=nodes.labels[kept])
    sis = Sis(name, walks)
    found = sis.estimate(make_communities(*sets), nodes, lacking)
    assert np.isfinite(found.prevalence).all()
    matrices = sis._rates(make_communities(*sets), nodes, kept, nodes.labels[kept])
    own = 2 * 5 if sis.needs_neighbours else 2
    np.testing.assert_array_equal(matrices[0, :, 2], np.eye(matrices.shape[1])[own])
    np.testing.assert_allclose(matrices.sum(axis=1), 1)


@pytest.mark.parametrize("name", NAMES)
def test_missing_parts_are_named(name):
    nodes, reference, _, walks, _ = prepared(PRIORS["binary"])
    batch, sis = make_communities([KNOWN, KNOWN + 2]), Sis(name, walks)
    with pytest.raises(InputError, match="role calibration, or set quantifier = sld"):
        sis.estimate(batch, nodes, Reference(np.array([0.5, 0.5])))
    with pytest.raises(StageError, match="got no node indexes of the labelled nodes"):
        sis.estimate(batch, nodes, replace(reference, rows=None))
    if sis.needs_neighbours:
        with pytest.raises(StageError, match="did not get the sums over neighbours"):
            sis.estimate(batch, replace(nodes, neighbours=None), reference)
