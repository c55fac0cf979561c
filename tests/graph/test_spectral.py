from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from scipy.sparse.linalg import ArpackNoConvergence

from tests.graph.graphs import csr_of, edges, random_matrix
from xnq_dist.core.errors import InputError
from xnq_dist.graph import csr, spectral
from xnq_dist.graph.spectral import adjacency_radius, is_symmetric


def oracle(matrix):
    """Largest modulus over the strongly connected components, dense each."""
    matrix = sp.csr_array(matrix).astype(np.float64)
    matrix.eliminate_zeros()
    n, label = sp.csgraph.connected_components(matrix, connection="strong")
    dense = matrix.toarray()
    found = 0.0
    for component in range(n):
        rows = np.flatnonzero(label == component)
        values = np.linalg.eigvals(dense[np.ix_(rows, rows)])
        found = max(found, float(np.abs(values).max()))
    return found


def radius(csr):
    return adjacency_radius(csr, is_symmetric(csr))


@settings(max_examples=80, deadline=None)
@given(edges())
def test_small_graphs_have_the_radius_of_their_eigenvalues(graph):
    matrix = graph.adjacency()
    csr = csr_of(matrix, weighted=True)
    assert radius(csr) == pytest.approx(oracle(matrix), rel=1e-5, abs=1e-9)
    edge_weights = matrix.todok()
    assert is_symmetric(csr) == all(
        edge_weights.get((source, target), None) == weight
        for (target, source), weight in edge_weights.items()
    )


def ring(n):
    return sp.csr_array((np.ones(n), (np.arange(n), np.roll(np.arange(n), 1))))


def path(n):
    return sp.csr_array(sp.diags_array(np.ones(n - 1), offsets=1, shape=(n, n)))


def bipartite():
    half = random_matrix(60, 0.1, 5)
    return sp.csr_array(sp.block_array([[None, half], [half.T, None]]))


def chain_of_cycles():
    """A defective eigenvalue 1: 60 two-cycles in a row."""
    n = 120
    a = sp.lil_array((n, n))
    for v in range(0, n, 2):
        a[v, v + 1] = a[v + 1, v] = 1
        if v:
            a[v, v - 1] = 1
    return sp.csr_array(a)


LARGE = {
    "symmetric": random_matrix(200, 0.04, 1, symmetric=True),
    "directed": random_matrix(200, 0.04, 2),
    "sparse and directed": random_matrix(400, 0.004, 3),
    "bipartite": bipartite(),
    "several components": sp.block_diag(
        [random_matrix(90, 0.1, s, symmetric=True) for s in range(4)], format="csr"
    ),
    "star": sp.csr_array(np.eye(1, 200, 0).T @ np.ones((1, 200)) + 0.0),
    "ring": ring(100),
    "acyclic": path(5000),
    "acyclic, reversed": path(5000).T,
    "self-loops": sp.csr_array(sp.eye_array(200) + path(200)),
    "chain of cycles": chain_of_cycles(),
    "no edges": sp.csr_array((100, 100)),
    "long path": path(2000) + path(2000).T,
}
RADII = {
    "acyclic": 0.0,
    "acyclic, reversed": 0.0,
    "long path": 2 * np.cos(np.pi / 2001),
}
"""Where a dense matrix takes too long."""


@pytest.mark.parametrize("name", LARGE)
def test_larger_graphs_have_the_radius_of_their_eigenvalues(name):
    matrix = sp.csr_array(LARGE[name])
    due = RADII[name] if name in RADII else oracle(matrix)
    assert radius(csr_of(matrix)) == pytest.approx(due, rel=2e-6)


def test_weights_count_and_scale():
    matrix = random_matrix(200, 0.04, 4)
    matrix.data = np.random.default_rng(0).random(matrix.nnz).astype(np.float32)
    due = oracle(matrix)
    assert radius(csr_of(matrix, True)) == pytest.approx(due, rel=2e-6)
    matrix.data *= 0
    assert radius(csr_of(matrix, True)) == 0.0


def test_one_weight_that_differs_from_its_reverse_is_seen():
    csr = csr_of(path(9) + path(9).T, weighted=True)
    assert is_symmetric(csr)
    csr.arrays()[1][4] = 2.0
    assert not is_symmetric(csr)


@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
def test_symmetry_is_found_over_many_chunks(weighted, monkeypatch):
    """Sums of 64-bit hashes run over, in one chunk and over all."""
    monkeypatch.setattr(csr, "CHUNK_EDGES", 40)
    for seed in range(5):
        matrix = random_matrix(80, 0.1, seed)
        assert is_symmetric(csr_of(matrix + matrix.T, weighted))
        assert not is_symmetric(csr_of(matrix, weighted))


def test_a_slow_matrix_has_a_lower_bound_of_its_radius_and_a_warning(
    monkeypatch, caplog
):
    monkeypatch.setattr(spectral, "STEPS", 5)
    csr = csr_of(path(300) + path(300).T)
    assert 1.9 < radius(csr) < 2 * np.cos(np.pi / 301)
    assert "may be inaccurate in its last digits" in caplog.text


def test_a_radius_that_arpack_does_not_find_is_refused_with_the_setting(
    monkeypatch,
):
    def fails(*_, **__):
        raise ArpackNoConvergence("no", np.empty(0), np.empty(0))

    monkeypatch.setattr("scipy.sparse.linalg.eigs", fails)
    with pytest.raises(InputError, match=r"set input\.directed = false"):
        radius(csr_of(LARGE["directed"]))
