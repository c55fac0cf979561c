"""Majorities, ties and draws, as documented, for each variant."""

from __future__ import annotations

import numpy as np

from tests.evaluation.methods.graphs import hide, plain_majority, tie_order
from xnq_dist.evaluation.methods.votes import (
    class_counts,
    draw_from_prior,
    majority,
    majority_order,
)


def test_ties_go_to_the_more_frequent_class_then_the_lower_code():
    labels = hide(60, 4, 0.5, 3)
    order = majority_order(class_counts(labels, 4))
    rng = np.random.default_rng(0)
    votes = rng.integers(0, 3, (80, 4))
    for variant, row in enumerate(labels):
        assert order[variant].tolist() == tie_order(row, 4)
        expected = [
            plain_majority([c for c in range(4) for _ in range(cell[c])], row, 4)
            for cell in votes
        ]
        assert majority(votes, order[variant]).tolist() == expected


def test_drawn_classes_follow_the_training_labels_and_never_an_absent_one():
    labels = np.full((1, 20_000), -1, np.int32)
    labels[0, :10] = [0, 0, 0, 0, 0, 0, 0, 2, 2, 2]
    drawn = draw_from_prior(np.full_like(labels, -1), class_counts(labels, 4), seed=3)
    shares = np.bincount(drawn[0], minlength=4) / drawn.size
    np.testing.assert_allclose(shares, [0.7, 0, 0.3, 0], atol=0.015)
    assert shares[1] == shares[3] == 0


def test_a_draw_depends_on_seed_and_node_but_not_on_the_variants_beside():
    labels = hide(300, 3, 0.3, 2)
    counts = class_counts(labels, 3)
    none = np.full(labels.shape, -1, np.int32)
    both = draw_from_prior(none, counts, 0)
    alone = draw_from_prior(none[1:], counts[1:], 0)
    np.testing.assert_array_equal(both[1:], alone)
    assert (draw_from_prior(none, counts, 1) != both).any()
    some = none.copy()
    some[:, ::2] = 1
    np.testing.assert_array_equal(
        draw_from_prior(some, counts, 0), np.where(some < 0, both, some)
    )
