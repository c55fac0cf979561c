import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.optimize import minimize
from scipy.special import expit, softmax

from tests.readout.samples import biased_logits
from xnq_dist.readout.calibration import FLOOR, KINDS, Calibration, fit_calibration
from xnq_dist.readout.saved import flat, nested


def mean_loss(posterior, labels):
    return -np.log(posterior[np.arange(len(labels)), labels]).mean()


def plain_bcts(logits, labels, with_bias):
    """softmax(log p / T + b) by Nelder-Mead on the printed formula."""
    log_p = np.log(softmax(logits, axis=1))
    classes = logits.shape[1]

    def loss(point):
        bias = np.append(0, point[1:]) if with_bias else np.zeros(classes)
        return mean_loss(softmax(log_p / np.exp(point[0]) + bias, axis=1), labels)

    start = np.zeros(classes if with_bias else 1)
    options = {"xatol": 1e-8, "fatol": 1e-13, "maxiter": 20_000, "maxfev": 20_000}
    found = minimize(loss, start, method="Nelder-Mead", options=options)
    bias = np.append(0, found.x[1:]) if with_bias else np.zeros(classes)
    return float(np.exp(found.x[0])), bias, float(found.fun)


def plain_platt(score, positive):
    """a, b of 1 / (1 + exp(a y + b)) by BFGS on Platt's own targets."""
    yes, no = positive.sum(), (~positive).sum()
    target = np.where(positive, (yes + 1) / (yes + 2), 1 / (no + 2))

    def loss(point):
        p = expit(-(point[0] * score + point[1]))
        return -np.mean(target * np.log(p) + (1 - target) * np.log(1 - p))

    found = minimize(loss, np.zeros(2), method="Nelder-Mead", tol=1e-12)
    return found.x


@pytest.mark.parametrize(
    ("kind", "classes"), [("bcts", 2), ("bcts", 3), ("temperature", 3)]
)
def test_temperature_and_bias_are_the_maximum_of_the_printed_likelihood(kind, classes):
    logits, labels = biased_logits(1500, classes, 1.7, [0.0, 0.8, -0.5][:classes])
    found = fit_calibration(kind, logits, labels)
    temperature, bias, loss = plain_bcts(logits, labels, kind == "bcts")
    np.testing.assert_allclose(1 / found.slope, temperature, rtol=1e-3)
    np.testing.assert_allclose(found.offset, bias, atol=1e-3)
    assert found.offset[0] == 0.0
    assert mean_loss(found.apply(logits), labels) == pytest.approx(loss, abs=1e-6)


@pytest.mark.parametrize("kind", ["platt", "platt_logit"])
def test_platt_is_the_textbook_minimum(kind):
    logits, labels = biased_logits(500, 2, 1.5, [0.0, -0.7])
    found = fit_calibration(kind, logits, labels)
    margin = logits[:, 1] - logits[:, 0]
    score = expit(margin) if kind == "platt" else margin
    a, b = plain_platt(score, labels == 1)
    assert found.slope[1] == pytest.approx(-a, abs=2e-4)
    assert found.offset[1] == pytest.approx(-b, abs=2e-4)
    expected = expit(-(a * score + b))
    np.testing.assert_allclose(found.apply(logits)[:, 1], expected, atol=2e-5)


@pytest.mark.parametrize("kind", ["platt", "platt_logit"])
def test_platt_of_many_classes_is_one_against_the_rest_normalised(kind):
    logits, labels = biased_logits(400, 3, 1.0, [0.0, 0.5, 0.0])
    p = softmax(logits, axis=1)
    score = p if kind == "platt" else np.log(p / (1 - p))
    each = np.empty_like(p)
    for code in range(3):
        a, b = plain_platt(score[:, code], labels == code)
        each[:, code] = expit(-(a * score[:, code] + b))
    expected = each / each.sum(axis=1, keepdims=True)
    found = fit_calibration(kind, logits, labels).apply(logits)
    np.testing.assert_allclose(found, expected, atol=2e-5)


def test_none_is_the_softmax():
    logits, labels = biased_logits(50, 3, 1.0, [0.0, 0.0, 0.0])
    found = fit_calibration("none", logits, labels).apply(logits)
    np.testing.assert_allclose(found, softmax(logits, axis=1), rtol=1e-6)


DEGENERATE = {
    "separable": (np.repeat([[0.0, 9.0], [9.0, 0.0]], 20, 0), np.repeat([1, 0], 20)),
    "saturated": (np.repeat([[0.0, 3e3], [3e3, 0.0]], 20, 0), np.repeat([1, 0], 20)),
    "saturated and one wrong": (
        np.repeat([[0.0, 3e3], [3e3, 0.0]], 20, 0),
        np.array([0] + [1] * 19 + [0] * 20),
    ),
    "backwards": (np.repeat([[0.0, 2.0], [2.0, 0.0]], 20, 0), np.repeat([0, 1], 20)),
    "constant": (np.zeros((30, 2)), np.repeat([0, 1], [10, 20])),
    "one class": (np.arange(20.0).reshape(10, 2), np.zeros(10, int)),
    "one row": (np.array([[0.3, -0.2]]), np.array([1])),
}


@pytest.mark.parametrize("name", DEGENERATE)
@pytest.mark.parametrize("kind", KINDS)
def test_degenerate_data_keep_calibrations_finite(kind, name):
    logits, labels = DEGENERATE[name]
    found = fit_calibration(kind, logits, labels.astype(np.int32))
    assert np.isfinite([found.slope, found.offset]).all()
    if kind in ("bcts", "temperature"):
        assert (found.slope > 0).all()
    wild = np.array([[0.0, 1e5], [0.0, -1e5], [0.0, 0.0]])
    for rows in (logits, wild):
        posterior = found.apply(rows)
        assert (posterior > 0).all()
        assert (posterior <= 1).all()
        np.testing.assert_allclose(posterior.sum(axis=1), 1.0, atol=1e-6)


@settings(max_examples=10, deadline=None)
@given(
    logits=arrays(np.float64, (23, 3), elements=st.floats(-500, 500)),
    cut=st.integers(1, 22),
    kind=st.sampled_from(KINDS),
)
def test_rows_are_calibrated_equally_alone_or_together(logits, cut, kind):
    fitted = fit_calibration(kind, *biased_logits(60, 3, 1.5, [0.0, 0.4, 0.1]))
    whole = fitted.apply(logits)
    assert whole.dtype == np.float32
    assert (whole >= FLOOR / 2).all()
    np.testing.assert_allclose(whole.sum(axis=1), 1.0, atol=1e-6)
    np.testing.assert_array_equal(whole[:cut], fitted.apply(logits[:cut]))
    np.testing.assert_array_equal(whole[cut:], fitted.apply(logits[cut:]))


@pytest.mark.parametrize("kind", KINDS)
def test_a_calibration_survives_the_file(kind):
    logits, labels = biased_logits(100, 3, 1.5, [0.0, 0.4, 0.1])
    found = fit_calibration(kind, logits, labels)
    again = Calibration(**nested(flat(vars(found))))
    assert again.kind == kind
    np.testing.assert_array_equal(again.apply(logits), found.apply(logits))


def test_an_unknown_kind_is_refused():
    with pytest.raises(ValueError, match="'beta' is not one of bcts"):
        fit_calibration("beta", np.zeros((2, 2)), np.array([0, 1], np.int32))
