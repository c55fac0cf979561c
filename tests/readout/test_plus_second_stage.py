"""The second stage: nested folds, held-out choices, the same after a round trip."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from xnq_dist.readout.logistic import row_losses
from xnq_dist.readout.plus.first_stage import Variants, class_priors, node_folds
from xnq_dist.readout.plus.second_stage import (
    KINDS,
    SecondRows,
    SecondStage,
    conclude,
    fit_kind,
    pool_weights,
    pooled,
    used_by_trees,
)
from xnq_dist.readout.regularisation import search_from_middle
from xnq_dist.readout.saved import flat, nested

FOLDS = 3
BLOCKS = (2, 6, 4)


def sample(kind: str, count: int = 600, classes: int = 2) -> SecondRows:
    """Labels that a linear model, or only trees, can tell from two columns."""
    rng = np.random.default_rng(1)
    z = rng.standard_normal((count, 3))
    z[:, 2] = 4.0  # a constant column
    score = 3 * z[:, 0] if kind == "linear" else 6 * (z[:, 0] * z[:, 1] > 0) - 3
    labels = (rng.random(count) < 1 / (1 + np.exp(-score))).astype(np.int32)
    if classes > 2:
        labels += (z[:, 1] > 1).astype(np.int32)
    x = rng.standard_normal((count, len(used_by_trees(BLOCKS)))).astype(np.float32)
    folds = node_folds(np.arange(count), FOLDS, 0)
    first = np.full((count, len(BLOCKS), classes), -np.log(classes))
    z, weights = np.stack([z] * FOLDS, axis=1), np.ones(count)
    return SecondRows(labels, folds, z, x, BLOCKS, first, weights)


def fitted(rows: SecondRows):
    fits = {
        kind: [fit_kind(rows, kind, fold) for fold in range(FOLDS)] for kind in KINDS
    }
    known = rows.labels, rows.folds, rows.weights
    priors = class_priors(*known, rows.classes, Variants(FOLDS))[:FOLDS]
    return conclude(rows, priors, fits, 1)


def test_the_best_model_on_held_out_rows_has_the_largest_weight():
    _, _, linear = fitted(sample("linear"))
    _, _, crossed = fitted(sample("crossed"))
    assert max(linear["pool"], key=linear["pool"].__getitem__) == "logistic"
    assert linear["pool"]["prior"] < 0.2
    losses = crossed["second_stage_log_losses"]
    assert losses["trees"] < losses["logistic"] - 0.1
    assert crossed["pool"]["trees"] + crossed["pool"]["trees with spectrum"] > 0.6


def test_noise_is_shrunk_to_the_prior():
    rows = sample("linear")
    rng = np.random.default_rng(3)
    labels = (rng.random(len(rows.labels)) < 0.2).astype(np.int32)
    noise = replace(rows, labels=labels)
    _, held, facts = fitted(noise)
    constant = facts["second_stage_log_losses"]["prior"]
    assert row_losses(held, labels).mean() < 1.01 * constant


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("provided", [0, 2])
def test_held_out_scores_are_those_of_the_folds_own_models(classes, provided):
    rows = replace(sample("crossed", classes=classes), provided=provided)
    stage, held, facts = fitted(rows)
    again = SecondStage(**nested(flat(vars(stage))))
    for fold in range(FOLDS):
        own = rows.folds == fold
        arguments = rows.scores[own], rows.z[own, fold].copy(), rows.x[own], fold
        np.testing.assert_allclose(stage.scores(*arguments), held[own], atol=1e-10)
        np.testing.assert_array_equal(
            again.scores(*arguments), stage.scores(*arguments)
        )
    np.testing.assert_allclose(np.exp(held).sum(axis=1), 1)
    assert sum(facts["pool"].values()) == pytest.approx(1)
    assert set(stage.trees) == set(KINDS)
    assert ("scores" in facts["pool"]) == (provided > 0)


def test_few_labels_add_the_first_stage_to_the_pool():
    rows = sample("linear", 120)
    stage, _, facts = fitted(rows)
    assert list(facts["pool"])[-3:] == ["block 0", "block 1", "block 2"]
    found = stage.components(rows.scores[:4], rows.z[:4, 0].copy(), rows.x[:4], 0)
    assert len(found) == len(stage.weights) == 7


def test_trees_of_a_fold_are_the_same_whatever_its_labels():
    rows = sample("crossed")
    flipped = rows.labels.copy()
    flipped[11] = 1 - flipped[11]
    other = replace(rows, labels=flipped)
    fold = rows.folds[11]
    for kind in KINDS:
        # The hidden fold says when boosting ends, so compare what both have.
        both = [fit_kind(which, kind, fold)[0] for which in (rows, other)]
        common = min(len(one.value) for one in both)
        for pair in zip(*(one.truncated(common) for one in both), strict=True):
            np.testing.assert_array_equal(*pair)


def test_the_pool_is_the_best_of_a_grid():
    rng = np.random.default_rng(7)
    labels = rng.integers(0, 2, 4000).astype(np.int32)
    signs = 2.0 * labels - 1

    def scores(signal):
        odds = signal * signs + rng.standard_normal(4000) * 2
        return -np.logaddexp(0, np.stack([odds, -odds], axis=1))

    models = np.stack([scores(1.0), scores(2.0)])
    found = pool_weights(models, labels, np.ones(4000))
    losses = {
        share: row_losses(pooled(models, np.array([1 - share, share])), labels).mean()
        for share in np.linspace(0, 1, 51)
    }
    best = min(losses, key=losses.__getitem__)
    assert found[1] == pytest.approx(best, abs=0.03)


@pytest.mark.parametrize(
    ("losses", "best"),
    [
        ([9, 8, 7, 5, 6, 7, 8], 3),
        ([9, 8, 7, 6, 5, 4, 4.4], 5),
        ([9, 2, 3, 5, 6, 7, 8], 1),
        ([5.0, 5.0, 5.0, 5.0, 5.0, 5.0, 5.0], 3),
        ([5.0, 5.0, 5.0, 5.0, 4.9, 5.0, 5.0], 3),  # less than the pull
    ],
)
def test_the_search_goes_from_the_middle_towards_lower_losses(losses, best):
    tried = []

    def loss(place):
        tried.append(place)
        return losses[place]

    assert search_from_middle(loss, len(losses)) == best
    assert tried[0] == 3
    assert len(set(tried)) == len(tried)
