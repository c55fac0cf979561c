"""Communities of graphs that stay on disk, against slow versions."""

from __future__ import annotations

import logging
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp

from tests.conftest import small_settings
from tests.graph.graphs import csr_of, edge_table, node_table, run
from tests.groups.test_leiden import modularity
from xnq_dist.core.store import RunDirectory
from xnq_dist.graph import batches as batches_module
from xnq_dist.graph import layout
from xnq_dist.graph import moves as module
from xnq_dist.graph.moves import FIRST, Communities
from xnq_dist.graph.prepare import prepare
from xnq_dist.graph.tables import Sources
from xnq_dist.groups.detection import detect, engine_of
from xnq_dist.groups.leiden import leiden, number_by_size
from xnq_dist.groups.streamed import Level, contract
from xnq_dist.groups.streamed import detect as streamed

LITTLE = 1 << 16
"""Bytes that hold the edges of no graph here."""


def random_level(seed: int, weighted: bool, n: int = 60) -> tuple[Level, sp.csr_array]:
    """A level and its matrix; weights and strengths are quarters, so sums are exact."""
    rng = np.random.default_rng(seed)
    dense = np.triu(rng.random((n, n)) < 0.12, 1).astype(float)
    if weighted:
        dense *= rng.integers(0, 9, (n, n)) / 4
    matrix = sp.csr_array(dense + dense.T)
    loops = rng.integers(0, 3, n)
    strength = matrix.sum(axis=1) + loops
    return Level(csr_of(matrix, weighted), strength), matrix


def moved_slowly(matrix, strength, penalty, limit, label, due, turn, sizes):
    """One pass in plain Python: batches of nodes choose, then join one by one."""
    label, moved, first = label.tolist(), 0, 0

    def weight(community):
        return sum(s for s, c in zip(strength, label, strict=True) if c == community)

    for size in sizes:
        batch = range(first, first + size)
        choice = {}
        for v in batch:
            if due[v] > turn:
                continue
            due[v] = 255
            votes: dict[int, float] = {label[v]: 0.0}
            for u in matrix.indices[matrix.indptr[v] : matrix.indptr[v + 1]]:
                votes[label[u]] = votes.get(label[u], 0.0) + matrix[v, u]
            own = strength[v]
            without = {c: weight(c) - own * (c == label[v]) for c in votes}
            gain = {c: votes[c] - penalty * own * without[c] for c in votes}
            room = [
                c
                for c in votes
                if c == label[v] or (votes[c] > 0 and without[c] + own <= limit)
            ]
            if own <= limit:
                # The old community comes first, the others as they were met.
                choice[v] = max(room, key=gain.__getitem__)
        joined = set()
        for v, best in choice.items():
            if best != label[v] and weight(best) + strength[v] <= limit:
                label[v] = best
                joined.add(v)
        for v in joined:
            for u in matrix.indices[matrix.indptr[v] : matrix.indptr[v + 1]]:
                if label[u] != label[v]:
                    due[u] = min(due[u], FIRST)
        moved += len(joined)
        first += size
    return label, moved


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
@pytest.mark.parametrize("limit", [np.inf, 20.0], ids=["any size", "limited"])
def test_passes_move_nodes_as_plain_python_does(monkeypatch, weighted, limit, threads):
    """Random parts first, then nodes with neighbours that moved."""
    batches = partial(batches_module.batches, minimum=7)
    monkeypatch.setattr(module, "batches", batches)
    rows = partial(batches_module.max_batch_rows, minimum=7)
    monkeypatch.setattr(module, "max_batch_rows", rows)
    monkeypatch.setattr(batches_module, "SINGLE_THREAD", 0)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(threads)))
    for seed in range(4):
        level, matrix = random_level(seed, weighted)
        sizes = [len(each.indptr) - 1 for each in batches(level.csr)]
        assert len(sizes) >= 7
        n = len(level.strength)
        penalty = 1 / 1024
        label, weight = np.arange(n, dtype=np.int32), level.strength.copy()
        due = np.random.default_rng(seed).integers(FIRST, size=n, dtype=np.uint8)
        total = 0
        for turn in range(FIRST + 3):
            expected_due = due.copy()
            state = level.strength, penalty, limit, label, expected_due, turn
            expected, steps = moved_slowly(matrix, *state, sizes)
            nodes = Communities(label, level.strength, weight, due, penalty, limit)
            joined = nodes.move(level.csr, turn)
            assert joined == steps
            assert label.tolist() == expected
            assert due.tolist() == expected_due.tolist()
            total += steps
        assert total > n / 2
        sums = np.bincount(label, level.strength, n)
        np.testing.assert_array_equal(weight, sums)


@pytest.mark.parametrize("memory", [1 << 12, 1 << 24], ids=["sorted runs", "memory"])
@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
def test_contracted_graph_has_the_sums_between_communities(tmp_path, weighted, memory):
    level, matrix = random_level(1, weighted)
    label = (np.arange(60) * 7 % 11).astype(np.int32)
    small = contract(level, label, tmp_path / "small", memory)
    one_hot = sp.csr_array((np.ones(60), (np.arange(60), label)))
    expected = (one_hot.T @ matrix @ one_hot).toarray()
    np.fill_diagonal(expected, 0)
    indices, weights = small.csr.arrays()
    found = sp.csr_array((weights, indices, small.csr.indptr), shape=(11, 11))
    np.testing.assert_array_equal(found.toarray(), expected)
    np.testing.assert_array_equal(small.strength, one_hot.T @ level.strength)


