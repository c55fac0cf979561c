"""The rivals against estimates by hand, and what they may know."""

import numpy as np
import pytest
from scipy.sparse import csr_array

from tests.evaluation.test_cells import results, rows
from tests.evaluation.test_community_cases import blocks
from xnq_dist.evaluation.community_tables import community_tables
from xnq_dist.evaluation.real import binomial_floor
from xnq_dist.evaluation.rivals import (
    RIVALS,
    plain_features,
    rival_estimates,
    rival_scores,
)
from xnq_dist.quantify.interface import Communities


def shown_of(truth, share=0.4, seed=0):
    random = np.random.default_rng(seed).random(len(truth))
    return np.where(random < share, truth, -1).astype(np.int32)


def loss(scores, truth, rows):
    return -scores[rows, truth[rows]].mean()


def test_boosting_knows_neighbours_where_features_know_nothing():
    matrix, truth, _ = blocks(n=300, groups=3)
    labels = shown_of(truth)
    features = np.random.default_rng(1).normal(size=(300, 3)).astype(np.float32)
    alone = rival_scores(features, labels, 2, 0)
    with_edges = rival_scores(features, labels, 2, 0, matrix)
    np.testing.assert_allclose(np.exp(with_edges).sum(axis=1), 1, atol=1e-6)
    rows = labels < 0
    assert loss(with_edges, truth, rows) < loss(alone, truth, rows) - 0.03
    again = rival_scores(features, labels, 2, 0, matrix)
    np.testing.assert_array_equal(again, with_edges)


def test_a_label_does_not_reach_its_own_score():
    """With labels by chance, scores of labelled nodes are as bad as of others."""
    matrix, _, _ = blocks(n=400)
    truth = np.random.default_rng(3).integers(0, 2, 400).astype(np.int32)
    x = np.random.default_rng(4).normal(size=(400, 5)).astype(np.float32)
    scores = rival_scores(x, shown_of(truth, 0.5), 2, 0, matrix)
    labelled = shown_of(truth, 0.5) >= 0
    assert loss(scores, truth, labelled) > 0.65
    loops = csr_array(matrix + csr_array(np.eye(400, dtype=np.float32)))
    with_loops = rival_scores(x, shown_of(truth, 0.5), 2, 0, loops)
    np.testing.assert_allclose(with_loops, scores, atol=1e-6)


def test_features_are_averaged_over_one_and_two_hops():
    path = csr_array(np.array([[0, 1, 0], [1, 0, 1], [0, 1, 0]], np.float32))
    x = plain_features(np.array([[3.0], [0.0], [6.0]], np.float32), path)
    np.testing.assert_allclose(
        x, np.column_stack([[3, 0, 6], [0, 4.5, 0], [4.5, 0, 4.5], np.log([2, 3, 2])])
    )
    wide = np.random.default_rng(0).normal(size=(300, 400)).astype(np.float32)
    assert plain_features(wide, None).shape == (300, 64)
    assert plain_features(np.empty((3, 0), np.float32), path).shape == (3, 1)


def test_estimates_are_mean_scores_with_binomial_intervals():
    scores = np.log(np.array([[0.2, 0.8], [0.6, 0.4], [0.5, 0.5], [0.1, 0.9]]))
    labels = np.array([-1, -1, 1, -1], np.int32)
    sets = Communities.of([np.array([0, 1, 2]), np.array([3])])
    found = dict(rival_estimates(sets, dict.fromkeys(RIVALS[:2], scores), labels))
    assert tuple(found) == RIVALS
    np.testing.assert_allclose(found["boosting"].prevalence, [[0.4, 0.6], [0.1, 0.9]])
    half = 1.96 * np.sqrt(0.4 * 0.6 / 2)
    np.testing.assert_allclose(found["features"].upper[0], [0.4 + half, 0.6 + half])


def intercept_answer(rate):
    """Classes of 200 communities of 60 nodes, a third labelled, with equal scores."""
    rng = np.random.default_rng(0)
    truth = (rng.random((200, 60)) < np.reshape(rate, (-1, 1))).astype(np.int32)
    labels = np.where(np.arange(60) < 20, truth, -1).astype(np.int32).ravel()
    sets = Communities.of(list(np.arange(12_000).reshape(200, 60)))
    even = np.log(np.full((12_000, 2), 0.5))
    found = dict(rival_estimates(sets, dict.fromkeys(RIVALS[:2], even), labels))
    return truth[:, 20:].mean(axis=1), found["boosting_intercept"]


def test_intercepts_follow_labelled_members_where_communities_differ_by_class():
    actual, answer = intercept_answer(np.tile([0.1, 0.9], 100))
    assert np.abs(answer.prevalence[:, 1] - actual).mean() < 0.1
    covered = (answer.lower[:, 1] <= actual) & (actual <= answer.upper[:, 1])
    assert 0.92 < covered.mean() < 0.99
    # Communities that differ by chance only keep the mean scores.
    _, answer = intercept_answer(0.5)
    assert np.abs(answer.prevalence - 0.5).max() < 0.1


def test_floor_is_the_mean_deviation_of_binomial_shares():
    counts = np.array([[30.0, 10.0], [5.0, 0.0], [1.0, 2.0]])
    draws = np.random.default_rng(0)
    for row, floor in zip(counts, binomial_floor(counts), strict=True):
        size, share = int(row.sum()), row / row.sum()
        drawn = draws.binomial(size, share[0], 100_000) / size
        assert floor[0] == pytest.approx(np.abs(drawn - share[0]).mean(), abs=1e-3)
        assert floor[1] == pytest.approx(floor[0])


def test_tables_have_the_best_rival_of_each_graph_and_the_floor():
    ratios = {
        "pcc": 1.0,
        "auto": 0.9,
        "features": {"cora-2": 1.2, "tolokers": 3.0},
        "boosting": {"cora-2": 2.0, "tolokers": 1.5},
        "floor": 0.5,
    }
    graphs = {"cora-2": "cora", "tolokers": "tolokers"}
    table = results(rows(ratios, graphs=graphs))
    made = {one.name: one for one in community_tables(table)}
    errors = made["communities-ae"]
    lines = errors.rows
    assert {group for group, _ in lines} == {"all data sets", "cora-2", "tolokers"}
    assert lines["cora-2", "best rival"] == lines["cora-2", "features"]
    assert lines["tolokers", "best rival"] == lines["tolokers", "boosting"]
    assert float(lines["tolokers", "floor"][0]) < float(lines["tolokers", "auto"][0])
