"""Selection by place: variances of effects, counts by group."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit
from scipy.stats import norm

from tests.selection.simulated import draw_world, even_rows, label, rows_of
from xnq_dist.selection.model import fit_model, plain_terms
from xnq_dist.selection.place import (
    place_terms,
    uneven,
)


@pytest.mark.parametrize("spread", [0.0, 0.7])
def test_variance_of_group_effects_is_recovered(spread):
    rng = np.random.default_rng(0)
    groups = rng.integers(0, 60, 12_000).astype(np.int32)
    chance = expit(-1.2 + spread * rng.normal(0, 1, 60)[groups])
    labelled = rng.random(len(groups)) < chance
    scores = np.full((len(groups), 2), 0.5)
    terms = place_terms(even_rows(scores, labelled - 1, groups))
    assert terms.factors[0].shape == (12_000, 60)
    assert terms.spreads[0] == pytest.approx(spread**2, rel=0.4, abs=0.02)


@pytest.mark.parametrize("rate", [0.05, 0.5])
def test_even_labels_are_a_standard_normal_value(rate):
    rng = np.random.default_rng(1)
    groups = np.sort(rng.integers(0, 30, 3000)).astype(np.int32)
    values = []
    for _ in range(600):
        labelled = rng.random(3000) < rate
        values.append(uneven(groups, labelled, np.full(3000, labelled.mean()))[0])
    assert np.mean(values) == pytest.approx(0, abs=0.25)
    assert 0.8 < np.std(values) < 1.2
    assert np.mean(np.array(values) > norm.isf(0.05)) < 0.09
    assert np.max(values) < 4


def test_uneven_labels_are_detected():
    rng = np.random.default_rng(2)
    groups = np.sort(rng.integers(0, 30, 3000)).astype(np.int32)
    labelled = rng.random(3000) < np.where(groups % 2, 0.3, 0.1)
    z, cv2 = uneven(groups, labelled, np.full(3000, 0.2))
    assert z > 8
    assert cv2 == pytest.approx(0.25, abs=0.06)


def test_labels_by_class_alone_are_even_over_places():
    """Groups have classes of their own, and M0 knows how many labels those bring."""
    high = 0
    for seed in range(10):
        world = draw_world(seed, 4000)
        odds = np.where(world.classes == 1, 5.0, 1.0)
        rows = rows_of(world, label(world, odds))
        found = fit_model(rows, plain_terms(rows.folds), 1.0)
        z, cv2 = uneven(rows.groups[0], rows.labelled, found.rates)
        high += z > 4 and cv2 > 0.05
    assert high == 0


def test_groups_beyond_the_largest_share_the_level():
    groups = np.repeat(np.arange(600), 3).astype(np.int32)
    labelled = np.arange(1800) % 4 == 0
    rows = even_rows(np.full((1800, 2), 0.5), np.where(labelled, 0, -1), groups)
    terms = place_terms(rows)
    assert terms.factors[0].shape == (1800, 400)
    assert terms.factors[0].sum() == 1200
    rows.labels[:9:4] = 1
    assert fit_model(rows, terms, None).converged
