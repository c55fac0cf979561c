"""One damaged file: found, deleted, computed again with the same results."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.chaos.damage import Bench, one_case, prepared
from tests.conftest import rest_in


@pytest.fixture(scope="module")
def bench(tmp_path_factory, thread_client) -> Bench:
    return prepared(tmp_path_factory.mktemp("damage"), thread_client)


@pytest.mark.parametrize("cases", rest_in("faults", (4, 40), 4))
def test_damaged_files_are_repaired_by_the_next_run(bench, caplog, cases):
    found = [one_case(bench, seed, caplog) for seed in range(cases)]
    bad = [case for case in found if case.outcome not in ("same", "repaired")]
    assert bad == []
    assert Counter(case.outcome for case in found)["repaired"] >= cases // 4
