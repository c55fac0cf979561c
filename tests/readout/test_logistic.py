import logging
import threading
import warnings

import numpy as np
import pytest
from scipy.special import log_softmax
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_info

from tests.readout.samples import states
from xnq_dist.errors import InputError
from xnq_dist.readout import logistic
from xnq_dist.readout.logistic import decision, fit, row_losses, solver_guard


def objective(coef, intercept, x, y, C):
    """Mean log-loss plus penalty, slow and obvious; a binary model has one weight."""
    scores = x.astype(np.float64) @ coef.T + intercept
    losses = -log_softmax(scores, axis=1)[np.arange(len(y)), y]
    return losses.mean() + (coef**2).sum() / (2 * C * len(y))


def sklearn_objective(x, y, C):
    model = LogisticRegression(C=C, tol=1e-10, max_iter=100_000, solver="newton-cg")
    model.fit(x.astype(np.float64), y)
    coef, intercept = model.coef_, model.intercept_
    if len(coef) == 1:
        coef = np.concatenate([0 * coef, coef])
        intercept = np.concatenate([[0.0], intercept])
    return objective(coef, intercept, x, y, C)


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("width", [12, 120], ids=["newton", "lbfgs-if-multiclass"])
@pytest.mark.parametrize("C", [0.01, 1.0, 100.0])
def test_optimum_is_scikit_learns(classes, width, C):
    x, y = states(400, width, classes)
    model = fit(x, y, classes, C)
    assert model.converged
    assert model.coef.shape == (classes, width)
    found = objective(model.coef, model.intercept, x, y, C)
    assert found == pytest.approx(sklearn_objective(x, y, C), rel=1e-6)


def test_binary_first_row_is_zero_and_second_is_the_weight():
    x, y = states(100, 8, 2)
    model = fit(x, y, 2, 1.0)
    assert not model.coef[0].any()
    assert model.intercept[0] == 0.0


@pytest.mark.parametrize("classes", [2, 4])
def test_a_warm_start_changes_nothing_but_the_way(classes):
    x, y = states(300, 100, classes)
    start = fit(x, y, classes, 0.1)
    kept = start.coef.copy()
    cold, warm = fit(x, y, classes, 0.3), fit(x, y, classes, 0.3, start)
    np.testing.assert_array_equal(start.coef, kept)
    np.testing.assert_allclose(warm.coef, cold.coef, atol=2e-4)
    np.testing.assert_allclose(warm.intercept, cold.intercept, atol=2e-4)


@pytest.mark.parametrize("classes", [2, 3])
def test_a_rough_fit_loses_less_than_a_millionth(classes):
    x, y = states(500, 60, classes)
    start = fit(x, y, classes, 1.0)
    rough = fit(x, y, classes, 3.0, start, rough=True)
    found = objective(rough.coef, rough.intercept, x, y, 3.0)
    assert found == pytest.approx(sklearn_objective(x, y, 3.0), rel=2e-6)


def test_same_bits_in_threads_that_overlap():
    x, y = states(400, 80, 2)
    expected = fit(x, y, 2, 1.0)
    found = [None] * 6

    def work(place):
        found[place] = fit(x, y, 2, 1.0)

    threads = [threading.Thread(target=work, args=(place,)) for place in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for model in found:
        np.testing.assert_array_equal(model.coef, expected.coef)
        np.testing.assert_array_equal(model.intercept, expected.intercept)


def blas_threads():
    return [i["num_threads"] for i in threadpool_info() if i["user_api"] == "blas"]


def test_guard_holds_until_the_last_thread_is_out_and_puts_all_back():
    before, filters = blas_threads(), list(warnings.filters)
    inside, leave = threading.Event(), threading.Event()

    def stay():
        with solver_guard():
            inside.set()
            leave.wait(10)

    thread = threading.Thread(target=stay)
    with solver_guard():
        thread.start()
        assert inside.wait(10)
    # This thread is out; the other one is not.
    assert set(blas_threads()) == {1}
    warnings.warn("not yet", ConvergenceWarning, stacklevel=1)
    leave.set()
    thread.join()
    assert blas_threads() == before
    assert warnings.filters == filters


def test_a_solver_that_gives_up_says_so_without_a_warning(monkeypatch, caplog):
    rounds = {"newton-cholesky": 1, "lbfgs": 1, "last": 2}
    monkeypatch.setattr(logistic, "_ROUNDS", rounds)
    x, y = states(300, 100, 3)
    with caplog.at_level(logging.WARNING):
        model = fit(x, y, 3, 100.0)
    assert not model.converged
    assert "did not reach its tolerance" in caplog.text


def test_newtons_failure_is_made_good_by_lbfgs(monkeypatch):
    x, y = states(300, 10, 2)
    expected = fit(x, y, 2, 1.0)
    rounds = {**logistic._ROUNDS, "newton-cholesky": 1}
    monkeypatch.setattr(logistic, "_ROUNDS", rounds)
    found = fit(x, y, 2, 1.0)
    assert found.converged
    np.testing.assert_allclose(found.coef, expected.coef, atol=1e-4)


def test_classes_without_a_row_are_refused():
    x, y = states(50, 4, 2)
    with pytest.raises(InputError, match=r"3 classes cannot be fitted to .* \[0, 1\]"):
        fit(x, y, 3, 1.0)
    with pytest.raises(InputError, match="1 classes"):
        fit(x, np.zeros(50, np.int32), 1, 1.0)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("classes", [2, 3])
def test_a_rows_logits_do_not_depend_on_where_it_stands(dtype, classes):
    x, y = states(700, 33, classes)
    x = x.astype(dtype)
    model = fit(x, y, classes, 1.0)
    whole = decision(model, x)
    assert whole.dtype == np.float64
    for cut in (1, 255, 256, 300, 699):
        np.testing.assert_array_equal(whole[:cut], decision(model, x[:cut]))
        np.testing.assert_array_equal(whole[cut:], decision(model, x[cut:], threads=2))
    plain = x.astype(np.float64) @ model.coef.T + model.intercept
    np.testing.assert_allclose(whole, plain, atol=1e-9)


def test_row_losses_of_saturated_logits_are_finite():
    logits = np.array([[0.0, 2000.0], [0.0, 2000.0], [0.0, 0.0]])
    losses = row_losses(logits, np.array([0, 1, 1], np.int32))
    np.testing.assert_allclose(losses, [2000.0, 0.0, np.log(2)])
