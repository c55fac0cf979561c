"""Sums over row blocks and the L-BFGS that is driven by them."""

import numpy as np
import pytest
from scipy.optimize import check_grad

from tests.readout.samples import states
from tests.readout.test_logistic import objective, sklearn_objective
from xnq_dist.readout import row_blocks
from xnq_dist.readout.lbfgs import minimise
from xnq_dist.readout.logistic import fit
from xnq_dist.readout.row_blocks import (
    WHOLE,
    Problem,
    add_moments,
    fit_problems,
    fold_logits,
    group_moments,
    group_terms,
)


def in_groups(x, y, folds, size):
    """The pass over the rows, and their moments."""
    cuts = [slice(at, at + size) for at in range(0, len(x), size)]

    def evaluate(problems):
        return [group_terms(x[cut], y[cut], folds[cut], problems) for cut in cuts]

    moments = [group_moments(x[cut], folds[cut]) for cut in cuts]
    return evaluate, add_moments(None, moments)


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("C", [0.01, 1.0, 100.0])
def test_optimum_is_scikit_learns(classes, C):
    x, y = states(3000, 40, classes)
    evaluate, moments = in_groups(x, y, np.zeros(3000, np.int32), 700)
    model = fit_problems(evaluate, moments, {WHOLE: 3000}, classes, C)[WHOLE]
    assert model.converged
    found = objective(model.coef, model.intercept, x, y, C)
    assert found == pytest.approx(sklearn_objective(x, y, C), rel=1e-6)


def test_wide_embeddings_take_the_way_without_a_covariance(monkeypatch):
    monkeypatch.setattr(row_blocks, "WIDEST", 8)
    x, y = states(500, 20, 2)
    evaluate, moments = in_groups(x, y, np.zeros(500, np.int32), 200)
    assert moments.products.shape == (20,)
    model = fit_problems(evaluate, moments, {WHOLE: 500}, 2, 1.0)[WHOLE]
    found = objective(model.coef, model.intercept, x, y, 1.0)
    assert found == pytest.approx(sklearn_objective(x, y, 1.0), rel=1e-6)


@pytest.mark.parametrize("classes", [2, 4])
def test_folds_side_by_side_are_folds_alone(classes):
    x, y = states(900, 15, classes)
    folds = (np.arange(900) % 4 - 1).astype(np.int32)
    evaluate, moments = in_groups(x, y, folds, 250)
    used = folds >= 0
    counts = {fold: int((used & (folds != fold)).sum()) for fold in (0, 1, 2)}
    models = fit_problems(evaluate, moments, counts, classes, 0.5)
    for fold, model in models.items():
        rows = used & (folds != fold)
        alone = fit(x[rows], y[rows], classes, 0.5)
        np.testing.assert_allclose(model.coef, alone.coef, atol=2e-4)
    warm = fit_problems(evaluate, moments, counts, classes, 0.5, models)
    np.testing.assert_allclose(warm[1].coef, models[1].coef, atol=1e-4)


def test_shape_of_the_groups_or_their_products_moves_the_sums(monkeypatch):
    x, y = states(300, 6, 3)
    folds = (np.arange(300) % 2).astype(np.int32)
    problem = Problem(1, np.ones((3, 6)), np.arange(3.0))
    (whole,) = group_terms(x, y, folds, [problem])
    monkeypatch.setattr(row_blocks, "PRODUCT_ROWS", 64)
    (blocks,) = group_terms(x, y, folds, [problem])
    own = folds != 1
    (rows,) = group_terms(x[own], y[own], folds[own], [problem])
    for terms in (blocks, rows):
        assert terms.loss == pytest.approx(whole.loss, rel=1e-12)
        np.testing.assert_allclose(terms.coef, whole.coef, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(terms.intercept, whole.intercept, atol=1e-9)


@pytest.mark.parametrize("k", [1, 3])
def test_gradient_is_not_that_of_the_loss(k):
    x, y = states(60, 4, max(k, 2))
    folds = np.zeros(60, np.int32)

    def terms(flat):
        point = flat.reshape(k, 5)
        return group_terms(x, y, folds, [Problem(WHOLE, point[:, :4], point[:, 4])])[0]

    def slope(flat):
        found = terms(flat)
        return np.concatenate([found.coef, found.intercept[:, None]], axis=1).ravel()

    at = np.linspace(-1, 1, 5 * k)
    assert check_grad(lambda flat: terms(flat).loss, slope, at) < 1e-4


def test_logits_of_held_rows_are_by_another_fold():
    x, y = states(40, 5, 2)
    folds = (np.arange(40) % 3 - 1).astype(np.int32)
    models = [fit(x, y, 2, C) for C in (0.1, 10.0)]
    logits, losses = fold_logits(x, y, folds, models)
    assert np.isnan(logits[folds < 0]).all()
    one = x[folds == 1].astype(float) @ models[1].coef.T + models[1].intercept
    np.testing.assert_allclose(logits[folds == 1], one, atol=1e-6)
    margin = one[:, 1] - one[:, 0]
    sign = np.where(y[folds == 1] == 1, 1, -1)
    assert losses[1] == pytest.approx(np.logaddexp(0, -sign * margin).sum(), rel=1e-6)


def drive(search, evaluate):
    """What a search found, and how often it asked."""
    point, asked = next(search), 0
    while True:
        asked += 1
        try:
            point = search.send(evaluate(point))
        except StopIteration as ended:
            return ended.value, asked


def test_minimum_of_a_steep_valley_is_missed():
    scales = np.array([1.0, 1e4, 1e-2])
    target = np.array([1.0, -2.0, 3.0])

    def evaluate(point):
        gap = point - target
        return float(scales @ gap**2) / 2, scales * gap

    found, asked = drive(minimise(np.zeros(3), lambda g: g, 1e-9), evaluate)
    assert found.slope <= 1e-9
    assert found.rounds == asked < 60
    np.testing.assert_allclose(found.point, target, atol=1e-6)
