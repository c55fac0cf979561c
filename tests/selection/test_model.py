"""The selection model: its optimum, invariances and recovered parameters."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize

from tests.selection.simulated import draw_world, label, rows_of
from xnq_dist.selection.model import Terms, contrasts, fit_model, plain_terms
from xnq_dist.selection.place import place_terms
from xnq_dist.selection.scored_rows import Place, ScoredRows


def slow_objective(
    point, rows: ScoredRows, terms: Terms, spread: float | None
) -> float:
    """The definition, node by node."""
    n = rows.n_classes
    a, s = point[:n], point[n]
    beta = point[n + 1 : 2 * n] if spread else np.zeros(n - 1)
    b = contrasts(n) @ beta
    effects = point[2 * n :] if spread else point[n + 1 :]
    total = 0.0
    for i in range(len(rows.labels)):
        weights = np.exp(a + s * np.log(rows.posteriors[i]))
        p = weights / weights.sum()
        g = terms.dense[i] @ effects[: terms.dense.shape[1]]
        begin = terms.dense.shape[1]
        for factor in terms.factors:
            row = factor[[i]].toarray()[0]
            g += row @ effects[begin : begin + len(row)]
            begin += len(row)
        eta = g - np.log((p * np.exp(-b)).sum())
        if rows.labels[i] >= 0:
            total += np.log(p[rows.labels[i]]) - np.log1p(np.exp(-eta))
        else:
            total += -np.log1p(np.exp(eta))
    total -= 0.5 * (a @ a) + 2 * (s - 1) ** 2
    if spread:
        total -= 0.5 * beta @ beta / spread**2
    total -= 0.5 * (effects[: len(terms.precision)] ** 2) @ terms.precision
    begin = terms.dense.shape[1]
    for factor, variance in zip(terms.factors, terms.spreads, strict=True):
        size = factor.shape[1]
        total -= 0.5 * (effects[begin : begin + size] ** 2).sum() / variance
        begin += size
    return float(total)


def small(n_classes: int, seed: int = 0) -> ScoredRows:
    world = draw_world(seed, 120, n_classes)
    odds = np.where(world.classes == 0, 4.0, 1.0)
    return rows_of(world, label(world, odds, 0.4))


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("spread", [None, 1.0])
@pytest.mark.parametrize("with_place", [False, True])
def test_the_fit_is_the_optimum_that_a_general_optimiser_finds(
    n_classes, spread, with_place
):
    rows = small(n_classes)
    terms = plain_terms(rows.folds)
    if with_place:
        terms = place_terms(rows.folds, rows.place, rows.labelled)
        few = tuple(factor[:, :6] for factor in terms.factors)
        terms = Terms(terms.dense, terms.precision, few, (0.3,) * len(few))
    found = fit_model(rows, terms, spread)
    assert found.converged
    basis = contrasts(n_classes)
    own = [found.shift, [found.slope]]
    own += [basis.T @ found.bias] if spread else []
    point = np.concatenate([*own, found.effects])
    slow = slow_objective(point, rows, terms, spread)
    assert found.objective == pytest.approx(slow, abs=1e-8)
    best = minimize(
        lambda v: -slow_objective(v, rows, terms, spread),
        point + 0.01,
        method="L-BFGS-B",
        options={"maxfun": 4000},
    )
    assert found.objective >= -best.fun - 1e-5
    np.testing.assert_allclose(
        best.x[: 2 * n_classes], point[: 2 * n_classes], atol=0.02
    )
    assert abs(found.bias.sum()) < 1e-12


def test_fits_are_the_same_in_any_order_of_nodes():
    rows = small(3)
    order = np.random.default_rng(2).permutation(len(rows.labels))
    place = Place(
        tuple(codes[order] for codes in rows.place.groups),
        rows.place.degree[order],
        rows.place.rates[order],
    )
    moved = ScoredRows(
        rows.posteriors[order], rows.labels[order], rows.folds[order], place
    )
    found = [
        fit_model(r, place_terms(r.folds, r.place, r.labelled), 1.0)
        for r in (rows, moved)
    ]
    np.testing.assert_allclose(found[1].bias, found[0].bias, atol=1e-6)
    assert found[1].objective == pytest.approx(found[0].objective, abs=1e-6)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_bias_by_class_is_recovered_within_its_error(n_classes):
    away = []
    for seed in range(12):
        world = draw_world(seed, 4000, n_classes)
        bias = np.linspace(0.8, -0.8, n_classes)
        rows = rows_of(world, label(world, np.exp(bias)[world.classes]))
        found = fit_model(rows, plain_terms(rows.folds), 3.0)
        sd = np.sqrt(np.diag(found.covariance))
        away.append((found.bias - bias) / sd)
    assert np.abs(np.mean(away)) < 1.0
    assert 0.5 < np.sqrt(np.mean(np.square(away))) < 1.5


def test_bias_is_zero_for_selection_by_scores():
    """Log-odds of selection follow the group; classes differ between groups."""
    away = []
    for seed in range(8):
        world = draw_world(seed, 4000)
        level = np.random.default_rng(seed).normal(0, 1, 25)[world.groups]
        rows = rows_of(world, label(world, np.exp(level)))
        terms = place_terms(rows.folds, rows.place, rows.labelled)
        found = fit_model(rows, terms, 3.0)
        away.append(found.bias[1] / np.sqrt(found.covariance[1, 1]))
    assert np.sqrt(np.mean(np.square(away))) < 2


def test_contrasts_are_orthonormal_and_sum_to_zero():
    for n_classes in (2, 3, 7):
        basis = contrasts(n_classes)
        np.testing.assert_allclose(basis.sum(axis=0), 0, atol=1e-12)
        np.testing.assert_allclose(basis.T @ basis, np.eye(n_classes - 1), atol=1e-12)
