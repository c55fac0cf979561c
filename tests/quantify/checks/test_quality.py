"""Standard errors, and what the notes say."""

from __future__ import annotations

import numpy as np
import pytest

from xnq_dist.quantify.checks.quality import noted, standard_errors


def test_an_interval_implies_a_standard_error():
    lower, upper = np.array([[0.1, 0.2]]), np.array([[0.5, 0.6]])
    found = standard_errors(np.array([[0.05, np.nan]]), lower, upper, 0.95)
    assert found[0].tolist() == pytest.approx([0.05, 0.4 / 3.919928], rel=1e-5)


def test_a_note_says_that_an_estimate_did_not_converge():
    found = noted(np.array(["", "", "a note"]), np.array([True, False, False]))
    assert found[0] == ""
    assert found[1].startswith("the estimate did not converge")
    assert found[2] == f"a note; {found[1]}"
