"""The stage ``graph`` by tasks against the stage in one process: the same bits."""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np
import pytest
import scipy.sparse as sp

from tests.graph.graphs import csr_of, edge_table, node_table, random_matrix, run
from tests.graph.tasks import TasksHere
from tests.graph.test_prepare import digests
from xnq_dist.core.tasks import Tasks
from xnq_dist.graph import edge_tasks, partition_files, row_tasks, scratch
from xnq_dist.graph.csr import FileCsr
from xnq_dist.graph.distances import effective_diameter, spread_kernel
from xnq_dist.graph.row_tasks import RowPasses
from xnq_dist.graph.spectral import adjacency_radius


@pytest.fixture(autouse=True)
def small_tasks(monkeypatch):
    monkeypatch.setattr(edge_tasks, "ROWS", 1)
    monkeypatch.setattr(edge_tasks, "PAIRS", 1)
    monkeypatch.setattr(row_tasks, "EDGES", 1)
    monkeypatch.setattr(partition_files, "EDGES", 1)


@pytest.mark.parametrize(
    ("partitioner", "directed", "weighted"),
    [
        ("metis", False, True),
        ("metis", True, False),
        ("stream", False, False),
        ("stream", True, True),
    ],
)
def test_the_stage_has_the_same_files_and_facts(
    tmp_path,
    partitioner,
    directed,
    weighted,
):
    rng = np.random.default_rng(0)
    rows = rng.integers(0, 300, (2000, 2))
    more = {"weight": rng.integers(1, 9, 2000) / 4} if weighted else {}
    links = edge_table([tuple(row) for row in rows.tolist()], **more)
    links = [links.slice(at, 97) for at in range(0, 2000, 97)]
    overrides = (
        f"partitioner={partitioner}",
        f"input.directed={directed}",
        "input.duplicates=sum",
    )

    def made(name, tasks):
        where = tmp_path / name, node_table(300), links
        workers = {"workers": lambda: nullcontext(tasks)}
        return run(*where, *overrides, partitions=5, **workers)[1]

    due = made("alone", None)
    for slots, memory in ((1, 1 << 20), (3, 1 << 12)):
        shared = tmp_path / f"shared-{slots}"
        shared.mkdir()
        found = made(f"by-tasks-{slots}", TasksHere(shared, slots, memory))
        assert digests(found) == digests(due)
        assert found.facts == due.facts
        assert (shared / "csr").exists()


@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
@pytest.mark.parametrize("symmetric", [False, True], ids=["directed", "symmetric"])
@pytest.mark.parametrize("slots", [1, 5])
def test_rho_and_distances_have_the_bits_of_one_process(
    tmp_path, weighted, symmetric, slots
):
    # Directed: several components, which have edges between them.
    matrix = random_matrix(400, 0.02, seed=1, symmetric=symmetric)
    csr = csr_of(matrix if symmetric else sp.triu(matrix, -40).tocsr())
    rng = np.random.default_rng(2)
    scratch.append(tmp_path / "indptr", csr.indptr)
    scratch.append(tmp_path / "indices", csr.indices)
    if weighted:
        # The same in both directions: Lanczos needs a symmetric matrix to converge.
        drawn = rng.random((400, 400)).astype(np.float32)
        rows = np.repeat(np.arange(400), np.diff(csr.indptr))
        both = (drawn + drawn.T)[rows, csr.indices]
        scratch.append(tmp_path / "weights", both)
    files = FileCsr(csr.indptr, tmp_path, weighted)
    passes = RowPasses(files, TasksHere(tmp_path, slots))
    alone = RowPasses(files, Tasks(tmp_path, 1, 1 << 30))
    due = adjacency_radius(files, symmetric, alone.times)
    assert adjacency_radius(files, symmetric, passes.times) == due > 1
    due_steps = effective_diameter(files.indptr, 30, alone.spread)
    assert effective_diameter(files.indptr, 30, passes.spread) == due_steps
    words = rng.integers(0, 2**63, 400).astype(np.uint64)
    found, due_words = np.empty_like(words), np.empty_like(words)
    for rows in files.chunks():
        spread_kernel(*rows.edges, words, due_words)
    passes.spread(words, found)
    assert (found == due_words).all()
    left = {path.name for path in tmp_path.iterdir()} - {"weights"}
    assert left == {"indptr", "indices"}
