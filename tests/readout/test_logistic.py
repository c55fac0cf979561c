"""The solver against scikit-learn and SciPy, and the same bits everywhere."""

import logging
import warnings
from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import log_softmax, softmax
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression

from tests.readout.samples import fit_smooth, states
from xnq_dist.core.errors import InputError
from xnq_dist.readout import logistic, objective
from xnq_dist.readout.logistic import (
    FitJob,
    decision,
    fit,
    fit_jobs,
    row_losses,
    warn_of_unconverged,
)
from xnq_dist.readout.objective import CONVERGED, Rows
from xnq_dist.readout.regularisation import held_out


def mean_objective(coef, intercept, x, y, C, weights=1.0):
    """Mean log-loss plus penalty, slow and obvious; a binary model has one weight."""
    scores = x.astype(np.float64) @ coef.T + intercept
    losses = -log_softmax(scores, axis=1)[np.arange(len(y)), y]
    weights = np.broadcast_to(weights, len(y))
    return (weights @ losses + (coef**2).sum() / (2 * C)) / weights.sum()


def sklearn_fit(x, y, C):
    """Weights and intercepts, a row a class, at a tight tolerance."""
    model = LogisticRegression(C=C, tol=1e-10, max_iter=100_000, solver="newton-cg")
    with warnings.catch_warnings():
        # Its line search ends at rounding, before such a tolerance.
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(x.astype(np.float64), y)
    coef, intercept = model.coef_, model.intercept_
    if len(coef) == 1:
        coef = np.concatenate([0 * coef, coef])
        intercept = np.concatenate([[0.0], intercept])
    return coef, intercept


def assert_optimum(model, x, y, C):
    """The loss to a millionth, posteriors to 1e-4."""
    expected = sklearn_fit(x, y, C)
    found = mean_objective(model.coef, model.intercept, x, y, C)
    assert found == pytest.approx(mean_objective(*expected, x, y, C), rel=1e-6)
    posterior = softmax(x.astype(np.float64) @ expected[0].T + expected[1], axis=1)
    own = softmax(decision(model, x), axis=1)
    np.testing.assert_allclose(own, posterior, atol=1e-4)


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize(
    ("rows", "width", "signal", "C"),
    [
        (400, 12, 0.4, 0.01),
        (400, 12, 0.4, 100.0),
        (400, 120, 0.4, 1.0),
        # More columns than rows, and separable classes.
        (60, 150, 2.0, 10.0),
        (60, 150, 2.0, 1000.0),
    ],
)
def test_optimum_is_scikit_learns(classes, rows, width, signal, C):
    x, y = states(rows, width, classes, signal=signal)
    model = fit(x, y, classes, C)
    assert model.converged
    assert model.coef.shape == (classes, width)
    assert_optimum(model, x, y, C)
    if classes == 2:
        assert not model.coef[0].any()
        assert model.intercept[0] == 0.0


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("C", [1.0, 100.0])
def test_fits_that_others_build_on_end_near_the_optimum(classes, C):
    x, y = states(400, 120, classes)
    tight = Rows(x, y, np.zeros(400, np.int32), classes)
    rows = tight, replace(tight, tolerance=CONVERGED)
    near = [fit_jobs([FitJob(each, (), C)])[0] for each in rows]
    assert all(model.converged for model in near)
    losses = [mean_objective(m.coef, m.intercept, x, y, C) for m in near]
    assert losses[1] == pytest.approx(losses[0], rel=1e-6)
    posteriors = [softmax(decision(model, x), axis=1) for model in near]
    np.testing.assert_allclose(*posteriors, atol=2e-3)


