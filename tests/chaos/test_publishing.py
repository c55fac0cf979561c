"""Published results stay complete while runs publish and are killed."""

from __future__ import annotations

import pytest

from tests.chaos.publishing import poll_through


@pytest.mark.faults
@pytest.mark.parametrize("runs", [2, 12])
def test_a_reader_always_finds_complete_results_of_one_run(tmp_path, runs):
    seen = poll_through(tmp_path, runs)
    assert seen.faults == ()
    assert seen.killed > 0
    assert seen.versions > 1
    assert seen.polls > 20
