"""The test of exchangeable scores against permutations."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from scipy.stats import chi2

from tests.selection.simulated import draw_world, label, rows_of
from xnq_dist.selection.shift import shift_pvalue, shift_statistic


def permuted(rows, rng):
    """Labels permuted within every fold."""
    labels = rows.labels.copy()
    for fold in np.unique(rows.folds):
        own = np.flatnonzero(rows.folds == fold)
        labels[own] = labels[rng.permutation(own)]
    return dataclasses.replace(rows, labels=labels)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_permuted_labels_give_the_reference_distribution(n_classes):
    world = draw_world(0, 600, n_classes)
    rows = rows_of(world, label(world, np.ones(600)))
    rng = np.random.default_rng(1)
    found = [shift_statistic(permuted(rows, rng)) for _ in range(1500)]
    freedom = n_classes - 1
    assert {df for _, df in found} == {freedom}
    values = np.array([value for value, _ in found])
    assert values.mean() == pytest.approx(freedom, rel=0.12)
    assert (values > chi2.isf(0.05, freedom)).mean() == pytest.approx(0.05, abs=0.02)


def test_statistic_is_independent_of_the_levels_of_folds():
    """The models of the folds differ; labels are more frequent in some folds."""
    world = draw_world(2, 4000)
    rows = rows_of(world, label(world, np.ones(4000)))
    shifted = rows.posteriors[:, 1] * np.where(rows.folds == 0, 0.3, 1.0)
    labels = np.where(
        (rows.folds == 1) & (world.rng.random(4000) < 0.6), -1, rows.labels
    )
    moved = dataclasses.replace(
        rows, posteriors=np.stack([1 - shifted, shifted], axis=1), labels=labels
    )
    assert shift_pvalue(moved) > 0.01


def test_bias_by_class_is_noticed():
    world = draw_world(3, 4000)
    odds = np.where(world.classes == 1, 5.0, 1.0)
    assert shift_pvalue(rows_of(world, label(world, odds))) < 1e-6


def test_shift_needs_labelled_and_unlabelled_nodes():
    world = draw_world(4, 200)
    rows = rows_of(world, label(world, np.ones(200)))
    alone = dataclasses.replace(rows, labels=world.classes)
    assert shift_pvalue(alone) == 1.0
