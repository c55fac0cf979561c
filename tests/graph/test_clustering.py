from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.graph.graphs import csr_of, random_matrix
from xnq_dist.graph import clustering as module
from xnq_dist.graph.clustering import coarsen, contract, find_clusters


@pytest.mark.parametrize("limit", [1.0, 40.0, 300.0])
def test_clusters_join_neighbours_within_the_limit(limit):
    matrix = random_matrix(200, 0.02, 3, symmetric=True)
    csr = csr_of(matrix)
    weights = np.diff(csr.indptr) + 2.0
    label, sizes = find_clusters(csr, weights, limit)
    assert label.max() + 1 == len(sizes)
    assert (sizes == np.bincount(label, weights)).all()
    assert sizes.max() <= max(limit, weights.max())
    assert (len(sizes) < 200) == (limit > 1)


@settings(max_examples=40, deadline=None)
@given(
    n=st.integers(2, 25), density=st.sampled_from([0.1, 0.4]), seed=st.integers(0, 999)
)
def test_the_contracted_graph_counts_edges_between_clusters(n, density, seed):
    csr = csr_of(random_matrix(n, density, seed))
    label, sizes = find_clusters(csr, np.diff(csr.indptr) + 1.0, 12.0)
    small = contract(csr, label, len(sizes), 10**6)
    expected = np.zeros((len(sizes), len(sizes)), np.int64)
    for v in range(n):
        for u in csr.indices[csr.indptr[v] : csr.indptr[v + 1]].tolist():
            if label[u] != label[v]:
                expected[label[u], label[v]] += 1
                expected[label[v], label[u]] += 1
    assert np.count_nonzero(expected) == small.nnz
    assert (small.toarray() == expected).all()


def test_a_sample_keeps_both_directions_and_any_chunks_give_the_same(
    monkeypatch,
):
    matrix = random_matrix(300, 0.1, 4)
    csr = csr_of((matrix + matrix.T).tocsr())
    label = np.arange(300, dtype=np.int32)
    between = np.count_nonzero(
        csr.indices != np.repeat(np.arange(300), np.diff(csr.indptr))
    )
    keep = between // 4
    small = contract(csr, label, 300, keep)
    assert 0.9 * keep < small.data.sum() / 2 < 1.1 * keep
    # Each edge of a symmetric graph was met twice, or not at all.
    assert set(small.data.tolist()) == {2}
    monkeypatch.setattr(module, "SAMPLE_CHUNK", 7)
    for processors in ({0}, {0, 1, 2}):
        monkeypatch.setattr("os.sched_getaffinity", lambda _, p=processors: p)
        again = contract(csr, label, 300, keep)
        assert (again.indices == small.indices).all()
        assert (again.data == small.data).all()


def test_few_edges_between_clusters_are_sampled_in_a_second_pass():
    """Two clusters with a tenth of the edges between them."""
    matrix = random_matrix(400, 0.2, 1).toarray()
    matrix[:200, 200:] *= random_matrix(200, 0.1, 2).toarray()
    matrix[200:, :200] = matrix[:200, 200:].T
    csr = csr_of(matrix)
    label = np.repeat(np.arange(2, dtype=np.int32), 200)
    between = int(matrix[:200, 200:].sum()) * 2
    assert between < 0.15 * len(csr.indices)
    small = contract(csr, label, 2, between // 2)
    assert 0.4 * between < small.data[0] < 0.5 * between
    whole = contract(csr, label, 2, len(csr.indices) // 2)
    assert whole.data[0] == between


def test_a_graph_without_edges_between_clusters_is_empty():
    csr = csr_of(random_matrix(5, 0.0, 0))
    small = contract(csr, np.arange(5, dtype=np.int32), 5, 10)
    assert small.indptr.tolist() == [0] * 6


def each_alone(csr):
    """The contracted graph of clusters of one node, and their weights."""
    weights = np.diff(csr.indptr) + 1.0
    label = np.arange(len(weights), dtype=np.int32)
    return contract(csr, label, len(weights), 10**6), weights


def test_coarsening_keeps_sizes_and_counts_what_is_between():
    matrix = random_matrix(120, 0.05, 2)
    csr = csr_of((matrix + matrix.T).tocsr())
    (whole, weights), limit = each_alone(csr), 66.0
    small, sizes, place = coarsen(whole, weights, limit, whole.nnz - 1)
    clusters = len(sizes)
    assert 1 < clusters < 120
    assert len(small.indices) < len(whole.indices)
    expected = np.zeros((clusters, clusters), np.int64)
    ends = np.repeat(place, np.diff(whole.indptr))
    np.add.at(expected, (ends, place[whole.indices]), whole.data)
    np.fill_diagonal(expected, 0)
    assert (small.toarray() == expected).all()
    summed = np.bincount(place, weights)
    assert (sizes == summed).all()
    assert summed.max() <= max(limit, weights.max())


def test_coarsening_ends_with_the_heaviest_edges_where_nothing_joins():
    csr = csr_of(random_matrix(30, 0.3, 2))
    whole, weights = each_alone(csr)
    small, _, place = coarsen(whole, weights, 1.0, 20)
    assert place.tolist() == list(range(30))
    assert len(small.indices) == 20
    kept = sorted(small.data.tolist(), reverse=True)
    assert kept == sorted(whole.data.tolist(), reverse=True)[:20]
    assert coarsen(whole, weights, 1.0, 10**6)[0] is whole
