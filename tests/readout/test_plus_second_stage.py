"""The second stage: chosen by held-out rows alone, the same after a round trip."""

from __future__ import annotations

import numpy as np
import pytest

from xnq_dist.readout.folds import assign_folds
from xnq_dist.readout.logistic import row_losses
from xnq_dist.readout.second_stage import (
    SecondStage,
    _choose,
    fit_second_stage,
    second_stage_rows,
)


def sample(kind: str, count: int = 500):
    """Labels that a linear model, or only trees, can tell from two features."""
    rng = np.random.default_rng(1)
    z = rng.standard_normal((count, 3))
    z[:, 2] = 4.0  # says nothing, and has no spread
    score = 3 * z[:, 0] if kind == "linear" else 6 * (z[:, 0] * z[:, 1] > 0) - 3
    labels = (rng.random(count) < 1 / (1 + np.exp(-score))).astype(np.int32)
    return z, labels, assign_folds(labels, 3, 0)


def test_the_kind_of_least_held_out_loss_wins():
    linear = fit_second_stage(*sample("linear"), 2, True)
    crossed = fit_second_stage(*sample("crossed"), 2, True)
    assert linear.kind in ("logistic", "mean")
    assert linear.losses["logistic"] < linear.losses["boosted"]
    assert crossed.kind in ("boosted", "mean")
    assert crossed.losses["boosted"] < crossed.losses["logistic"] - 0.1
    for found in (linear, crossed):
        assert bool(found.linear) == (found.kind != "boosted")
        assert bool(found.trees) == (found.kind != "logistic")


def test_the_mean_gives_way_only_beyond_chance():
    rng = np.random.default_rng(0)
    best, other = rng.random(100), rng.random(100) + 1
    noise = rng.standard_normal(100)

    def choose(**by_row):
        return _choose(by_row, "boosted", "mean")

    level = best + 0.01 + 0.5 * noise
    assert choose(logistic=best, boosted=other, mean=level) == "mean"
    worse = best + 0.2 + 0.1 * noise
    assert choose(logistic=best, boosted=other, mean=worse) == "logistic"
    assert choose(logistic=other, boosted=best, mean=worse) == "boosted"
    assert choose(logistic=other, boosted=other, mean=best) == "mean"


@pytest.mark.parametrize("kind", ["linear", "crossed"])
def test_held_out_scores_are_those_of_the_folds_own_models(kind):
    z, labels, folds = sample(kind)
    found = fit_second_stage(z, labels, folds, 2, True)
    for fold in range(3):
        own = folds == fold
        np.testing.assert_allclose(
            found.scores(z[own], fold), found.out_of_fold[own], atol=1e-10
        )
    again = SecondStage.from_arrays(found.to_arrays())
    assert again.losses == found.losses
    assert again.kind == found.kind
    for fold in range(3):
        np.testing.assert_array_equal(again.scores(z, fold), found.scores(z, fold))
    loss = row_losses(found.out_of_fold, labels).mean()
    assert found.losses[found.kind] == pytest.approx(loss)


def test_node_features_are_seen_where_they_help():
    z, labels, folds = sample("crossed")
    # The second stage's own columns say nothing; what says all is a node feature.
    blind = np.random.default_rng(5).standard_normal((len(z), 2))
    found = fit_second_stage(blind, labels, folds, 2, True, z)
    assert found.sees_features
    assert found.losses["boosted+features"] < found.losses["boosted"] - 0.1
    again = SecondStage.from_arrays(found.to_arrays())
    for fold in range(3):
        own = folds == fold
        scores = again.scores(blind[own], fold, z[own])
        np.testing.assert_allclose(scores, found.out_of_fold[own], atol=1e-10)
    # Noise for node features, and they are left alone.
    other = fit_second_stage(z, labels, folds, 2, True, blind)
    assert not other.sees_features
    plain = fit_second_stage(z, labels, folds, 2, True)
    np.testing.assert_array_equal(other.out_of_fold, plain.out_of_fold)


def test_a_rows_own_label_does_not_reach_its_score():
    z, labels, folds = sample("crossed")
    before = fit_second_stage(z, labels, folds, 2, True)
    flipped = labels.copy()
    flipped[11] = 1 - flipped[11]
    after = fit_second_stage(z, flipped, folds, 2, True)
    assert after.kind == before.kind
    own = folds == folds[11]
    np.testing.assert_array_equal(before.out_of_fold[own], after.out_of_fold[own])
    assert not np.array_equal(before.out_of_fold[~own], after.out_of_fold[~own])


def test_more_than_two_classes_without_trees():
    rng = np.random.default_rng(2)
    labels = np.arange(90, dtype=np.int32) % 3
    logits = rng.standard_normal((90, 3)) + 2 * np.eye(3)[labels]
    z = second_stage_rows(logits, rng.random((90, 2)).astype(np.float32))
    assert z.shape == (90, 4)
    np.testing.assert_allclose(z[:, 0], logits[:, 1] - logits[:, 0])
    found = fit_second_stage(z, labels, assign_folds(labels, 3, 0), 3, False)
    assert found.kind == "logistic"
    assert found.losses.keys() == {"logistic"}
    np.testing.assert_allclose(np.exp(found.out_of_fold).sum(axis=1), 1)
