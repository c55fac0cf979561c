from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.graph.graphs import csr_of, cut, random_matrix
from xnq_dist.graph.halo import PartitionBook


@st.composite
def divided(draw):
    n = draw(st.integers(1, 20))
    partitions = draw(st.integers(1, 7))
    part = draw(st.lists(st.integers(0, partitions - 1), min_size=n, max_size=n))
    density = draw(st.sampled_from([0.0, 0.1, 0.4, 1.0]))
    return np.array(part, np.int32), partitions, draw(st.integers(0, 99)), density


@settings(max_examples=150, deadline=None)
@given(divided(), st.booleans())
def test_partitions_hold_each_edge_once_and_send_what_is_read(case, weighted):
    part, n_partitions, seed, density = case
    matrix = random_matrix(len(part), density, seed)
    matrix.data = np.arange(1, matrix.nnz + 1, dtype=float)
    csr = csr_of(matrix, weighted=True)
    book = PartitionBook.of(part, n_partitions)
    weights = csr.weights if weighted else None
    partitions = cut(csr.indptr, csr.indices, weights, book)
    assert len(partitions) == book.partitions == n_partitions
    assert sum(p.n_owned for p in partitions) == len(part)
    found = []
    for p in partitions:
        # Owned rows first, in canonical order; then the halo, by owner, ascending.
        owned = book.owned(p.number)
        assert (np.diff(owned) > 0).all()
        assert (part[owned] == p.number).all()
        assert (np.diff(p.halo) > 0).all()
        assert p.halo_offsets[-1] == p.n_halo
        owners = part[book.order[p.halo]]
        assert p.number not in owners
        due = np.repeat(np.arange(n_partitions), np.diff(p.halo_offsets))
        assert (owners == due).all()
        # Every halo row has an edge, and every edge has its rows.
        used = np.unique(p.indices[p.indices >= p.n_owned])
        assert (used == np.arange(p.n_owned, p.n_owned + p.n_halo)).all()
        local = np.concatenate([owned, book.order[p.halo]])
        target = np.repeat(owned, np.diff(p.indptr))
        source = local[p.indices]
        inside = np.flatnonzero(np.diff(target) == 0)
        assert (np.diff(source)[inside] > 0).all()
        values = np.zeros(p.n_edges) if p.weights is None else p.weights
        found += zip(target.tolist(), source.tolist(), values.tolist(), strict=True)
        # The rows that q reads from p are those that p sends to q.
        for q in partitions:
            rows = p.send_rows[p.send_offsets[q.number] : p.send_offsets[q.number + 1]]
            read = q.halo[q.halo_offsets[p.number] : q.halo_offsets[p.number + 1]]
            assert (rows + book.offsets[p.number] == read).all()
        assert (p.boundary_rows == np.unique(p.send_rows)).all()
        assert p.boundary_rows.dtype == np.int32
    target, source = matrix.nonzero()
    values = csr.weights if weighted else np.zeros(matrix.nnz)
    due_edges = zip(target.tolist(), source.tolist(), values.tolist(), strict=True)
    assert sorted(found) == sorted(due_edges)
