"""Rates of ACC and PACC, and rows without evidence."""

from __future__ import annotations

import numpy as np
import pytest

from tests.quantify.samples import (
    draw_posteriors,
    field_library,
    make_communities,
    make_nodes,
    with_reference,
)
from xnq_dist.quantify.classic.counts import AdjustedCounts, Counts
from xnq_dist.quantify.interface import Reference


def test_rows_of_zeros_keep_estimates_finite():
    nodes, batch = make_nodes(np.zeros((4, 2))), make_communities([0, 1, 2, 3])
    for name in ("cc", "pcc"):
        found = Counts(name).estimate(batch, nodes)
        np.testing.assert_array_equal(found.prevalence, [[0.5, 0.5]])


def test_class_without_labelled_nodes_is_assumed_to_be_predicted_correctly():
    posteriors = np.float32([[0.8, 0.1, 0.1], [0.6, 0.2, 0.2]])
    reference = Reference(posteriors, np.zeros(2, np.int32))
    matrix = AdjustedCounts("pacc").rates(reference)
    np.testing.assert_allclose(matrix[:, 0], [0.7, 0.15, 0.15], rtol=1e-6)
    np.testing.assert_array_equal(matrix[:, 1:], np.eye(3)[:, 1:])


@pytest.mark.oracle
def test_rates_are_those_of_quapy():
    theirs = field_library()
    posteriors, classes = draw_posteriors(800, np.array([0.1, 0.4, 0.3, 0.2]), 1.1, 3)
    nodes = with_reference(make_nodes(posteriors), posteriors, classes)
    said = posteriors.astype(np.float64)
    for name, kind, given in (
        ("acc", theirs.ACC, said.argmax(axis=1)),
        ("pacc", theirs.PACC, said),
    ):
        expected = kind.getPteCondEstim(np.arange(4), classes, given)
        found = AdjustedCounts(name).rates(nodes.reference)
        np.testing.assert_allclose(found, expected, atol=1e-7)
