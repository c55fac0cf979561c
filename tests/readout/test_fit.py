import numpy as np
import pytest

from tests.readout.samples import fit_readout_arrays, states
from xnq_dist.core.errors import InputError
from xnq_dist.core.sections import ReadoutSettings
from xnq_dist.readout import logistic
from xnq_dist.readout.calibration import quality
from xnq_dist.readout.folds import plan_folds
from xnq_dist.readout.logistic import GRID, decision, fit, row_losses
from xnq_dist.readout.select import COSTS, out_of_fold_log_loss

SELECT = ReadoutSettings()
GIVEN = ReadoutSettings(C=1.0, folds=4)


def roles_of(rows, seed=0):
    """Two thirds train, the rest calibration, one row in ten without a role."""
    rng = np.random.default_rng(seed)
    return rng.choice(np.array([0, 0, 0, 0, 0, 0, 1, 1, 1, -1], np.int8), rows)


@pytest.mark.parametrize("classes", [2, 3])
def test_cross_fitting_against_the_slow_way(classes):
    x, y = states(150, 15, classes)
    found = fit_readout_arrays(x, y, None, classes, GIVEN, 3)
    np.testing.assert_array_equal(found.saved["held"], np.arange(150))
    for fold in range(4):
        inside = found.folds != fold
        model = fit(x[inside], y[inside], classes, 1.0)
        expected = decision(model, x[~inside])
        np.testing.assert_allclose(found.logits[~inside], expected, atol=2e-3)
    whole = fit(x, y, classes, 1.0)
    np.testing.assert_allclose(found.model.coef, whole.coef, atol=1e-4)
    np.testing.assert_allclose(found.facts["prior"], np.bincount(y) / 150)
    expected = found.calibration.apply(found.logits)
    np.testing.assert_array_equal(found.saved["posteriors"], expected)


def test_selected_strength_has_the_lowest_out_of_fold_log_loss():
    x, y = states(200, 60, 2, signal=0.3)
    found = fit_readout_arrays(x, y, None, 2, SELECT, 0)
    losses = {}
    for C in GRID:
        total = 0.0
        for fold in range(5):
            inside = found.folds != fold
            model = fit(x[inside], y[inside], 2, C)
            total += row_losses(decision(model, x[~inside]), y[~inside]).sum()
        losses[C] = total / 200
    assert found.facts["C"] == min(losses, key=losses.get)


def test_roles_keep_training_and_calibration_apart():
    x, y = states(300, 12, 2)
    roles = roles_of(300)
    found = fit_readout_arrays(x, y, roles, 2, ReadoutSettings(C=0.5), 0)
    expected = fit(x[roles == 0], y[roles == 0], 2, 0.5)
    # Not its bits: the fit starts from that of a fold.
    np.testing.assert_allclose(found.model.coef, expected.coef, atol=1e-4)
    np.testing.assert_array_equal(found.saved["trained"], np.flatnonzero(roles == 0))
    np.testing.assert_array_equal(
        found.logits[roles != 0], decision(found.model, x[roles != 0])
    )
    np.testing.assert_allclose(
        found.facts["prior"], np.bincount(y[roles == 1]) / sum(roles == 1)
    )
    # A calibration label moves the calibration and nothing else.
    flipped = np.where(roles == 1, 1 - y, y).astype(np.int32)
    other = fit_readout_arrays(x, flipped, roles, 2, ReadoutSettings(C=0.5), 0)
    np.testing.assert_array_equal(other.model.coef, found.model.coef)
    assert (other.calibration.offset != found.calibration.offset).any()
    # A label without a role moves nothing.
    flipped = np.where(roles == -1, 1 - y, y).astype(np.int32)
    other = fit_readout_arrays(x, flipped, roles, 2, ReadoutSettings(C=0.5), 0)
    np.testing.assert_array_equal(other.model.coef, found.model.coef)
    np.testing.assert_array_equal(other.calibration.offset, found.calibration.offset)


def test_with_roles_strength_is_selected_inside_the_training_nodes():
    x, y = states(300, 12, 2)
    roles = roles_of(300)
    found = fit_readout_arrays(x, y, roles, 2, SELECT, 0)
    assert ((found.folds >= 0) == (roles == 0)).all()
    shuffled = np.where(roles == 0, y, np.roll(y, 1)).astype(np.int32)
    other = fit_readout_arrays(x, shuffled, roles, 2, SELECT, 0)
    assert other.facts["C"] == found.facts["C"]
    np.testing.assert_array_equal(other.model.coef, found.model.coef)


@pytest.mark.parametrize(
    ("kind", "from_training"),
    [("none", True), ("temperature", True), ("bcts", False), ("platt", False)],
)
def test_prior_is_that_of_the_labels_that_fitted_the_proportions(kind, from_training):
    x, y = states(300, 6, 2)
    roles = np.where(np.arange(300) % 3 == 0, np.where(y == 1, 1, 0), 0).astype(np.int8)
    roles[:6] = [1, 1, 0, 0, 1, 1]
    settings = ReadoutSettings(C=1.0, calibration=kind)
    found = fit_readout_arrays(x, y, roles, 2, settings, 0)
    rows = y[roles == (0 if from_training else 1)]
    np.testing.assert_allclose(found.facts["prior"], np.bincount(rows) / len(rows))


