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
    small = contract(csr, label, sizes, 10**6)
    expected = np.zeros((len(sizes), len(sizes)), np.int64)
    for v in range(n):
        for u in csr.indices[csr.indptr[v] : csr.indptr[v + 1]].tolist():
            if label[u] != label[v]:
                expected[label[u], label[v]] += 1
                expected[label[v], label[u]] += 1
    found = np.zeros_like(expected)
    at = np.repeat(np.arange(len(sizes)), np.diff(small.indptr))
    found[at, small.indices] = small.counts
    assert np.count_nonzero(expected) == len(small.indices)
    assert (found == expected).all()
    assert small.sizes is sizes


def test_a_sample_keeps_both_directions_and_any_chunks_give_the_same(
    monkeypatch,
):
    matrix = random_matrix(300, 0.1, 4)
    csr = csr_of((matrix + matrix.T).tocsr())
    label, sizes = np.arange(300, dtype=np.int32), np.ones(300)
    between = np.count_nonzero(
        csr.indices != np.repeat(np.arange(300), np.diff(csr.indptr))
    )
    keep = between // 4
    small = contract(csr, label, sizes, keep)
    assert 0.9 * keep < small.counts.sum() / 2 < 1.1 * keep
    # Each edge of a symmetric graph was met twice, or not at all.
    assert set(small.counts.tolist()) == {2}
    monkeypatch.setattr(module, "SAMPLE_CHUNK", 7)
    for processors in ({0}, {0, 1, 2}):
        monkeypatch.setattr("os.sched_getaffinity", lambda _, p=processors: p)
        again = contract(csr, label, sizes, keep)
        assert (again.indices == small.indices).all()
        assert (again.counts == small.counts).all()


def test_few_edges_between_clusters_are_sampled_in_a_second_pass():
    """Two clusters with a tenth of the edges between them."""
    matrix = random_matrix(400, 0.2, 1).toarray()
    matrix[:200, 200:] *= random_matrix(200, 0.1, 2).toarray()
    matrix[200:, :200] = matrix[:200, 200:].T
    csr = csr_of(matrix)
    label, sizes = np.repeat(np.arange(2, dtype=np.int32), 200), np.ones(2)
    between = int(matrix[:200, 200:].sum()) * 2
    assert between < 0.15 * len(csr.indices)
    small = contract(csr, label, sizes, between // 2)
    assert 0.4 * between < small.counts[0] < 0.5 * between
    whole = contract(csr, label, sizes, len(csr.indices) // 2)
    assert whole.counts[0] == between


def test_a_graph_without_edges_between_clusters_is_empty():
    csr = csr_of(random_matrix(5, 0.0, 0))
    small = contract(csr, np.arange(5, dtype=np.int32), np.ones(5), 10)
    assert small.indptr.tolist() == [0] * 6
    assert len(small.sizes) == 5


def each_alone(csr):
    """The contracted graph of clusters of one node."""
    weights = np.diff(csr.indptr) + 1.0
    return contract(csr, np.arange(len(weights), dtype=np.int32), weights, 10**6)


def test_coarsening_keeps_sizes_and_counts_what_is_between():
    matrix = random_matrix(120, 0.05, 2)
    csr = csr_of((matrix + matrix.T).tocsr())
    whole, limit = each_alone(csr), 66.0
    small, place = coarsen(whole, limit, len(whole.indices) - 1)
    clusters = len(small.sizes)
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
    summed = np.bincount(place, whole.sizes)
    assert (small.sizes == summed).all()
    assert summed.max() <= max(limit, whole.sizes.max())


def test_coarsening_ends_with_the_heaviest_edges_where_nothing_joins():
    csr = csr_of(random_matrix(30, 0.3, 2))
    whole = each_alone(csr)
    small, place = coarsen(whole, 1.0, 20)
    assert place.tolist() == list(range(30))
    assert len(small.indices) == 20
    kept = sorted(small.counts.tolist(), reverse=True)
    assert kept == sorted(whole.counts.tolist(), reverse=True)[:20]
    assert coarsen(whole, 1.0, 10**6)[0] is whole
