"""Boosted trees as arrays, next to those of scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import softmax
from threadpoolctl import threadpool_limits

from xnq_dist.readout.logistic import row_losses
from xnq_dist.readout.plus import trees as module
from xnq_dist.readout.plus.trees import (
    LEAST,
    RATE,
    RIDGE,
    ROUNDS,
    STEP,
    Shape,
    binned,
    boosted_logits,
    fit_trees,
)

SHAPE = Shape(leaves=8, share=0.5)


def rows(classes: int, count: int = 400):
    rng = np.random.default_rng(classes)
    z = rng.standard_normal((count, 4))
    z[:, 3] = np.round(z[:, 3])  # ties at thresholds
    labels = (np.abs(z[:, 0]) + z[:, 1] + rng.random(count) > 1).astype(np.int32)
    if classes > 2:
        labels += (z[:, 3] > 0).astype(np.int32)
    return z, labels


def every(monkeypatch, rounds=ROUNDS):
    """Trees of all rows in so many rounds."""
    monkeypatch.setattr(module, "ROUNDS", rounds)
    monkeypatch.setattr(module, "STEP", rounds)

    def fit(z, labels, classes, shape, weights=None):
        weights = np.ones(len(labels)) if weights is None else weights
        held = np.zeros(len(labels), bool)
        return fit_trees(binned(z), labels, weights, classes, shape, held)[0]

    return fit


def peer(z, labels, weights=None, rounds=ROUNDS):
    """scikit-learn's trees; each split looks at all columns."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    estimator = HistGradientBoostingClassifier(
        learning_rate=RATE,
        max_iter=rounds,
        max_leaf_nodes=SHAPE.leaves,
        min_samples_leaf=LEAST,
        l2_regularization=RIDGE,
        early_stopping=False,
    )
    # Its threads wait for each other at every node, for minutes on a busy machine.
    with threadpool_limits(limits=1, user_api="openmp"):
        return estimator.fit(z, labels, weights)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("classes", [2, 3])
def test_trees_that_draw_all_columns_are_those_of_scikit_learn(
    classes, weighted, monkeypatch
):
    # Few rounds: its gradients are float32, so equally good splits may differ later.
    fit = every(monkeypatch, 10)
    z, labels = rows(classes, 1400)
    weights = None
    if weighted:
        # It weighs quantiles, too, which a column of few values has none of.
        z, weights = np.round(z, 1), np.linspace(0.5, 2.0, len(z))
    found = fit(z, labels, classes, Shape(8, 1.0), weights)
    expected = peer(z, labels, weights, 10)
    new = np.concatenate([z, rows(classes, 77)[0] * 2])
    logits = boosted_logits(found, new)
    if classes == 2:
        assert np.all(logits[:, 0] == 0)
        logits = logits[:, 1]
    np.testing.assert_allclose(
        logits, expected.decision_function(new), rtol=0, atol=1e-6
    )
    assert len(found.value) == 10


def test_drawn_columns_serve_as_well_as_those_that_scikit_learn_draws(monkeypatch):
    z, labels = rows(3, 2000)
    noise = np.random.default_rng(7).standard_normal((2000, 4))
    z = np.concatenate([z, noise], axis=1)
    train, new, truth = (z[:1500], labels[:1500]), z[1500:], labels[1500:]
    found, expected = every(monkeypatch)(*train, 3, SHAPE), peer(*train)
    loss = row_losses(boosted_logits(found, new), truth)
    wanted = row_losses(expected.decision_function(new), truth)
    assert loss.mean() < wanted.mean() + 2 * (loss - wanted).std() / np.sqrt(500)
    # Every split draws anew: no tree is bound to half of the columns.
    assert len(np.unique(found.feature[0, :, 1:])) > 4


def test_a_row_has_the_same_bits_at_any_place(monkeypatch):
    z, labels = rows(3)
    found = every(monkeypatch)(z, labels, 3, SHAPE)
    whole = boosted_logits(found, z)
    np.testing.assert_array_equal(boosted_logits(found, z[7:8]), whole[7:8])
    again = every(monkeypatch)(z, labels, 3, SHAPE)
    np.testing.assert_array_equal(boosted_logits(again, z), whole)


def test_a_class_without_a_row_has_a_small_probability(monkeypatch):
    z, labels = rows(2)
    found = every(monkeypatch)(z, labels, 3, SHAPE)
    shares = softmax(boosted_logits(found, z), axis=1)
    assert 0 < shares[:, 2].max() < 0.1


@pytest.mark.parametrize(
    ("classes", "noise", "weighted"), [(2, 0.5, False), (2, 5.0, True), (3, 5.0, False)]
)
def test_trees_that_end_early_are_the_first_of_those_that_do_not(
    classes, noise, weighted, monkeypatch
):
    z, labels = rows(classes, 900)
    z += noise * np.random.default_rng(5).standard_normal(z.shape)
    held = np.arange(900) >= 600
    weights = np.linspace(0.5, 2.0, 900) if weighted else np.ones(900)
    bins = binned(z)
    found, losses = fit_trees(bins, labels, weights, classes, SHAPE, held)
    monkeypatch.setattr(module, "STEP", ROUNDS)
    train = bins._replace(codes=bins.codes[:, ~held]), labels[~held], weights[~held]
    complete, _ = fit_trees(*train, classes, SHAPE, np.zeros(600, bool))
    assert len(complete.value) == ROUNDS
    cuts = [complete.truncated(turns) for turns in range(ROUNDS + 1)]
    expected = [
        row_losses(boosted_logits(cut, z[held]), labels[held]).sum() for cut in cuts
    ]
    ends = range(STEP, ROUNDS + 1, STEP)
    stops = [t for t in ends if np.argmin(expected[: t + 1]) <= t - STEP]
    turns = stops[0] if stops else ROUNDS
    np.testing.assert_allclose(losses, expected[: turns + 1])
    for values, of_cut in zip(found, complete.truncated(turns), strict=True):
        np.testing.assert_array_equal(values, of_cut)


def test_a_fold_without_rows_gets_trees_of_one_step():
    z, labels = rows(2)
    held = np.zeros(len(labels), bool)
    trees, _ = fit_trees(binned(z), labels, np.ones(len(labels)), 2, SHAPE, held)
    assert len(trees.value) == STEP
