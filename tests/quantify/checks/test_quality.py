"""Standard errors, and what the notes say."""

from __future__ import annotations

import numpy as np
import pytest

from xnq_dist.quantify.checks.quality import noted, standard_errors


def test_an_interval_implies_a_standard_error():
    lower, upper = np.array([[0.1, 0.2]]), np.array([[0.5, 0.6]])
    implied = standard_errors(None, lower, upper, 0.95)
    assert implied == pytest.approx(np.full((1, 2), 0.4 / 3.919928), rel=1e-5)
    given = np.array([[0.05, np.nan]])
    both = standard_errors(given, lower, upper, 0.95)
    assert both.tolist() == [[0.05, implied[0, 1]]]


def test_a_note_says_that_an_estimate_did_not_converge():
    found = noted(np.array(["", "", "a note"]), np.array([True, False, False]))
    assert found[0] == ""
    assert found[1].startswith("the estimate did not converge")
    assert found[2] == f"a note; {found[1]}"
