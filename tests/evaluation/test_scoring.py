"""Errors from scores, compared with a loop of QuaPy; AE and RAE."""

from __future__ import annotations

import numpy as np
import pytest

from xnq_dist.core.errors import InputError, SettingsError, StageError
from xnq_dist.core.settings import Settings
from xnq_dist.evaluation.protocol import draw_samples
from xnq_dist.evaluation.scoring import (
    calibrated,
    check_of_samples,
    errors_of,
    estimates,
    quantifiers_for,
)
from xnq_dist.evaluation.task import Scores, Split, Task
from xnq_dist.readout.calibration import KINDS


def made(n=800, n_classes=2, seed=0):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, n_classes, n).astype(np.int32)
    roles = rng.integers(0, 4, (1, n)).astype(np.int8)
    # Normal around corners 2.5 apart: log-odds are 2.5 times the differences.
    logits = 2.5 * (
        rng.standard_normal((n, n_classes)) + 2.5 * np.eye(n_classes)[labels]
    )
    classes = tuple("abcdefg"[:n_classes])
    task = Task("t", classes, labels, (Split(0),), roles)
    held = task.rows(0, "calibration")
    target = task.rows(0, "validation", "test")
    return task, Scores(held, logits[held], target, logits[target])


@pytest.mark.parametrize("n_classes", [2, 4])
@pytest.mark.parametrize("calibration", KINDS)
def test_good_scores_give_small_errors(n_classes, calibration):
    task, scores = made(n_classes=n_classes)
    rows = task.rows(0, "test")
    samples = draw_samples(task.labels[rows], n_classes, "test", 0, 0, 200, 5)
    nodes = calibrated(task, 0, scores, calibration, rows)
    found = estimates(nodes, samples, "sld", Settings())
    plain = estimates(nodes, samples, "cc", Settings())
    error, of_plain = (
        errors_of(samples.prevalence, one, samples.sets.sizes)["ae"].mean()
        for one in (found, plain)
    )
    assert error < 0.06
    assert error < of_plain


def test_prior_is_of_the_labels_that_the_posteriors_stand_for():
    task, scores = made()
    rows = task.rows(0, "test")
    for kind, role in (("bcts", "calibration"), ("temperature", "train")):
        expected = np.bincount(task.labels[task.rows(0, role)]) / len(
            task.rows(0, role)
        )
        nodes = calibrated(task, 0, scores, kind, rows)
        np.testing.assert_allclose(nodes.prior, expected)


def test_votes_are_counted_as_votes():
    task, scores = made()
    crisp = Scores(
        scores.held,
        np.eye(2)[task.labels[scores.held]],
        scores.target,
        np.eye(2)[task.labels[scores.target]],
    )
    rows = task.rows(0, "test")
    samples = draw_samples(task.labels[rows], 2, "test", 0, 0, 50, 2)
    nodes = calibrated(task, 0, crisp, "none", rows)
    for quantifier in ("cc", "acc"):
        found = estimates(nodes, samples, quantifier, Settings())
        np.testing.assert_allclose(found, samples.prevalence, atol=1e-6)


def test_scores_that_are_not_numbers_are_refused():
    task, scores = made()
    scores.held_logits[3] = np.nan
    with pytest.raises(StageError, match="1 nodes have scores"):
        calibrated(task, 0, scores, "bcts", task.rows(0, "test"))


def test_quantifiers_of_two_classes_are_refused_for_more():
    with pytest.raises(InputError, match=r"'hdy' is defined for two classes.*has 7"):
        quantifiers_for(["sld", "hdy"], 7, crisp=False)
    assert "hdy" not in quantifiers_for(None, 7, crisp=False)
    with pytest.raises(SettingsError, match="'npacc' needs communities of a graph"):
        check_of_samples(["sld", "npacc"])
    assert not {"auto", "nacc", "npacc"} & set(quantifiers_for(None, 2, crisp=False))
    assert set(quantifiers_for(None, 2, crisp=True)) == {"cc", "acc"}
    assert quantifiers_for(["sld"], 2, crisp=True) == ()


@pytest.fixture
def vectors():
    rng = np.random.default_rng(1)
    true = rng.dirichlet(np.ones(4), 50)
    true[:10] = np.eye(4)[rng.integers(0, 4, 10)]
    return true, rng.dirichlet(np.ones(4), 50)


@pytest.mark.oracle
def test_errors_are_those_of_quapy(vectors):
    quapy = pytest.importorskip("quapy")
    true, estimate = vectors
    found = errors_of(true, estimate, np.full(50, 500))
    np.testing.assert_allclose(found["ae"], quapy.error.ae(true, estimate), rtol=1e-12)
    expected = quapy.error.rae(true, estimate, eps=1 / 1000)
    # QuaPy smooths both vectors; the denominators of its smoothing cancel.
    np.testing.assert_allclose(found["rae"], expected, rtol=1e-9)


def test_relative_error_of_an_absent_class_is_large_but_finite():
    found = errors_of(np.array([[1.0, 0.0]]), np.array([[0.9, 0.1]]), np.array([50]))
    np.testing.assert_allclose(found["rae"], [(0.1 / 1.01 + 0.1 / 0.01) / 2])