@pytest.mark.parametrize("classes", [2, 4])
def test_smooth_fits_add_half_a_label_of_each_class_at_the_mean(classes):
    x, y = states(150, 6, classes)
    x = x.astype(np.float64)
    more = np.tile(x.mean(axis=0), (classes, 1))
    x_all, y_all = np.concatenate([x, more]), np.r_[y, np.arange(classes)]
    weights = np.r_[np.ones(150), np.full(classes, 0.5)]

    def value(flat):
        coef, intercept = flat[:-classes].reshape(classes, 6), flat[-classes:]
        return mean_objective(coef, intercept, x_all, y_all, 0.7, weights)

    model = fit_smooth(x, y, classes, 0.7 if classes > 2 else 1.4)
    # With a weight vector for both of two classes each takes half, at twice the C.
    found = minimize(value, np.zeros(7 * classes), tol=1e-14, options={"gtol": 1e-7})
    coef = found.x[:-classes].reshape(classes, 6)
    expected = x @ coef.T + found.x[-classes:]
    np.testing.assert_allclose(
        softmax(decision(model, x), axis=1), softmax(expected, axis=1), atol=1e-4
    )


@pytest.mark.parametrize(("fit", "half"), [(fit, 0.0), (fit_smooth, 0.5)])
def test_columns_without_information_weigh_nothing(fit, half):
    x, y = states(200, 12, 2)
    constant, zero = np.full((200, 1), 7.5, np.float32), np.zeros((200, 3), np.float32)
    more = np.concatenate([x[:, :5], constant, zero, x[:, 5:], x[:, :1]], axis=1)
    model = fit(more, y, 2, 1.0)
    assert model.converged
    np.testing.assert_allclose(model.coef[:, 5:9], 0.0, atol=1e-9)
    # A column and its copy share the weight.
    np.testing.assert_allclose(model.coef[:, 0], model.coef[:, -1], atol=1e-5)
    nothing = fit(zero, y, 2, 1.0)
    assert nothing.converged
    share = softmax(decision(nothing, zero), axis=1)[0, 1]
    assert share == pytest.approx((y.sum() + half) / (200 + 2 * half), abs=1e-4)


@pytest.mark.parametrize("mean", [1e3, 1e6])
@pytest.mark.parametrize("C", [1.0, 1e5])
def test_a_far_mean_changes_the_intercept_alone(mean, C):
    x, y = states(300, 24, 3)
    x = x.astype(np.float64)
    near, far = fit(x, y, 3, C), fit(x + mean, y, 3, C)
    assert far.converged
    np.testing.assert_allclose(
        softmax(decision(far, x + mean), axis=1),
        softmax(decision(near, x), axis=1),
        atol=1e-4,
    )


def test_one_class_alone_has_a_finite_model_when_smooth():
    x, _ = states(40, 5, 2)
    model = fit_smooth(x, np.ones(40, np.int32), 3, 1.0)
    assert model.converged
    posterior = softmax(decision(model, x), axis=1)
    # Half a label of each class, and forty of the second, at about the mean.
    np.testing.assert_allclose(posterior.mean(axis=0)[[0, 2]], 0.5 / 41.5, rtol=0.05)
    folds = np.r_[np.zeros(39, np.int32), np.int32(1)]
    rows = Rows(x, np.ones(40, np.int32), folds, 2, smooth=True)
    empty = fit_jobs([FitJob(rows, (0, 1), 1.0)])[0]
    assert empty.converged
    assert not empty.coef.any()
    assert not empty.intercept.any()


def test_penalties_of_columns_are_those_of_scaled_columns():
    x, y = states(300, 10, 3)
    scale = np.geomspace(0.1, 10, 10)
    rows = Rows(x, y, np.zeros(300, np.int32), 3)
    (raw,) = fit_jobs([FitJob(replace(rows, penalty=scale**2), (), 2.0)])
    scaled = fit(x / scale, y, 3, 2.0)
    np.testing.assert_allclose(raw.coef, scaled.coef / scale, atol=1e-4)