def test_training_roles_alone_suffice_when_calibration_is_off():
    x, y = states(100, 6, 2)
    roles = np.zeros(100, np.int8)
    settings = ReadoutSettings(calibration="none")
    found = fit_readout_arrays(x, y, roles, 2, settings, 0)
    losses = row_losses(found.logits, y)
    assert found.facts["log_loss"] == pytest.approx(losses.mean(), rel=1e-5)
    with pytest.raises(InputError, match="class 0 has no calibration node"):
        fit_readout_arrays(x, y, roles, 2, SELECT, 0)


def test_a_class_without_enough_nodes_is_refused_by_name():
    x, y = states(40, 5, 2)
    y = np.append(np.zeros(39, np.int32), np.int32(1))
    with pytest.raises(InputError, match="class 1 has one labelled node"):
        fit_readout_arrays(x, y, None, 2, SELECT, 0)
    with pytest.raises(InputError, match="class 'rare' has one labelled node"):
        plan_folds(y, None, ["common", "rare"], 5, 0)
    with pytest.raises(InputError, match="class 2 has no labelled node"):
        fit_readout_arrays(x, np.arange(40) % 2, None, 3, SELECT, 0)


@pytest.mark.parametrize("classes", [2, 4])
def test_two_labelled_nodes_a_class_are_enough(classes):
    x, _ = states(2 * classes, 30, classes)
    y = np.tile(np.arange(classes), 2).astype(np.int32)
    for kind in ("bcts", "platt", "platt_logit", "temperature", "none"):
        found = fit_readout_arrays(
            x, y, None, classes, ReadoutSettings(calibration=kind), 0
        )
        assert found.folds.max() == 1
        assert np.isfinite(found.saved["posteriors"]).all()


def test_diagnostics_report_the_measured_quality():
    x, y = states(400, 10, 2)
    found = fit_readout_arrays(x, y, None, 2, SELECT, 0)
    figures = found.facts
    posterior = found.saved["posteriors"].astype(np.float64)
    assert figures["accuracy"] == pytest.approx((posterior.argmax(1) == y).mean())
    expected = -np.log(posterior[np.arange(400), y]).mean()
    assert figures["log_loss"] == pytest.approx(expected)
    assert figures["log_loss"] <= row_losses(found.logits, y).mean() + 1e-6
    other, curve = figures["reliability"]
    assert other["count"] == curve["count"][::-1]
    assert sum(curve["count"]) == 400
    inside = (posterior[:, 1] >= 0.9) & (posterior[:, 1] <= 1)
    assert curve["count"][9] == inside.sum()
    assert curve["predicted"][9] == pytest.approx(posterior[inside, 1].mean())
    assert curve["observed"][9] == pytest.approx(y[inside].mean())
    prior = -np.log(np.bincount(y) / 400)[y]
    losses = -np.log(posterior[np.arange(400), y])
    rng = np.random.default_rng(0)
    drawn = rng.integers(0, 400, (2000, 400))
    ratios = 1 - losses[drawn].mean(axis=1) / prior[drawn].mean(axis=1)
    assert figures["skill"]["value"] == pytest.approx(1 - losses.mean() / prior.mean())
    ends = [figures["skill"][name] for name in ("lower", "upper")]
    np.testing.assert_allclose(ends, np.quantile(ratios, [0.025, 0.975]), atol=0.02)
    constant = quality(np.full((4, 2), 0.5, np.float32), y[:4], np.ones(4))
    assert constant["reliability"][1]["predicted"].count(None) == 9


def test_a_fold_that_failed_to_converge_is_reported(monkeypatch, caplog):
    monkeypatch.setattr(logistic, "ROUNDS", 2)
    monkeypatch.setattr(logistic, "REFRESHES", 0)
    x, y = states(60, 5, 2)
    fit_readout_arrays(x, y, None, 2, GIVEN, 0)
    assert "5 of 5 fits of the readout did not converge (C up to 1)" in caplog.text


def test_out_of_fold_log_loss_is_that_of_the_best_strength():
    x, y = states(250, 40, 3)
    folds = plan_folds(y, None, range(3), 5, 2)
    loss, error = out_of_fold_log_loss(x, y, folds, 3)
    each = [
        row_losses(fit_readout_arrays(x, y, None, 3, settings, 2).logits, y)
        for settings in (ReadoutSettings(C=C) for C in COSTS)
    ]
    best = min(each, key=np.mean)
    assert loss == pytest.approx(best.mean(), rel=1e-4)
    assert error == pytest.approx(best.std(ddof=1) / np.sqrt(250), rel=1e-3)
    assert loss < 1.0986
    noise = np.random.default_rng(0).standard_normal(x.shape).astype(np.float32)
    assert out_of_fold_log_loss(noise, y, folds, 3)[0] > loss + error
