"""Published results stay complete while runs publish and die."""

from __future__ import annotations

from tests.chaos.publishing import poll_through


def test_a_reader_always_finds_complete_results_of_one_run(tmp_path):
    seen = poll_through(tmp_path, runs=12)
    assert seen.faults == ()
    assert seen.killed > 0
    assert seen.versions > 1
    assert seen.polls > 20
