from __future__ import annotations

from functools import partial
from operator import ne

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.graph.graphs import csr_of, random_matrix
from xnq_dist.graph import clustering as module
from xnq_dist.graph.clustering import coarsen, contract, find_clusters
from xnq_dist.graph.csr import ArrayCsr
from xnq_dist.graph.thread_pool import batches, max_batch_rows


def slow_clusters(
    csr: ArrayCsr, base: int, most: int, rounds: int, parts: int
) -> list[int]:
    """All nodes of a batch choose, then join in order while clusters have capacity."""
    n = len(csr.indptr) - 1
    label = list(range(n))
    own = (np.diff(csr.indptr) + base).tolist()

    def weigh(cluster: int) -> int:
        return sum(own[u] for u in range(n) if label[u] == cluster)

    for _ in range(rounds):
        before = list(label)
        for rows in batches(csr, parts):
            batch = range(rows.first, rows.first + len(rows.indptr) - 1)
            choice = {}
            for v in batch:
                row = csr.indices[csr.indptr[v] : csr.indptr[v + 1]].tolist()
                votes = {label[v]: 0}
                for u in row:
                    if u != v:
                        votes[label[u]] = votes.get(label[u], 0) + 1
                weight = {c: weigh(c) for c in votes}
                room = [c for c in votes if c == label[v] or weight[c] + own[v] <= most]
                if own[v] <= most:
                    # The old cluster comes first, the others as they were met.
                    choice[v] = max(room, key=lambda c: votes[c])
            for v, best in choice.items():
                if best != label[v] and weigh(best) + own[v] <= most:
                    label[v] = best
        if sum(map(ne, before, label)) <= module.MOVED_AT_END * n:
            break
    return label


@settings(max_examples=60, deadline=None)
@given(
    n=st.integers(1, 25),
    density=st.sampled_from([0.0, 0.1, 0.4]),
    seed=st.integers(0, 999),
    base=st.integers(1, 5),
    most=st.integers(1, 40),
    parts=st.sampled_from([1, 3, 64]),
)
def test_clusters_are_those_of_the_slow_rule(
    n: int, density: float, seed: int, base: int, most: int, parts: int
) -> None:
    csr = csr_of(random_matrix(n, density, seed))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "batches", partial(batches, minimum=parts))
        patch.setattr(module, "max_batch_rows", partial(max_batch_rows, minimum=parts))
        label, clusters = find_clusters(csr, base, most)
    slow = slow_clusters(csr, base, most, module.ROUNDS, parts)
    _, expected = np.unique(slow, return_inverse=True)
    assert label.tolist() == expected.tolist()
    assert clusters == len(set(slow))
    own = np.diff(csr.indptr) + base
    weight = np.bincount(label, own)
    heaviest = np.zeros(clusters, np.int64)
    np.maximum.at(heaviest, label, own)
    assert (weight <= np.maximum(most, heaviest)).all()


@settings(max_examples=40, deadline=None)
@given(
    n=st.integers(2, 25), density=st.sampled_from([0.1, 0.4]), seed=st.integers(0, 999)
)
def test_the_contracted_graph_counts_edges_between_clusters(
    n: int, density: float, seed: int
) -> None:
    csr = csr_of(random_matrix(n, density, seed))
    label, clusters = find_clusters(csr, 1, 8)
    small = contract(csr, label, clusters, 3, 10**6)
    expected = np.zeros((clusters, clusters), np.int64)
    weights = np.zeros(clusters, np.int64)
    for v in range(n):
        weights[label[v]] += 3 + csr.indptr[v + 1] - csr.indptr[v]
        for u in csr.indices[csr.indptr[v] : csr.indptr[v + 1]].tolist():
            if label[u] != label[v]:
                expected[label[u], label[v]] += 1
                expected[label[v], label[u]] += 1
    found = np.zeros_like(expected)
    at = np.repeat(np.arange(clusters), np.diff(small.indptr))
    found[at, small.indices] = small.counts
    assert np.count_nonzero(expected) == len(small.indices)
    assert (found == expected).all()
    assert (small.weights == weights).all()