def planted(folder, weights: bool = False) -> Sources:
    """Blocks of nodes in random order, with loops and edges of one direction."""
    rng, nodes = np.random.default_rng(3), 3000
    blocks = nodes // 60
    name = rng.permutation(nodes)
    inside = rng.integers(0, 60, (2, nodes * 5))
    inside += 60 * rng.integers(0, blocks, nodes * 5)
    between = rng.integers(0, nodes, (2, nodes * 2))
    ends = name[np.concatenate([inside, between], axis=1)]
    ends = np.unique(ends, axis=1)
    more = {"weight": rng.integers(1, 9, ends.shape[1]) / 4} if weights else {}
    folder.mkdir(exist_ok=True)
    sources = str(folder / "nodes.parquet"), str(folder / "edges.parquet")
    pq.write_table(node_table(nodes), sources[0])
    pq.write_table(pa.table({"src": ends[0], "dst": ends[1], **more}), sources[1])
    return Sources(*sources)


KINDS = {
    "directed": [],
    "undirected": ["input.directed=false"],
    "weighted": ["columns.weight=weight"],
}


@pytest.mark.parametrize("kind", KINDS)
def test_streamed_communities_are_as_good_as_leidens_in_any_partitions(tmp_path, kind):
    sources = planted(tmp_path, weights=kind == "weighted")
    found = []
    for partitions in (1, 2, 5):
        directory = RunDirectory(tmp_path / f"run{partitions}")
        graph = prepare(directory, sources, small_settings(*KINDS[kind]), partitions)
        folder = tmp_path / f"scratch{partitions}"
        folder.mkdir()
        found.append(streamed(directory.stage("graph"), graph, folder, LITTLE, 1.0, 0))
        assert not list(folder.iterdir())
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], found[2])
    adjacency = layout.read_adjacency(directory.stage("graph"), graph)
    best = modularity(adjacency, leiden(adjacency))
    assert modularity(adjacency, found[0]) >= 0.98 * best
    # Loops, weights and directions count as they do with all edges in memory.
    fits = streamed(directory.stage("graph"), graph, tmp_path, 1 << 24, 1.0, 0)
    assert modularity(adjacency, fits) == pytest.approx(best, abs=0.005)


def test_contraction_is_repeated_until_leiden_fits(tmp_path, caplog):
    sources = planted(tmp_path)
    directory = RunDirectory(tmp_path / "run")
    graph = prepare(directory, sources, small_settings(), 2)
    sizes = []
    for memory in (1 << 23, 1 << 20, LITTLE):
        caplog.clear()
        folder = tmp_path / str(memory)
        folder.mkdir()
        with caplog.at_level(logging.INFO, "xnq_dist.groups.streamed"):
            streamed(directory.stage("graph"), graph, folder, memory)
        lines = [each.getMessage() for each in caplog.records]
        sizes.append([int(x.split()[2]) for x in lines if x.startswith("Leiden on")])
    assert sizes[0] == [3000]
    assert 0 < sizes[1][0] < 3000
    assert not sizes[2] or sizes[2][0] < sizes[1][0]


@pytest.mark.data
@pytest.mark.parametrize(
    "name", ["cora", "minesweeper", "twitch-ptbr", "facebook100-johnshopkins55"]
)
def test_streamed_modularity_on_data_folder_is_close_to_leidens(
    tmp_path, data_folder, name
):
    """Also where communities grow along the rows of a grid (Minesweeper)."""
    tables = (
        str(data_folder / name / "nodes.parquet"),
        str(data_folder / name / "edges.parquet"),
    )
    directory = RunDirectory(tmp_path / "run")
    settings = small_settings("columns.features=null")
    graph = prepare(directory, Sources(*tables), settings, 2)
    stage = directory.stage("graph")
    adjacency = layout.read_adjacency(stage, graph)
    found = streamed(stage, graph, tmp_path, 1 << 20, 1.0, 0)
    best = modularity(adjacency, leiden(adjacency))
    assert modularity(adjacency, found) >= 0.95 * best


def test_nodes_without_edges_to_others_are_alone(tmp_path):
    rows = [(0, 0), (1, 2), (2, 3), (1, 3)]
    stage, graph = run(tmp_path, node_table(6), edge_table(rows))
    for memory in (1, 1 << 24):
        found = streamed(stage, graph, tmp_path, memory)
        assert found.tolist() == [1, 0, 0, 0, 2, 3]
    zeros = edge_table([(0, 1), (2, 3)], weight=[0.0, 0.0])
    stage, graph = run(
        tmp_path / "zeros", node_table(4), zeros, "columns.weight=weight"
    )
    assert streamed(stage, graph, tmp_path / "zeros", 1).tolist() == [0, 1, 2, 3]


def test_engine_is_chosen_by_the_memory_of_the_input(tmp_path):
    edges = 10_000_000  # 1.5 GiB
    assert engine_of(small_settings(), edges) == "streamed"
    assert engine_of(small_settings(), 1_000_000) == "cpu"
    assert engine_of(small_settings("input.memory=2GiB"), edges) == "cpu"
    stage, graph = run(tmp_path, node_table(6), edge_table())
    exact = detect(stage, graph, small_settings(), tmp_path)
    other = detect(stage, graph, small_settings("input.memory=1 KiB"), tmp_path)
    np.testing.assert_array_equal(number_by_size(exact), number_by_size(other))


def test_interrupted_detection_starts_again_cleanly(tmp_path, monkeypatch):
    module = "xnq_dist.groups.streamed._leiden"
    stage, graph = run(tmp_path, node_table(6), edge_table())
    folder = tmp_path / "scratch"
    folder.mkdir()
    expected = streamed(stage, graph, folder, 1 << 24)

    def interrupted(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(module, interrupted)
        with pytest.raises(KeyboardInterrupt):
            streamed(stage, graph, folder, 1 << 24)
    assert not list(folder.iterdir())
    np.testing.assert_array_equal(streamed(stage, graph, folder, 1 << 24), expected)
