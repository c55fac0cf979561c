from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.graph.graphs import csr_of, random_matrix
from xnq_dist.core.threads import map_threads
from xnq_dist.graph import batches as module
from xnq_dist.graph.batches import batches, max_batch_rows, share_rows
from xnq_dist.graph.csr import NO_WEIGHTS, ArrayCsr


@settings(max_examples=40, deadline=None)
@given(
    n=st.integers(1, 60),
    density=st.sampled_from([0.0, 0.1, 0.5]),
    seed=st.integers(0, 99),
    minimum=st.sampled_from([1, 5, 64]),
    threads=st.integers(1, 4),
)
def test_no_row_is_left_out_or_shared_twice(n, density, seed, minimum, threads):
    csr = csr_of(random_matrix(n, density, seed))
    met: list[tuple[int, list[int]]] = []
    count = 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "SINGLE_THREAD", 0)
        for rows in batches(csr, minimum):
            count += 1
            assert len(rows.indptr) - 1 <= max_batch_rows(csr, minimum)

            def note(low, piece, rows=rows):
                assert piece.first == rows.first + low
                for row in range(len(piece.indptr) - 1):
                    edges = piece.indices[piece.indptr[row] : piece.indptr[row + 1]]
                    met.append((piece.first + row, edges.tolist()))

            share_rows(rows, note, threads)
    expected = [
        (v, csr.indices[csr.indptr[v] : csr.indptr[v + 1]].tolist()) for v in range(n)
    ]
    assert sorted(met) == expected
    assert count >= min(minimum, n) // 2


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
