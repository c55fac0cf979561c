from __future__ import annotations

import numpy as np
import pytest

from tests.graph.graphs import csr_of, random_matrix
from xnq_dist.core.errors import InputError, StageError
from xnq_dist.graph import scratch
from xnq_dist.graph.csr import write_csr
from xnq_dist.graph.sort import PairSorter


def in_files(folder, weighted):
    matrix = random_matrix(40, 0.1, 3)
    matrix.data = np.random.default_rng(0).integers(1, 9, matrix.nnz) / 8
    plain = csr_of(matrix, weighted)
    folder.mkdir()
    rows = np.repeat(np.arange(40), np.diff(plain.indptr))
    with PairSorter(40, 40, 1, folder, weighted) as sorter:
        weight = matrix.data if weighted else None
        sorter.add(rows, plain.indices.astype(np.int64), weight)
        written = write_csr(sorter.chunks(), 40, folder, weighted)
    return plain, written


@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
@pytest.mark.parametrize("edges", [1, 7, 10**6])
def test_chunks_from_files_and_memory_hold_the_same_rows(tmp_path, weighted, edges):
    for csr in in_files(tmp_path / "csr", weighted):
        plain = in_files(tmp_path / f"again-{id(csr)}", weighted)[0]
        chunks = list(csr.chunks(edges))
        counts = np.concatenate([np.diff(rows.indptr) for rows in chunks])
        assert (counts == np.diff(plain.indptr)).all()
        assert [r.first for r in chunks] == np.cumsum(
            [0] + [len(r.indptr) - 1 for r in chunks[:-1]]
        ).tolist()
        indices, weights = plain.arrays()
        assert (np.concatenate([r.indices for r in chunks]) == indices).all()
        assert (np.concatenate([r.weights for r in chunks]) == weights).all()
        assert csr.weighted == weighted
        for mine, due in zip(csr.arrays(), plain.arrays(), strict=True):
            assert (mine == due).all()
        assert all(r.indptr[-1] <= max(edges, np.diff(r.indptr).max()) for r in chunks)


def test_weights_that_add_up_beyond_float32_are_refused(tmp_path):
    zero = np.zeros(2, np.int64)
    with PairSorter(1, 1, 1 << 20, tmp_path, weighted=True) as sorter:
        sorter.add(zero, zero, np.array([3e38, 3e38]))
        with pytest.raises(
            InputError, match="add up to 6e\\+38, which is too large for float32"
        ):
            write_csr(sorter.chunks("sum"), 1, tmp_path, True)


def test_a_scratch_folder_that_cannot_be_written_names_the_setting(
    tmp_path,
):
    with pytest.raises(StageError, match="set scratch to a folder with more space"):
        scratch.append(tmp_path / "absent" / "x", np.arange(3))
    assert len(scratch.read(tmp_path / "absent", np.int64)) == 0
