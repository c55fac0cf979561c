"""The selection model: its optimum, invariances and recovered parameters."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import log_expit, softmax

from tests.selection.simulated import draw_world, label, rows_of
from xnq_dist.selection.model import Terms, contrasts, fit_model, plain_terms
from xnq_dist.selection.place import place_terms
from xnq_dist.selection.scored_rows import ScoredRows


def objective(point, rows: ScoredRows, terms: Terms, spread: float | None) -> float:
    """The definition."""
    n, known = rows.n_classes, rows.labelled
    a, s = point[:n], point[n]
    beta = point[n + 1 : 2 * n] if spread else np.zeros(n - 1)
    effects = point[2 * n :] if spread else point[n + 1 :]
    p = softmax(a + s * np.log(rows.posteriors), axis=1)
    columns = np.hstack([terms.dense, *(each.toarray() for each in terms.factors)])
    eta = columns @ effects - np.log(p @ np.exp(-contrasts(n) @ beta))
    total = np.log(p[known, rows.labels[known]]).sum()
    total += log_expit(np.where(known, eta, -eta)).sum()
    total -= a @ a / 2 + 2 * (s - 1) ** 2 + beta @ beta / (2 * (spread or 1) ** 2)
    sizes = [each.shape[1] for each in terms.factors]
    variances = np.append(1 / terms.precision, np.repeat(terms.spreads, sizes))
    return float(total - (effects**2 / variances).sum() / 2)


def small(n_classes: int, seed: int = 0) -> ScoredRows:
    world = draw_world(seed, 120, n_classes)
    odds = np.where(world.classes == 0, 4.0, 1.0)
    return rows_of(world, label(world, odds, 0.4))


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("spread", [None, 1.0])
def test_the_fit_is_the_optimum_that_a_general_optimiser_finds(n_classes, spread):
    rows = small(n_classes)
    terms = place_terms(rows)
    few = tuple(factor[:, :6] for factor in terms.factors)
    terms = Terms(terms.dense, terms.precision, few, (0.3,) * len(few))
    found = fit_model(rows, terms, spread)
    assert found.converged
    point = found.point
    if spread:
        own = point[n_classes + 1 : 2 * n_classes]
        np.testing.assert_allclose(contrasts(n_classes) @ own, found.bias)
    rest = rows, terms, spread
    assert found.objective == pytest.approx(objective(point, *rest), abs=1e-8)
    best = minimize(
        lambda v: -objective(v, *rest), point + 0.01, options={"maxiter": 100}
    )
    assert found.objective >= -best.fun - 1e-5
    np.testing.assert_allclose(
        best.x[: 2 * n_classes], point[: 2 * n_classes], atol=0.02
    )
    assert abs(found.bias.sum()) < 1e-12


def test_fits_are_the_same_in_any_order_of_nodes():
    rows = small(3)
    order = np.random.default_rng(2).permutation(len(rows.labels))
    columns = {name: value for name, value in vars(rows).items() if name != "groups"}
    groups = tuple(codes[order] for codes in rows.groups)
    moved = ScoredRows(
        groups=groups, **{name: value[order] for name, value in columns.items()}
    )
    found = [fit_model(r, place_terms(r), 1.0) for r in (rows, moved)]
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
        terms = place_terms(rows)
        found = fit_model(rows, terms, 3.0)
        away.append(found.bias[1] / np.sqrt(found.covariance[1, 1]))
    assert np.sqrt(np.mean(np.square(away))) < 2
