"""Boosted trees as arrays: the predictions of scikit-learn, without its objects."""

from __future__ import annotations

import numpy as np
import pytest
import sklearn
from scipy.special import softmax

from xnq_dist.readout.logistic import row_losses
from xnq_dist.readout.plus import trees as module
from xnq_dist.readout.plus.trees import (
    ROUNDS,
    STEP,
    BoostedTrees,
    Shape,
    add_trees,
    boosted_logits,
    fit_trees,
    staged,
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


@pytest.mark.parametrize("classes", [2, 3])
def test_exported_trees_agree_with_the_estimator(classes, monkeypatch):
    fitted = []
    export = module._exported
    monkeypatch.setattr(
        module,
        "_exported",
        lambda estimator: fitted.append(estimator) or export(estimator),
    )
    z, labels = rows(classes)
    found = fit_trees(z, labels, classes, SHAPE)
    new = np.concatenate([z, rows(classes, 77)[0] * 2])
    logits = boosted_logits(found, new)
    expected = fitted[0].decision_function(new)
    if classes == 2:
        assert np.all(logits[:, 0] == 0)
        logits = logits[:, 1]
    # The node tables are not a public interface: a release that moves them fails here.
    np.testing.assert_allclose(
        logits,
        expected,
        rtol=0,
        atol=1e-12,
        err_msg=f"scikit-learn {sklearn.__version__}",
    )
    assert len(found.tests) - 1 == ROUNDS * (1 if classes == 2 else 3)
    assert found.turns == ROUNDS


def test_arrays_there_and_back_and_the_kernel_in_plain_python():
    z, labels = rows(2, 150)
    found = fit_trees(z, labels, 2, SHAPE)
    again = BoostedTrees.from_arrays(found.to_arrays("t_"), "t_")
    logits = boosted_logits(again, z)
    np.testing.assert_array_equal(logits, boosted_logits(found, z))
    scores = np.tile(found.baseline, (5, 1))
    add_trees.py_func(
        z[:5],
        *(getattr(found, name) for name in module._FIELDS[1:]),
        scores,
    )
    np.testing.assert_array_equal(scores[:, 0], logits[:5, 1])


def test_a_row_has_the_same_bits_at_any_place():
    z, labels = rows(3)
    found = fit_trees(z, labels, 3, SHAPE)
    whole = boosted_logits(found, z)
    np.testing.assert_array_equal(boosted_logits(found, z[7:8]), whole[7:8])
    again = fit_trees(z, labels, 3, SHAPE)
    np.testing.assert_array_equal(boosted_logits(again, z), whole)


@pytest.mark.parametrize("classes", [2, 3])
def test_losses_of_each_round_are_those_of_the_truncated_model(classes):
    z, labels = rows(classes)
    found = fit_trees(z, labels, classes, SHAPE)
    new, truth = z[:90] + 0.1, labels[:90]
    losses = staged(found, new, truth)
    assert losses.shape == (ROUNDS + 1,)
    for turns in (1, 17, ROUNDS):
        cut = found.truncated(turns)
        assert cut.turns == turns
        logits = boosted_logits(cut, new)
        assert row_losses(logits, truth).sum() == pytest.approx(losses[turns])


def test_a_class_without_a_row_has_a_small_probability():
    z, labels = rows(2)
    found = fit_trees(z, labels, 3, SHAPE)
    shares = softmax(boosted_logits(found, z), axis=1)
    assert 0 < shares[:, 2].max() < 0.1


def test_boosting_ends_once_held_out_rows_stop_improving():
    z, labels = rows(2)
    noise = np.random.default_rng(3).standard_normal(z.shape)
    found = fit_trees(noise, labels, 2, SHAPE, (noise[::-1] * 1.1, labels))
    assert found.turns < ROUNDS
    new, truth = rows(2, 300)
    good = fit_trees(z, labels, 2, SHAPE, (new, truth))
    best = int(np.argmin(staged(good, new, truth)))
    # It ends with the first block of rounds that brings nothing, or at the limit.
    ended = good.turns - 2 * STEP < best <= good.turns - STEP
    assert ended or good.turns == ROUNDS


@pytest.mark.parametrize(
    ("classes", "noise", "weighted"), [(2, 0.5, False), (2, 5.0, True), (3, 5.0, False)]
)
def test_trees_are_those_of_fits_in_steps(classes, noise, weighted):
    from sklearn.ensemble import HistGradientBoostingClassifier

    z, labels = rows(classes, 900)
    z += noise * np.random.default_rng(5).standard_normal(z.shape)
    train, held = (z[:600], labels[:600]), (z[600:], labels[600:])
    weights = np.linspace(0.5, 2.0, 600) if weighted else None
    found = fit_trees(*train, classes, SHAPE, held, weights)
    stepwise = HistGradientBoostingClassifier(
        learning_rate=0.05,
        max_leaf_nodes=SHAPE.leaves,
        max_features=SHAPE.share,
        min_samples_leaf=40,
        l2_regularization=1.0,
        early_stopping=False,
        warm_start=True,
        random_state=0,
    )
    for turns in range(STEP, ROUNDS + 1, STEP):
        stepwise.set_params(max_iter=turns).fit(*train, weights)
        expected = module._exported(stepwise)
        if np.argmin(staged(expected, *held)) <= turns - STEP:
            break
    assert found.turns == expected.turns
    for name in module._FIELDS:
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))


def test_a_fold_without_rows_gets_trees_of_one_step():
    z, labels = rows(2)
    assert fit_trees(z, labels, 2, SHAPE, (z[:0], labels[:0])).turns == STEP
