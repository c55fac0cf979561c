"""CC, PCC, ACC, PACC against NumPy, closed forms, SLSQP and QuaPy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from tests.quantify.samples import (
    draw_posteriors,
    field_library,
    make_communities,
    make_nodes,
)
from xnq_dist.core.errors import InputError
from xnq_dist.quantify.classic import counts as adjusted
from xnq_dist.quantify.classic import simplex
from xnq_dist.quantify.classic.counts import Counts, rates
from xnq_dist.quantify.classic.simplex import mixture_kernel
from xnq_dist.quantify.interface import Reference

NAMES = ["cc", "pcc", "acc", "pacc"]
PRIORS = {"binary": [0.7, 0.3], "four": [0.1, 0.4, 0.3, 0.2]}


def project(matrix, q):
    """The p of one q."""
    found, converged = np.full((1, len(q)), np.nan), np.zeros(1, np.bool_)
    mixture_kernel(np.array([matrix], np.float64), np.array([q]), found, converged)
    assert converged[0]
    return found[0]


def sample(prior, seed=0):
    posteriors, classes = draw_posteriors(3000, np.array(prior), 1.1, seed)
    known = np.arange(3000) < 800
    reference = Reference(np.array(prior), posteriors[known], classes[known])
    rng = np.random.default_rng(seed)
    sets = [np.sort(rng.choice(np.arange(800, 3000), n)) for n in (1, 5, 60, 900)]
    return posteriors, classes, known, reference, sets


@pytest.mark.parametrize("prior", PRIORS.values(), ids=PRIORS)
def test_plain_counts_are_those_of_numpy(prior):
    posteriors, _, _, reference, sets = sample(prior)
    nodes, batch = make_nodes(posteriors), make_communities(*sets)
    votes = np.eye(len(prior))[posteriors.argmax(axis=1)]
    for name, said in (("cc", votes), ("pcc", posteriors.astype(float))):
        found = Counts(name).estimate(batch, nodes, reference)
        expected = [said[members].mean(axis=0) for members in sets]
        np.testing.assert_allclose(found.prevalence, expected, atol=1e-7)
        assert found.converged.all()
        assert not found.iterations.any()


@pytest.mark.oracle
@pytest.mark.parametrize("prior", PRIORS.values(), ids=PRIORS)
def test_estimates_are_those_of_quapy(prior):
    theirs = field_library()
    from quapy.functional import normalize_prevalence, prevalence_from_probabilities

    posteriors, classes, known, reference, sets = sample(prior, 3)
    posteriors = posteriors.astype(np.float64)
    names = np.arange(len(prior))
    hard = theirs.ACC.getPteCondEstim(
        names, classes[known], posteriors[known].argmax(axis=1)
    )
    soft = theirs.PACC.getPteCondEstim(names, classes[known], posteriors[known])
    own = posteriors[known], classes[known]
    np.testing.assert_allclose(rates(*own, hard=True), hard, atol=1e-12)
    np.testing.assert_allclose(rates(*own, hard=False), soft, atol=1e-7)
    nodes, batch = make_nodes(posteriors), make_communities(*sets)
    for name, matrix, binarize in (
        ("cc", None, True),
        ("pcc", None, False),
        ("acc", hard, True),
        ("pacc", soft, False),
    ):
        found = Counts(name).estimate(batch, nodes, reference)
        for s, members in enumerate(sets):
            q = prevalence_from_probabilities(posteriors[members], binarize=binarize)
            if matrix is not None:
                q = theirs.ACC.solve_adjustment(matrix, q, "inversion", "minimize")
                q = normalize_prevalence(q, method="clip")
            tolerance = 1e-6 if matrix is None else 1e-3
            np.testing.assert_allclose(found.prevalence[s], q, atol=tolerance)


def test_binary_adjustment_has_its_closed_form():
    rng = np.random.default_rng(0)
    for _ in range(200):
        tpr, fpr, q = rng.random(3)
        if abs(tpr - fpr) < 0.05:
            continue
        p = project([[1 - fpr, 1 - tpr], [fpr, tpr]], [1 - q, q])
        closed = np.clip((q - fpr) / (tpr - fpr), 0, 1)
        np.testing.assert_allclose(p, [1 - closed, closed], atol=1e-8)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**31), st.integers(2, 7))
def test_adjustment_is_as_good_as_slsqp(seed, classes):
    rng = np.random.default_rng(seed)
    matrix = rng.dirichlet(np.full(classes, 0.5), classes).T + 0.3 * np.eye(classes)
    matrix /= matrix.sum(axis=0)
    q = rng.dirichlet(np.full(classes, 0.4))
    p = project(matrix, q)
    assert p.sum() == pytest.approx(1, abs=1e-12)
    assert (p >= 0).all()

    def cost(at):
        return float(((matrix @ at - q) ** 2).sum())

    theirs = minimize(
        cost,
        np.full(classes, 1 / classes),
        method="SLSQP",
        bounds=[(0, 1)] * classes,
        constraints={"type": "eq", "fun": lambda x: 1 - x.sum()},
        options={"ftol": 1e-14, "maxiter": 500},
    )
    assert cost(p) <= cost(np.clip(theirs.x, 0, 1) / theirs.x.clip(0).sum()) + 1e-9


def test_undecided_adjustment_is_the_one_nearest_to_uniform():
    # Votes cannot distinguish classes 1 and 2: only the sum of their shares is known.
    matrix = np.array([[1, 0, 0], [0, 0.5, 0.5], [0, 0.5, 0.5]])
    np.testing.assert_allclose(
        project(matrix, [0.4, 0.3, 0.3]), [0.4, 0.3, 0.3], atol=1e-5
    )
    useless = np.full((2, 2), 0.5)
    np.testing.assert_allclose(project(useless, [0.9, 0.1]), [0.5, 0.5])


def test_compiled_code_agrees_with_its_python(monkeypatch):
    prior = PRIORS["four"]
    posteriors, _, _, reference, sets = sample(prior, 1)
    posteriors[sets[1]] = 0
    labels = np.full(len(posteriors), -1)
    labels[sets[2][::2]] = 0
    labels[sets[0]] = 1
    nodes, batch = make_nodes(posteriors, labels), make_communities(*sets[:3])
    compiled = {name: Counts(name).estimate(batch, nodes, reference) for name in NAMES}
    for name in ("_solve", "_quadratic", "_write", "mixture_kernel"):
        monkeypatch.setattr(simplex, name, getattr(simplex, name).py_func)
    monkeypatch.setattr(adjusted, "mean_kernel", adjusted.mean_kernel.py_func)
    monkeypatch.setattr(adjusted, "mixture_kernel", simplex.mixture_kernel)
    for name in NAMES:
        slow = Counts(name).estimate(batch, nodes, reference)
        np.testing.assert_allclose(
            slow.prevalence, compiled[name].prevalence, atol=1e-12
        )
        assert np.isnan(slow.prevalence[0]).all()
    # Steep problems, in which classes leave the active set and come back.
    rng = np.random.default_rng(0)
    for classes in (2, 5, 8):
        matrix = rng.dirichlet(np.full(classes, 0.3), classes).T.copy()
        means = rng.dirichlet(np.full(classes, 0.3), 30)
        slow, fast = np.empty((2, 30, classes))
        done = np.zeros(30, np.bool_)
        simplex.mixture_kernel(matrix[None], means, slow, done)
        mixture_kernel(matrix[None], means, fast, done)
        np.testing.assert_allclose(slow, fast, atol=1e-9)


def test_elimination_pivots():
    system = np.array([[0.0, 2.0, 1.0], [1.0, 1.0, 1.0], [2.0, 1.0, 3.0]])
    right = np.array([1.0, 2.0, 3.0])
    expected = np.linalg.solve(system, right)
    simplex._solve.py_func(system, right, 3)
    np.testing.assert_allclose(right, expected)


def test_zero_rows_keep_estimates_finite():
    nodes = make_nodes(np.zeros((4, 2)))
    batch, reference = make_communities([0, 1, 2, 3]), Reference(np.array([0.5, 0.5]))
    for name in ("cc", "pcc"):
        found = Counts(name).estimate(batch, nodes, reference)
        np.testing.assert_array_equal(found.prevalence, [[0.5, 0.5]])


@pytest.mark.parametrize("name", ["acc", "pacc"])
def test_adjustment_without_labelled_nodes_is_refused_with_the_reason(name):
    nodes, batch = make_nodes(np.full((3, 2), 0.5)), make_communities([0, 1])
    with pytest.raises(InputError, match="role calibration, or set quantifier = sld"):
        Counts(name).estimate(batch, nodes, Reference(np.array([0.5, 0.5])))


def test_class_without_labelled_nodes_has_the_identity_column():
    posteriors = np.array([[0.8, 0.1, 0.1], [0.6, 0.2, 0.2]])
    matrix = rates(posteriors, np.array([0, 0]), hard=False)
    np.testing.assert_allclose(matrix[:, 0], [0.7, 0.15, 0.15])
    np.testing.assert_array_equal(matrix[:, 1:], np.eye(3)[:, 1:])
