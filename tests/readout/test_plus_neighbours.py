"""Mean posteriors of neighbours against a slow twin; independence of hidden labels."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import log_softmax, softmax

from tests.readout.test_plus_label_features import (
    NODES,
    VARIANTS,
    around,
    priors_of,
    sample,
    shown,
)
from xnq_dist.readout.plus.first_stage import FirstStage
from xnq_dist.readout.plus.neighbours import (
    AroundStart,
    AroundStep,
    FirstFit,
)
from xnq_dist.readout.rows import Part

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
        super().__init__(None, None, None, None, threads=threads)

    def read_nodes(self):
        return {"node_id": X[:, 0]}

    def states(self, _ids):
        yield 0, X[:25]
        yield 25, X[25:]


def first_fit(tmp_path, labels, folds, first=FIRST):
    visible, models = shown(tmp_path, labels, folds, **first.to_arrays())
    return FirstFit(visible, models, priors_of(labels, folds), None)


def means(adjacency, *fits, threads=1, rounds=2):
    """By the parts that the workers run, sums by scipy; of each fit, (n, V, C - 1)."""
    start = AroundStart(fits, (Embedded(threads),))
    values = around(adjacency, start, AroundStep(fits), rounds)[-1]
    return [
        fit.columns([of_fit])[1][0][:, :-1].reshape(NODES, len(VARIANTS), 2)
        for fit, of_fit in zip(fits, np.hsplit(values, len(fits)), strict=True)
    ]


def logits(place, block):
    columns = slice(0, 3) if block == 0 else slice(3, 5)
    coef = FIRST.coef[place][:, columns]
    return X[:, columns].astype(np.float64) @ coef.T + FIRST.intercept[place, block]


def test_each_model_uses_only_its_own_block():
    found = FIRST.scores(X)
    for place in range(len(VARIANTS)):
        for block in range(2):
            expected = log_softmax(logits(place, block), axis=1)
            np.testing.assert_allclose(found[:, place, block], expected, atol=1e-9)
    again = FirstStage.from_arrays(FIRST.to_arrays())
    np.testing.assert_array_equal(again.scores(X[3:9]), found[3:9])
    np.testing.assert_array_equal(again.single(3).scores(X), found[:, :3])


@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
def test_means_are_those_of_the_slow_twin(tmp_path, weighted):
    adjacency, labels, folds = sample(weighted)
    (found,) = means(adjacency, first_fit(tmp_path, labels, folds))
    weight = adjacency.toarray().astype(np.float64)
    priors = priors_of(labels, folds)
    for place, hidden in enumerate(VARIANTS.hidden):
        values = (
            softmax(logits(place, 0), axis=1) + softmax(logits(place, 1), axis=1)
        ) / 2
        for v in range(NODES):
            if labels[v] >= 0 and folds[v] not in hidden:
                values[v] = np.eye(3)[labels[v]]
        for _ in range(2):
            values = np.array(
                [
                    (weight[v] @ values + priors[place]) / (weight[v].sum() + 1)
                    for v in range(NODES)
                ]
            )
        np.testing.assert_allclose(found[:, place], values[:, 1:], atol=2e-6)
    # Without in-neighbours there is the prior.
    np.testing.assert_allclose(found[30], priors[:, 1:], atol=1e-6)


def test_a_label_has_no_effect_on_variants_that_hide_it(tmp_path):
    adjacency, labels, folds = sample(False)
    (before,) = means(adjacency, first_fit(tmp_path / "a", labels, folds))
    for node in [v for v in (2, 5, 20, 21, 33) if labels[v] >= 0]:
        other = labels.copy()
        other[node] = (labels[node] + 1) % 3
        (after,) = means(adjacency, first_fit(tmp_path / f"b{node}", other, folds))
        hiding = ~VARIANTS.visible()[:, folds[node]]
        np.testing.assert_array_equal(after[:, hiding], before[:, hiding])
        assert not np.array_equal(after[:, ~hiding], before[:, ~hiding])


@pytest.mark.parametrize("threads", [1, 3])
def test_fits_next_to_each_other_have_the_bits_of_each_alone(tmp_path, threads):
    adjacency, labels, folds = sample(True)
    turned = FirstStage(BLOCKS, -FIRST.coef, FIRST.intercept)
    fits = (
        first_fit(tmp_path / "a", labels, folds),
        first_fit(tmp_path / "b", labels, folds[::-1].copy(), turned),
    )
    alone = [means(adjacency, fit)[0] for fit in fits]
    for found, expected in zip(
        means(adjacency, *fits, threads=threads), alone, strict=True
    ):
        np.testing.assert_array_equal(found, expected)
