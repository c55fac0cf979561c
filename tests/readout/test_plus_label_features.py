"""Label features against slow twins, and independence of hidden labels."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.special import softmax

from xnq_dist.core.store import RunDirectory
from xnq_dist.readout.plus.first_stage import (
    FirstStage,
    Variants,
    class_priors,
    node_folds,
)
from xnq_dist.readout.plus.label_features import (
    SMOOTHING,
    Around,
    feature_count,
)
from xnq_dist.readout.rows import Part
from xnq_dist.readout.saved import flat

NODES, FOLDS = 40, 3
VARIANTS = Variants(FOLDS)
RNG = np.random.default_rng(8)
BLOCKS = (3, 2)
X = RNG.standard_normal((NODES, sum(BLOCKS))).astype(np.float32)
FIRST = FirstStage(
    BLOCKS,
    RNG.standard_normal((len(VARIANTS), 3, sum(BLOCKS))),
    RNG.standard_normal((len(VARIANTS), len(BLOCKS), 3)),
)


class Embedded(Part):
    """One partition's embeddings, in two batches."""

    def __init__(self, threads=1):
        super().__init__(None, threads, None, None, None)

    def states(self):
        yield 0, X[:25]
        yield 25, X[25:]


def sample(weighted: bool):
    """A directed graph with self-loops, mutual pairs and an isolated node."""
    rng = np.random.default_rng(3)
    dense = (rng.random((NODES, NODES)) < 0.1).astype(np.float32)
    dense[np.arange(10), np.arange(10)] = 1
    dense[20, 21] = dense[21, 20] = 1
    dense[30] = 0
    if weighted:
        dense *= rng.random(dense.shape).astype(np.float32)
    labels = rng.integers(-1, 3, NODES).astype(np.int32)
    return csr_array(dense), labels, node_folds(np.arange(NODES), FOLDS, 5)


def priors_of(labels, folds):
    known = labels >= 0
    return class_priors(labels[known], folds[known], np.ones(known.sum()), 3, VARIANTS)


def around_of(tmp_path, labels, folds, threads=1):
    """One partition's labels and models in files."""
    stage = RunDirectory(tmp_path).stage("readout")
    attempt = stage.begin()
    known = {"labels": labels, "folds": folds, "fitted": labels >= 0}
    records = (attempt.write_arrays("labels-00000", **known),)
    models = attempt.write_arrays("models", **flat(vars(FIRST)))
    known = stage, records, models, priors_of(labels, folds), VARIANTS
    return Around((Embedded(threads),), *known)


def rounds_of(adjacency, around):
    """Values after both rounds, with sums over neighbours by scipy."""
    values, found = around.start(0), []
    for turn in (1, 2):
        sums = (adjacency @ values).astype(np.float32)
        values = around.step(0, turn, values, sums)
        found.append(values)
    return found


def features(tmp_path, adjacency, labels, folds, threads=1):
    """In every variant, shape (n, V, F)."""
    around = around_of(tmp_path, labels, folds, threads)
    every = np.tile(np.arange(len(VARIANTS)), (NODES, 1))
    return around.features(rounds_of(adjacency, around), every, np.empty((NODES, 0)))


def logits(place, block):
    columns = slice(0, 3) if block == 0 else slice(3, 5)
    coef = FIRST.coef[place][:, columns]
    return X[:, columns].astype(np.float64) @ coef.T + FIRST.intercept[place, block]


def mean_twin(weight, labels, folds, place, hidden):
    """Mean probabilities of neighbours after each round, node by node."""
    each = [softmax(logits(place, block), axis=1) for block in (0, 1)]
    values, prior = (each[0] + each[1]) / 2, priors_of(labels, folds)[place]
    for v in range(NODES):
        if labels[v] >= 0 and folds[v] not in hidden:
            values[v] = np.eye(3)[labels[v]]
    found = []
    for _ in range(2):
        rows = [(row @ values + prior) / (row.sum() + 1) for row in weight]
        values = np.array(rows)
        found.append(values[:, 1:])
    return np.concatenate(found, axis=1)


