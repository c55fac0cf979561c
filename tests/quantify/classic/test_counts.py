"""CC, PCC, ACC and PACC against QuaPy."""

from __future__ import annotations

import numpy as np
import pytest

from tests.quantify.samples import (
    draw_posteriors,
    field_library,
    make_communities,
    make_nodes,
)
from xnq_dist.quantify.classic.counts import Counts
from xnq_dist.quantify.interface import Reference

PRIORS = {"binary": [0.7, 0.3], "four": [0.1, 0.4, 0.3, 0.2]}


def sample(prior, seed=0):
    posteriors, classes = draw_posteriors(3000, np.array(prior), 1.1, seed)
    known = np.arange(3000) < 800
    reference = Reference(np.array(prior), posteriors[known], classes[known])
    rng = np.random.default_rng(seed)
    sets = [np.sort(rng.choice(np.arange(800, 3000), n)) for n in (1, 5, 60, 900)]
    return posteriors.astype(np.float64), reference, sets


@pytest.mark.oracle
@pytest.mark.parametrize("prior", PRIORS.values(), ids=PRIORS)
def test_estimates_are_those_of_quapy(prior):
    theirs = field_library()
    from quapy.functional import normalize_prevalence, prevalence_from_probabilities

    posteriors, reference, sets = sample(prior, 3)
    held, labels = reference.posteriors.astype(np.float64), reference.labels
    rates = theirs.ACC.getPteCondEstim, theirs.PACC.getPteCondEstim
    names = np.arange(len(prior))
    hard = rates[0](names, labels, held.argmax(axis=1))
    soft = rates[1](names, labels, held)
    for name, matrix in (("acc", hard), ("pacc", soft)):
        np.testing.assert_allclose(Counts(name).rates(reference), matrix, atol=1e-7)
    nodes, batch = make_nodes(posteriors), make_communities(*sets)
    for name, matrix in (("cc", None), ("pcc", None), ("acc", hard), ("pacc", soft)):
        found = Counts(name).estimate(batch, nodes, reference)
        for s, members in enumerate(sets):
            rows, votes = posteriors[members], name in ("cc", "acc")
            q = prevalence_from_probabilities(rows, binarize=votes)
            if matrix is not None:
                q = theirs.ACC.solve_adjustment(matrix, q, "inversion", "minimize")
                q = normalize_prevalence(q, method="clip")
            tolerance = 1e-6 if matrix is None else 1e-3
            np.testing.assert_allclose(found.prevalence[s], q, atol=tolerance)


def test_rows_of_zeros_keep_estimates_finite():
    nodes = make_nodes(np.zeros((4, 2)))
    batch, reference = make_communities([0, 1, 2, 3]), Reference(np.array([0.5, 0.5]))
    for name in ("cc", "pcc"):
        found = Counts(name).estimate(batch, nodes, reference)
        np.testing.assert_array_equal(found.prevalence, [[0.5, 0.5]])


def test_class_without_labelled_nodes_is_assumed_to_be_predicted_correctly():
    posteriors = np.float32([[0.8, 0.1, 0.1], [0.6, 0.2, 0.2]])
    reference = Reference(np.full(3, 1 / 3), posteriors, np.zeros(2, np.int32))
    matrix = Counts("pacc").rates(reference)
    np.testing.assert_allclose(matrix[:, 0], [0.7, 0.15, 0.15], rtol=1e-6)
    np.testing.assert_array_equal(matrix[:, 1:], np.eye(3)[:, 1:])
