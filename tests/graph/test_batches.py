from __future__ import annotations

import numpy as np
import pytest

from xnq_dist.core.threads import map_threads
from xnq_dist.graph.batches import batches
from xnq_dist.graph.csr import NO_WEIGHTS, ArrayCsr


def test_the_number_of_batches_is_bounded_for_any_graph():
    rng = np.random.default_rng(0)
    for edges in (10_000, 10**6):
        degrees = rng.pareto(1.5, 5000)
        ends = np.cumsum(degrees / degrees.sum() * edges).astype(np.int64)
        csr = ArrayCsr(np.r_[0, ends], np.zeros(edges, np.int32), NO_WEIGHTS)
        found = [(rows.first, len(rows.indptr) - 1) for rows in batches(csr)]
        assert 256 <= len(found) <= 2 * 256 + 1
        ends_of = [first + count for first, count in found]
        assert ends_of[:-1] == [first for first, _ in found[1:]]


def test_results_are_in_order_and_an_error_comes_back():
    for threads in (1, 3, None):
        assert map_threads(str, range(10), threads) == [str(n) for n in range(10)]
        assert map_threads(str, [], threads) == []
        with pytest.raises(ZeroDivisionError):
            map_threads(lambda n: 1 // n, range(3), threads)