def twin(adjacency, labels, folds, smoothing=SMOOTHING):
    """Node by node, variant by variant, walk by walk."""
    weight = adjacency.toarray().astype(np.float64)
    out = np.zeros((NODES, len(VARIANTS), feature_count(3)))
    for place, hidden in enumerate(VARIANTS.hidden):
        seen = (labels >= 0) & ~np.isin(folds, hidden)
        prior = np.bincount(labels[seen], minlength=3) + 0.5
        prior /= prior.sum()
        means = mean_twin(weight, labels, folds, place, hidden)
        for v in range(NODES):
            row = []
            for walk in (weight[v], weight[v] @ weight):
                count = np.zeros(3)
                for u in np.flatnonzero(seen):
                    count[labels[u]] += walk[u]
                count /= 1 - len(hidden) / FOLDS
                share = (count + smoothing * prior) / (count.sum() + smoothing)
                row += [*share[1:], np.log1p(count.sum())]
            out[v, place] = [*row, *means[v], np.log1p(weight[v].sum())]
    return out


def test_variants_hide_each_fold_alone_and_each_pair():
    variants = Variants(4)
    assert len(variants) == len(variants.hidden) == 10
    places = variants.of_rows(np.arange(4, dtype=np.int32))
    np.testing.assert_array_equal(places, places.T)
    for a in range(4):
        for b in range(4):
            assert set(variants.hidden[places[a, b]]) == {a, b}
            np.testing.assert_array_equal(
                np.flatnonzero(~variants.visible()[places[a, b]]), sorted({a, b})
            )


def test_folds_are_those_of_the_node_and_of_one_size():
    index = np.arange(30_000)
    folds = node_folds(index, 5, 1)
    np.testing.assert_array_equal(node_folds(index[7:9], 5, 1), folds[7:9])
    counts = np.bincount(folds, minlength=5)
    assert counts.min() > 6000 - 5 * np.sqrt(6000)
    assert (node_folds(index, 5, 2) != folds).mean() > 0.7


@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
def test_features_are_those_of_the_slow_twin(tmp_path, weighted):
    graph = sample(weighted)
    found = features(tmp_path, *graph)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, twin(*graph), atol=2e-6)
    # Without in-neighbours a node's features are the prior.
    np.testing.assert_allclose(
        found[30, :, :2], priors_of(*graph[1:])[:, 1:], atol=1e-6
    )


def test_rows_described_in_blocks_have_the_same_features(tmp_path, monkeypatch):
    graph = sample(True)
    whole = features(tmp_path / "whole", *graph)
    monkeypatch.setattr("xnq_dist.readout.plus.label_features.BLOCK", 7)
    np.testing.assert_array_equal(features(tmp_path / "blocks", *graph), whole)


@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
def test_a_label_has_no_effect_on_variants_that_hide_it(tmp_path, weighted):
    adjacency, labels, folds = sample(weighted)
    before = features(tmp_path / "a", adjacency, labels, folds)
    # Self-loops, a pair that sees each other, and any.
    for node in [v for v in (2, 5, 20, 21, 33) if labels[v] >= 0]:
        other = labels.copy()
        other[node] = (labels[node] + 1) % 3
        after = features(tmp_path / f"b{node}", adjacency, other, folds)
        hiding = ~VARIANTS.visible()[:, folds[node]]
        np.testing.assert_array_equal(after[:, hiding], before[:, hiding])
        assert not np.array_equal(after[:, ~hiding], before[:, ~hiding])


def test_batches_on_threads_have_the_same_features(tmp_path):
    graph = sample(True)
    alone = features(tmp_path / "a", *graph)
    np.testing.assert_array_equal(features(tmp_path / "b", *graph, threads=3), alone)
