"""What xnq+ says of neighbours, against slow twins, and what a label can reach."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import softmax

from tests.conftest import small_settings, write_graph
from tests.readout.test_plus_label_features import FOLDS, NODES, PRIOR, sample
from xnq_dist.graph.layout import load_nodes
from xnq_dist.graph.prepare import prepare
from xnq_dist.readout.label_features import VisibleLabels
from xnq_dist.readout.logistic import LinearModel, decision
from xnq_dist.readout.neighbours import (
    FeatureStart,
    FeatureStep,
    FirstStage,
    PosteriorStart,
    PosteriorStep,
)
from xnq_dist.store import RunDirectory

RNG = np.random.default_rng(8)
X = RNG.standard_normal((NODES, 4)).astype(np.float32)
FIRST = FirstStage(RNG.standard_normal((FOLDS, 3, 4)), RNG.standard_normal((FOLDS, 3)))


class Embedded:
    """One partition's embeddings, in two batches."""

    def read_nodes(self):
        return {"node_id": None}

    def states(self, _ids):
        yield 0, X[:25]
        yield 25, X[25:]


def means(tmp_path, adjacency, labels, folds, rounds=2):
    """By the parts that the workers run, sums by scipy."""
    stage = RunDirectory(tmp_path).stage("readout")
    attempt = stage.begin()
    record = attempt.write_arrays("labels-00000", labels=labels, folds=folds)
    models = attempt.write_arrays("models", coef=FIRST.coef, intercept=FIRST.intercept)
    visible = VisibleLabels(stage, (record,), FOLDS, 3)
    values = PosteriorStart(visible, (Embedded(),), models)(0)
    step = PosteriorStep(FOLDS, tuple(PRIOR.tolist()))
    for turn in range(1, rounds + 1):
        values = step(0, turn, values, (adjacency @ values).astype(np.float32))
    return values.reshape(NODES, FOLDS, 3)


def test_each_folds_model_scores_as_it_does_alone():
    found = FIRST.logits(X)
    for fold in range(FOLDS):
        alone = LinearModel(FIRST.coef[fold], FIRST.intercept[fold], 1.0, True)
        np.testing.assert_allclose(found[:, fold], decision(alone, X), atol=1e-9)


@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
def test_means_are_those_of_the_slow_twin(tmp_path, weighted):
    adjacency, labels, folds = sample(weighted)
    found = means(tmp_path, adjacency, labels, folds)
    weight = adjacency.toarray().astype(np.float64)
    for fold in range(FOLDS):
        values = softmax(X @ FIRST.coef[fold].T + FIRST.intercept[fold], axis=1)
        for v in range(NODES):
            if labels[v] >= 0 and folds[v] != fold:
                values[v] = np.eye(3)[labels[v]]
        for _ in range(2):
            values = np.array(
                [
                    (weight[v] @ values + PRIOR) / (weight[v].sum() + 1)
                    for v in range(NODES)
                ]
            )
        np.testing.assert_allclose(found[:, fold], values, atol=2e-6)
    # Without in-neighbours there is the prior.
    np.testing.assert_allclose(found[30], np.tile(PRIOR, (FOLDS, 1)), atol=1e-6)


def test_a_nodes_own_label_does_not_reach_its_own_means(tmp_path):
    adjacency, labels, folds = sample(False)
    before = means(tmp_path / "a", adjacency, labels, folds)
    reached = 0
    for node in [v for v in (2, 5, 20, 21, 33) if labels[v] >= 0]:
        other = labels.copy()
        other[node] = (labels[node] + 1) % 3
        after = means(tmp_path / f"b{node}", adjacency, other, folds)
        fold = folds[node]
        np.testing.assert_array_equal(after[node, fold], before[node, fold])
        reached += not np.array_equal(after, before)
    assert reached


def test_node_features_are_averaged_over_in_neighbours(tmp_path):
    graph = write_graph(tmp_path / "input", nodes=60, edges=90)
    run = RunDirectory(tmp_path / "run")
    manifest = prepare(run, graph.sources, small_settings(), 1)
    stage = run.stage("graph")
    values = FeatureStart(stage, manifest)(0)
    nodes = load_nodes(stage, manifest, 0, ["features"])
    expected = np.array(nodes["features"].to_pylist(), np.float32)
    np.testing.assert_array_equal(values[:, :-1], expected)
    np.testing.assert_array_equal(values[:, -1], 1)
    adjacency, _, _ = sample(True)
    x = np.concatenate([X, np.ones((NODES, 1), np.float32)], axis=1)
    found = FeatureStep()(0, 1, x, (adjacency @ x).astype(np.float32))
    weight = adjacency.toarray()
    for v in range(NODES):
        mean = weight[v] @ X / weight[v].sum() if weight[v].sum() else X[v]
        np.testing.assert_allclose(found[v, :-1], mean, atol=1e-5)
    np.testing.assert_allclose(found[:, -1], 1)
    assert not weight[30].any()
