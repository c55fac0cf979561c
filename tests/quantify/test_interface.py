"""Known labels and estimates combined, and the registry."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from tests.quantify.samples import make_communities, make_nodes
from xnq_dist.core.config import load_settings
from xnq_dist.core.records import QUANTIFIERS
from xnq_dist.quantify.interface import STUCK, Estimates, combine, make_quantifier

NODES = make_nodes(np.full((6, 3), 1 / 3), np.array([0, 0, 2, -1, -1, -1]))


def answer(members, q, labelled):
    batch = make_communities(*members)
    size = len(members)
    estimates = Estimates(
        np.tile(np.asarray(q, np.float64), (size, 1)),
        np.arange(size) > 0,
    )
    return combine(batch, NODES, estimates, labelled)


@pytest.mark.parametrize(
    ("labelled", "expected"),
    [("count", [3 / 5, 0.5 / 5, 1.5 / 5]), ("exclude", [0.5, 0.25, 0.25])],
)
def test_known_labels_are_counted_exactly_or_left_out(labelled, expected):
    found = answer([[0, 1, 2, 3, 4]], [0.5, 0.25, 0.25], labelled)
    np.testing.assert_allclose(found.prevalence, [expected])
    counts = (found.n_nodes[0], found.n_labelled[0], found.n_estimated[0])
    assert counts == (5, 3, 2)
    assert not found.converged[0]
    assert found.notes.tolist() == [STUCK]


def test_fully_labelled_communities_are_counted():
    exact = answer([[0, 1, 2], [3]], [0.5, 0.25, 0.25], "count")
    np.testing.assert_array_equal(exact.prevalence[0], [2 / 3, 0, 1 / 3])
    assert exact.notes.tolist() == ["every member is labelled: counted exactly", ""]
    assert (exact.n_estimated[0], exact.converged[0]) == (0, 1)
    nothing = answer([[0, 1, 2]], [0.5, 0.25, 0.25], "exclude")
    assert np.isnan(nothing.prevalence).all()
    assert nothing.n_nodes[0] == 3
    assert "no unlabelled member" in nothing.notes[0]


def test_empty_communities_are_kept():
    found = answer([[], [3, 4]], [0.5, 0.25, 0.25], "count")
    assert np.isnan(found.prevalence[0]).all()
    assert "nothing to estimate" in found.notes[0]
    np.testing.assert_array_equal(found.prevalence[1], [0.5, 0.25, 0.25])


@pytest.mark.parametrize("name", QUANTIFIERS)
def test_every_record_is_of_a_quantifier(name):
    made = make_quantifier(name, load_settings(overrides=[f"quantifier={name}"]))
    assert made.name == name


def test_records_and_the_interface_are_imported_without_the_compiler():
    code = (
        "import sys, xnq_dist.quantify.interface, xnq_dist.core.records as q; "
        "q.QUANTIFIERS; sys.exit('numba' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