def test_a_sample_keeps_both_directions_and_any_chunks_give_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    matrix = random_matrix(300, 0.1, 4)
    csr = csr_of((matrix + matrix.T).tocsr())
    label = np.arange(300, dtype=np.int32)
    between = np.count_nonzero(
        csr.indices != np.repeat(np.arange(300), np.diff(csr.indptr))
    )
    keep = between // 4
    small = contract(csr, label, 300, 1, keep)
    assert 0.9 * keep < small.counts.sum() / 2 < 1.1 * keep
    # Each edge of a symmetric graph was met twice, or not at all.
    assert set(small.counts.tolist()) == {2}
    monkeypatch.setattr(module, "SAMPLE_CHUNK", 7)
    for processors in ({0}, {0, 1, 2}):
        monkeypatch.setattr("os.sched_getaffinity", lambda _, p=processors: p)
        again = contract(csr, label, 300, 1, keep)
        assert (again.indices == small.indices).all()
        assert (again.counts == small.counts).all()


def test_few_edges_between_clusters_are_sampled_in_a_second_pass() -> None:
    """Two clusters with a tenth of the edges between them."""
    matrix = random_matrix(400, 0.2, 1).toarray()
    matrix[:200, 200:] *= random_matrix(200, 0.1, 2).toarray()
    matrix[200:, :200] = matrix[:200, 200:].T
    csr = csr_of(matrix)
    label = np.repeat(np.arange(2, dtype=np.int32), 200)
    between = int(matrix[:200, 200:].sum()) * 2
    assert between < 0.15 * len(csr.indices)
    small = contract(csr, label, 2, 1, between // 2)
    assert 0.4 * between < small.counts[0] < 0.5 * between
    whole = contract(csr, label, 2, 1, len(csr.indices) // 2)
    assert whole.counts[0] == between


def test_a_graph_without_edges_between_clusters_is_empty() -> None:
    csr = csr_of(random_matrix(5, 0.0, 0))
    small = contract(csr, np.arange(5, dtype=np.int32), 5, 2, 10)
    assert small.indptr.tolist() == [0] * 6
    assert small.weights.tolist() == [2] * 5


def test_coarsening_keeps_weights_and_counts_what_is_between() -> None:
    matrix = random_matrix(120, 0.05, 2)
    csr = csr_of((matrix + matrix.T).tocsr())
    whole = contract(csr, np.arange(120, dtype=np.int32), 120, 1, 10**6)
    small, place = coarsen(whole, 60, len(whole.indices) - 1)
    clusters = len(small.weights)
    assert 1 < clusters < 120
    assert len(small.indices) < len(whole.indices)
    expected = np.zeros((clusters, clusters), np.int64)
    ends = np.repeat(place, np.diff(whole.indptr))
    np.add.at(expected, (ends, place[whole.indices]), whole.counts)
    np.fill_diagonal(expected, 0)
    found = np.zeros_like(expected)
    at = np.repeat(np.arange(clusters), np.diff(small.indptr))
    found[at, small.indices] = small.counts
    assert (found == expected).all()
    assert (small.weights == np.bincount(place, whole.weights)).all()
    assert small.weights.max() <= max(60, whole.weights.max())


def test_coarsening_ends_with_the_heaviest_edges_where_nothing_joins() -> None:
    csr = csr_of(random_matrix(30, 0.3, 2))
    whole = contract(csr, np.arange(30, dtype=np.int32), 30, 1, 10**6)
    small, place = coarsen(whole, 1, 20)
    assert place.tolist() == list(range(30))
    assert len(small.indices) == 20
    kept = sorted(small.counts.tolist(), reverse=True)
    assert kept == sorted(whole.counts.tolist(), reverse=True)[:20]
    assert coarsen(whole, 1, 10**6)[0] is whole
