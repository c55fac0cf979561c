from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.graph.graphs import csr_of, random_matrix
from xnq_dist.graph import thread_pool as module
from xnq_dist.graph.csr import NO_WEIGHTS, ArrayCsr, CsrRows
from xnq_dist.graph.thread_pool import (
    ThreadPool,
    batch_spans,
    batches,
    max_batch_rows,
)


@settings(max_examples=40, deadline=None)
@given(
    n=st.integers(1, 60),
    density=st.sampled_from([0.0, 0.1, 0.5]),
    seed=st.integers(0, 99),
    minimum=st.sampled_from([1, 5, 64]),
    threads=st.integers(1, 4),
)
def test_no_row_is_left_out_or_shared_twice(
    n: int, density: float, seed: int, minimum: int, threads: int
) -> None:
    csr = csr_of(random_matrix(n, density, seed))
    met: list[tuple[int, list[int]]] = []
    count = 0
    with pytest.MonkeyPatch.context() as patch, ThreadPool(threads) as pool:
        patch.setattr(module, "SINGLE_THREAD", 0)
        for rows in batches(csr, minimum):
            count += 1
            assert len(rows.indptr) - 1 <= max_batch_rows(csr, minimum)

            def note(
                thread: int, low: int, piece: CsrRows, rows: CsrRows = rows
            ) -> None:
                assert thread < threads
                assert piece.first == rows.first + low
                for row in range(len(piece.indptr) - 1):
                    edges = piece.indices[piece.indptr[row] : piece.indptr[row + 1]]
                    met.append((piece.first + row, edges.tolist()))

            pool.share(rows, note)
    expected = [
        (v, csr.indices[csr.indptr[v] : csr.indptr[v + 1]].tolist()) for v in range(n)
    ]
    assert sorted(met) == expected
    assert count >= min(minimum, n) // 2


def test_the_number_of_batches_is_bounded_for_any_graph() -> None:
    """Each batch may be a round of tasks, however small."""
    rng = np.random.default_rng(0)
    for edges in (10_000, 10**6, 10**10):
        degrees = rng.pareto(1.5, 5000)
        ends = np.cumsum(degrees / degrees.sum() * edges).astype(np.int64)
        csr = ArrayCsr(np.r_[0, ends], np.empty(0, np.int32), NO_WEIGHTS)
        found = batch_spans(csr)
        assert 256 <= len(found) <= 2 * 256 + 1
        assert [last for _, last in found[:-1]] == [first for first, _ in found[1:]]


def test_nodes_are_divided_and_an_error_comes_back() -> None:
    marks: list[tuple[int, int]] = []
    with ThreadPool(3) as pool:
        pool.divide(10, 1 << 20, lambda low, high: marks.append((low, high)))
        pool.divide(1, 1 << 20, lambda low, high: marks.append((low, high)))
        pool.divide(7, 0, lambda low, high: marks.append((low, high)))
        assert sorted(marks[:3]) == [(0, 3), (3, 6), (6, 10)]
        assert marks[3:] == [(0, 1), (0, 7)]
        with pytest.raises(ZeroDivisionError):
            pool.divide(10, 1 << 20, lambda low, high: np.int64(1) and 1 // 0)
