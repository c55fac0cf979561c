from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.graph.graphs import csr_of, random_matrix
from tests.graph.test_propagation import slow_pass
from xnq_dist.graph import clustering as module
from xnq_dist.graph import propagation
from xnq_dist.graph.batches import batches, max_batch_rows
from xnq_dist.graph.clustering import coarsen, contract, find_clusters
from xnq_dist.graph.propagation import Limits


@settings(max_examples=60, deadline=None)
@given(
    n=st.integers(1, 25),
    density=st.sampled_from([0.0, 0.1, 0.4]),
    seed=st.integers(0, 999),
    nodes=st.integers(1, 9),
    edges=st.integers(1, 40),
    parts=st.sampled_from([1, 3, 64]),
)
def test_clusters_are_those_of_the_slow_rule(n, density, seed, nodes, edges, parts):
    csr, limits = csr_of(random_matrix(n, density, seed)), Limits(nodes, edges)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(propagation, "batches", partial(batches, minimum=parts))
        rows = partial(max_batch_rows, minimum=parts)
        patch.setattr(propagation, "max_batch_rows", rows)
        label, sizes = find_clusters(csr, limits)
    own = np.stack([np.ones(n, np.int64), np.diff(csr.indptr)], axis=1)
    slow = list(range(n))
    for _ in range(propagation.ROUNDS):
        slow = slow_pass(csr, slow, own, n, limits, 0.0, parts)
    _, expected = np.unique(slow, return_inverse=True)
    assert label.tolist() == expected.tolist()
    assert len(sizes) == len(set(slow))
    assert (sizes[:, 0] == np.bincount(label)).all()
    assert (sizes[:, 1] == np.bincount(label, own[:, 1])).all()
    assert (sizes <= np.maximum(limits, own.max(axis=0))).all()


@settings(max_examples=40, deadline=None)
@given(
    n=st.integers(2, 25), density=st.sampled_from([0.1, 0.4]), seed=st.integers(0, 999)
)
def test_the_contracted_graph_counts_edges_between_clusters(n, density, seed):
    csr = csr_of(random_matrix(n, density, seed))
    label, sizes = find_clusters(csr, Limits(4, 8))
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
    label, sizes = np.arange(300, dtype=np.int32), np.ones((300, 2), np.int64)
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
    label, sizes = np.repeat(np.arange(2, dtype=np.int32), 200), np.ones((2, 2), int)
    between = int(matrix[:200, 200:].sum()) * 2
    assert between < 0.15 * len(csr.indices)
    small = contract(csr, label, sizes, between // 2)
    assert 0.4 * between < small.counts[0] < 0.5 * between
    whole = contract(csr, label, sizes, len(csr.indices) // 2)
    assert whole.counts[0] == between


def test_a_graph_without_edges_between_clusters_is_empty():
    csr = csr_of(random_matrix(5, 0.0, 0))
    small = contract(csr, np.arange(5, dtype=np.int32), np.ones((5, 2), int), 10)
    assert small.indptr.tolist() == [0] * 6
    assert len(small.sizes) == 5


def each_alone(csr):
    """The contracted graph of clusters of one node."""
    degrees = np.diff(csr.indptr)
    sizes = np.stack([np.ones_like(degrees), degrees], axis=1)
    return contract(csr, np.arange(len(degrees), dtype=np.int32), sizes, 10**6)


def test_coarsening_keeps_sizes_and_counts_what_is_between():
    matrix = random_matrix(120, 0.05, 2)
    csr = csr_of((matrix + matrix.T).tocsr())
    whole, limits = each_alone(csr), Limits(6, 60)
    small, place = coarsen(whole, limits, len(whole.indices) - 1)
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
    for column in range(2):
        summed = np.bincount(place, whole.sizes[:, column])
        assert (small.sizes[:, column] == summed).all()
        assert summed.max() <= max(limits[column], whole.sizes[:, column].max())


def test_coarsening_ends_with_the_heaviest_edges_where_nothing_joins():
    csr = csr_of(random_matrix(30, 0.3, 2))
    whole = each_alone(csr)
    small, place = coarsen(whole, Limits(1, 1), 20)
    assert place.tolist() == list(range(30))
    assert len(small.indices) == 20
    kept = sorted(small.counts.tolist(), reverse=True)
    assert kept == sorted(whole.counts.tolist(), reverse=True)[:20]
    assert coarsen(whole, Limits(1, 1), 10**6)[0] is whole
