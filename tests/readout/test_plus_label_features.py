"""Label features against a slow twin, and what a node's own label can reach."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array

from xnq_dist.readout.label_features import (
    HopStart,
    HopStep,
    VisibleLabels,
    VoteStart,
    VoteStep,
    feature_count,
    label_features,
)
from xnq_dist.store import RunDirectory

NODES, FOLDS = 40, 3
PRIOR = np.array([0.5, 0.3, 0.2])


def sample(weighted: bool):
    """A directed graph with self-loops, pairs that see each other, a lone node."""
    rng = np.random.default_rng(3)
    dense = (rng.random((NODES, NODES)) < 0.1).astype(np.float32)
    dense[np.arange(10), np.arange(10)] = 1
    dense[20, 21] = dense[21, 20] = 1
    dense[30] = 0
    if weighted:
        dense *= rng.random(dense.shape).astype(np.float32)
    labels = rng.integers(-1, 3, NODES).astype(np.int32)
    folds = np.where(labels >= 0, rng.integers(0, FOLDS, NODES), -1).astype(np.int32)
    return csr_array(dense), labels, folds


def features(tmp_path, adjacency, labels, folds, rounds=(1, 3), smoothing=2.0):
    """By the parts that the workers run, one partition, sums by scipy."""
    stage = RunDirectory(tmp_path).stage("readout")
    attempt = stage.begin()
    record = attempt.write_arrays("labels-00000", labels=labels, folds=folds)
    visible = VisibleLabels(stage, (record,), FOLDS, 3)
    values, hops = HopStart(visible)(0), []
    for turn in (1, 2):
        values = HopStep()(0, turn, values, (adjacency @ values).astype(np.float32))
        hops.append(values)
    values, votes = VoteStart(visible, tuple(PRIOR.tolist()))(0), []
    step = VoteStep(visible)
    for turn in range(1, max(rounds) + 1):
        values = step(0, turn, values, (adjacency @ values).astype(np.float32))
        if turn in rounds:
            votes.append(values)
    return label_features(hops, votes, PRIOR, FOLDS, smoothing)


def twin(adjacency, labels, folds, rounds=(1, 3), smoothing=2.0):
    """Node by node, variant by variant, walk by walk."""
    weight = adjacency.toarray().astype(np.float64)
    out = np.zeros((NODES, FOLDS, feature_count(3, len(rounds))))
    for fold in range(FOLDS):
        seen = (labels >= 0) & (folds != fold)
        probability = np.array(
            [np.eye(3)[labels[v]] if seen[v] else PRIOR for v in range(NODES)]
        )
        kept = []
        for turn in range(1, max(rounds) + 1):
            after = probability.copy()
            for v in range(NODES):
                if not seen[v] and weight[v].sum() > 0:
                    after[v] = weight[v] @ probability / weight[v].sum()
            probability = after
            if turn in rounds:
                kept.append(probability)
        for v in range(NODES):
            row = []
            for walk in (weight[v], weight[v] @ weight):
                count = np.zeros(3)
                for u in np.flatnonzero(seen):
                    count[labels[u]] += walk[u]
                share = (count + smoothing * PRIOR) / (count.sum() + smoothing)
                row += [*share[1:], np.log1p(count.sum())]
            for scores in kept:
                row += [*scores[v][1:]]
            out[v, fold] = [*row, np.log1p(weight[v].sum())]
    return out


@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
def test_features_are_those_of_the_slow_twin(tmp_path, weighted):
    graph = sample(weighted)
    found = features(tmp_path, *graph)
    assert found.dtype == np.float32
    assert found.shape == (NODES, FOLDS, feature_count(3, 2))
    np.testing.assert_allclose(found, twin(*graph), atol=2e-6)
    # Without in-neighbours a node's features are the prior.
    np.testing.assert_allclose(found[30, :, :2], np.tile(PRIOR[1:], (FOLDS, 1)))


def test_rows_described_in_blocks_have_other_features(tmp_path, monkeypatch):
    graph = sample(True)
    whole = features(tmp_path / "whole", *graph)
    monkeypatch.setattr("xnq_dist.readout.label_features.BLOCK", 7)
    np.testing.assert_array_equal(features(tmp_path / "blocks", *graph), whole)


@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
def test_a_nodes_own_label_does_not_reach_its_own_features(tmp_path, weighted):
    adjacency, labels, folds = sample(weighted)
    before = features(tmp_path / "a", adjacency, labels, folds)
    reached = 0
    # Self-loops, a pair that sees each other, and any.
    for node in [v for v in (2, 5, 20, 21, 33) if labels[v] >= 0]:
        other = labels.copy()
        other[node] = (labels[node] + 1) % 3
        after = features(tmp_path / f"b{node}", adjacency, other, folds)
        np.testing.assert_array_equal(
            after[node, folds[node]], before[node, folds[node]]
        )
        reached += not np.array_equal(after, before)
    assert reached
