"""Counts, plain and adjusted: CC to PACC, NACC and NPACC, against slow twins."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import csr_array

from tests.quantify.classic.test_simplex import adjusted
from tests.quantify.samples import (
    draw_posteriors,
    field_library,
    make_communities,
    make_nodes,
    with_own_reference,
    with_reference,
)
from xnq_dist.core.errors import StageError
from xnq_dist.quantify.classic.counts import (
    AdjustedCounts,
    Counts,
    NeighbourCounts,
    neighbour_sums,
)
from xnq_dist.quantify.interface import Reference


def test_rows_of_zeros_keep_estimates_finite():
    nodes, batch = make_nodes(np.zeros((4, 2))), make_communities([0, 1, 2, 3])
    for name in ("cc", "pcc"):
        found = Counts(name).estimate(batch, nodes)
        np.testing.assert_array_equal(found.prevalence, [[0.5, 0.5]])


def test_class_without_labelled_nodes_is_assumed_to_be_predicted_correctly():
    posteriors = np.float32([[0.8, 0.1, 0.1], [0.6, 0.2, 0.2]])
    reference = Reference(posteriors, np.zeros(2, np.int32))
    matrix = AdjustedCounts("pacc").rates(reference)
    np.testing.assert_allclose(matrix[:, 0], [0.7, 0.15, 0.15], rtol=1e-6)
    np.testing.assert_array_equal(matrix[:, 1:], np.eye(3)[:, 1:])


@pytest.mark.oracle
def test_rates_are_those_of_quapy():
    theirs = field_library()
    posteriors, classes = draw_posteriors(800, np.array([0.1, 0.4, 0.3, 0.2]), 1.1, 3)
    nodes = with_reference(make_nodes(posteriors), posteriors, classes)
    said = posteriors.astype(np.float64)
    for name, kind, given in (
        ("acc", theirs.ACC, said.argmax(axis=1)),
        ("pacc", theirs.PACC, said),
    ):
        expected = kind.getPteCondEstim(np.arange(4), classes, given)
        found = AdjustedCounts(name).rates(nodes.reference)
        np.testing.assert_allclose(found, expected, atol=1e-7)


PRIORS = {"binary": [0.7, 0.3], "four": [0.1, 0.4, 0.3, 0.2]}
N, KNOWN = 400, 150


def drawn(prior, seed=0):
    """Nodes, adjacency and sets; weighted edges, a few of nodes."""
    rng = np.random.default_rng(seed)
    posteriors, classes = draw_posteriors(N, np.array(prior), 1.1, seed)
    posteriors[[KNOWN - 1, KNOWN + 7]] = 0
    dense = rng.random((N, N)) * (rng.random((N, N)) < 0.02)
    dense[[3, KNOWN + 1]] = 0
    adjacency = csr_array(dense)
    labels = np.where(np.arange(N) < KNOWN, classes, -1)
    nodes = with_own_reference(make_nodes(posteriors, labels))
    nodes = nodes.with_neighbours(neighbour_sums(adjacency, nodes.posteriors))
    sets = [rng.choice(N, n) for n in (5, 40, 300)]
    return nodes, adjacency, sets


def slow_pairs(nodes, dense, v, hard):
    """Evidence of a node and its neighbours, shape (C, C); None without a posterior."""
    posteriors = nodes.posteriors.astype(float)
    own = posteriors[v]
    if not own.any():
        return None
    around = np.zeros(len(own))
    for u in np.flatnonzero(dense[v]):
        if posteriors[u].any():
            said = posteriors[u]
            if hard:
                said = np.eye(len(own))[said.argmax()]
            around += dense[v, u] * said
    if not around.any():
        around = own
    if hard:
        return np.outer(
            np.eye(len(own))[own.argmax()], np.eye(len(own))[around.argmax()]
        )
    return np.outer(own / own.sum(), around / around.sum())


def slow_mean(nodes, adjacency, members, hard):
    dense = adjacency.toarray()
    said = [slow_pairs(nodes, dense, v, hard) for v in members]
    return np.mean([one for one in said if one is not None], axis=0).ravel()


@pytest.mark.parametrize("name", ["nacc", "npacc"])
@pytest.mark.parametrize("prior", PRIORS.values(), ids=PRIORS)
def test_estimates_are_those_of_the_slow_twin(name, prior):
    nodes, adjacency, sets = drawn(prior)
    hard, width = name == "nacc", len(prior)
    batch = make_communities(*sets)
    found = NeighbourCounts(name).estimate(batch, nodes)
    matrix = np.stack(
        [
            slow_mean(nodes, adjacency, np.flatnonzero(nodes.labels == code), hard)
            for code in range(width)
        ],
        axis=1,
    )
    made = NeighbourCounts(name).rates(nodes.reference)
    np.testing.assert_allclose(made, matrix, atol=1e-7)
    np.testing.assert_allclose(made.sum(axis=0), 1)
    for s, members in enumerate(sets):
        free = [v for v in members if nodes.labels[v] < 0]
        q = slow_mean(nodes, adjacency, free, hard)
        expected, _ = adjusted(matrix, [q])
        np.testing.assert_allclose(found.prevalence[s], expected[0], atol=1e-6)
    assert found.converged.all()


def test_class_without_usable_labelled_nodes_is_predicted_as_itself():
    rows = np.float32([[0.8, 0.1, 0.1], [0, 0, 0]])
    around = np.concatenate([rows, rows], axis=1, dtype=np.float64)
    reference = Reference(rows, np.array([0, 1], np.int32), neighbours=around)
    matrix = NeighbourCounts("nacc").rates(reference)
    # Class 1 has one node, which has no posterior.
    np.testing.assert_array_equal(matrix, np.eye(9)[:, [0, 4, 8]])


@pytest.mark.parametrize("name", ["nacc", "npacc"])
def test_missing_parts_are_named(name):
    nodes, _, _ = drawn(PRIORS["binary"])
    batch = make_communities([KNOWN, KNOWN + 2])
    reference = replace(nodes.reference, neighbours=None)
    for table in (
        replace(nodes, neighbours=None),
        replace(nodes, reference=reference),
    ):
        with pytest.raises(StageError, match=f"= {name} did not get the sums"):
            NeighbourCounts(name).estimate(batch, table)