@pytest.mark.parametrize("classes", [2, 4])
def test_folds_are_fits_of_the_other_rows(classes, monkeypatch):
    x, y = states(900, 15, classes)
    folds = (np.arange(900) % 4 - 1).astype(np.int32)
    rows = Rows(x, y, folds, classes)
    # With few labels the last fold may have no rows.
    hidden = [(0,), (1,), (2,), (0, 2), (), (3,)]
    with monkeypatch.context() as patch:
        patch.setattr(objective, "VALUES", 64 * 15)
        found = fit_jobs([FitJob(rows, each, 0.5) for each in hidden])
    for each, one in zip(hidden, found, strict=True):
        seen = (folds >= 0) & ~np.isin(folds, each)
        alone = fit(x[seen], y[seen], classes, 0.5)
        np.testing.assert_allclose(one.coef, alone.coef, atol=1e-4)
    logits = held_out([rows] * 3, found[:3])
    for fold, one in enumerate(found[:3]):
        own = decision(one, x[folds == fold])
        np.testing.assert_array_equal(logits[folds == fold], own)
    assert not logits[folds < 0].any()


@pytest.mark.parametrize("classes", [2, 3])
def test_fits_have_the_same_bits_alone_and_together(classes, monkeypatch):
    monkeypatch.setattr(objective, "VALUES", 64 * 40)
    x, y = states(500, 40, classes, signal=1.0)
    folds = (np.arange(500) % 5).astype(np.int32)
    weights = np.random.default_rng(0).random(500)
    rows = Rows(x, y, folds, classes, weights)
    jobs = [FitJob(rows, (fold,), C) for C in (0.1, 1000.0) for fold in range(5)]
    together = fit_jobs(jobs, 3)
    for job, one in zip(jobs, together, strict=True):
        (alone,) = fit_jobs([job])
        np.testing.assert_array_equal(alone.coef, one.coef)
        np.testing.assert_array_equal(alone.intercept, one.intercept)


def test_a_warm_start_changes_only_the_path():
    x, y = states(300, 100, 4)
    start = fit(x, y, 4, 0.1)
    kept = start.coef.copy()
    rows = Rows(x, y, np.zeros(300, np.int32), 4)
    cold, warm = (
        fit_jobs([FitJob(rows, (), 0.3, model)])[0] for model in (None, start)
    )
    np.testing.assert_array_equal(start.coef, kept)
    np.testing.assert_allclose(warm.coef, cold.coef, atol=2e-4)
    np.testing.assert_allclose(warm.intercept, cold.intercept, atol=2e-4)


def test_fits_that_do_not_converge_are_counted_in_one_warning(monkeypatch, caplog):
    monkeypatch.setattr(logistic, "ROUNDS", 2)
    monkeypatch.setattr(logistic, "REFRESHES", 1)
    x, y = states(300, 20, 3)
    with caplog.at_level(logging.WARNING):
        model = fit(x, y, 3, 100.0)
        assert not model.converged
        warn_of_unconverged([model, replace(model, converged=True), model])
        warn_of_unconverged([replace(model, converged=True)])
    (record,) = caplog.records
    assert "2 of 3 fits of the readout did not converge" in record.message


def test_classes_without_a_row_are_refused():
    x, y = states(50, 4, 2)
    with pytest.raises(InputError, match=r"3 classes cannot be fitted to .* \[0, 1\]"):
        fit(x, y, 3, 1.0)
    with pytest.raises(InputError, match="1 classes"):
        fit(x, np.zeros(50, np.int32), 1, 1.0)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("classes", [2, 3])
def test_a_rows_logits_are_independent_of_its_place(dtype, classes):
    x, y = states(700, 33, classes)
    x = x.astype(dtype)
    model = fit(x, y, classes, 1.0)
    whole = decision(model, x)
    assert whole.dtype == np.float64
    for cut in (1, 255, 256, 300, 699):
        np.testing.assert_array_equal(whole[:cut], decision(model, x[:cut]))
        np.testing.assert_array_equal(whole[cut:], decision(model, x[cut:]))
    plain = x.astype(np.float64) @ model.coef.T + model.intercept
    np.testing.assert_allclose(whole, plain, atol=1e-9)


def test_row_losses_of_saturated_logits_are_finite():
    logits = np.array([[0.0, 2000.0], [0.0, 2000.0], [0.0, 0.0]])
    losses = row_losses(logits, np.array([0, 1, 1], np.int32))
    np.testing.assert_allclose(losses, [2000.0, 0.0, np.log(2)])
